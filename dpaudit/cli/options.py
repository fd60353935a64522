"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.models import OptionInfo

from dpaudit.cli import completion
from dpaudit.errors import UsageError
from dpaudit.options import Argument, Option, OptionField, field_of, fields_of, from_keywords

if TYPE_CHECKING:
    from dpaudit.targets.sandbox.policy import Policy

__all__ = [
    "AlsoOption",
    "DataRootOption",
    "DeviceOption",
    "Format",
    "FormatOption",
    "Output",
    "Sandbox",
    "VerboseOption",
    "use_data_root",
    "with_shared_options",
]

_PLAIN = (bool, float, int, str, Path)
Format = Literal["text", "json"]
FormatOption = Annotated[
    Format, typer.Option("--format", help="text for people, json (one document) for programs.")
]
_DEVICE = "Device for tensors."
_DATA_ROOT = "Folder with mnist.npz, cifar10.npz, weights/…; by default DPAUDIT_DATA, else data is downloaded."
DeviceOption = Annotated[Literal["cpu", "cuda"], Option(_DEVICE), typer.Option(help=_DEVICE)]
DataRootOption = Annotated[
    Path | None, Option(_DATA_ROOT), typer.Option(help=_DATA_ROOT, show_default=False)
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Also write report.html and result.json here.", show_default=False),
]
AlsoOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="Also write these formats, comma-separated: junit, sarif; needs --out.",
        show_default=False,
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print every test and row, every finding's command, and everything that a pass cannot exclude.",
    ),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Options of commands that run third-party code: what it may do."""

    sandbox: Annotated[
        Literal["full", "require", "network", "none"] | None,
        Option(
            "Sandbox for third-party code: full (as far as this kernel can), require (full, or exit 3), network (full, but network allowed), none (resource limits only).",
            "LEVEL",
            default="DPAUDIT_SANDBOX, else full",
        ),
    ] = None
    visible: Annotated[
        list[str] | None,
        Option(
            "A file or folder that the sampler may read. The rest of the home directory and the working tree is hidden. Repeatable.",
            "PATH",
        ),
    ] = None
    pass_env: Annotated[
        list[str] | None,
        Option(
            "An environment variable to pass to the sampler; it gets no others, except PATH, LANG, OMP_* and similar. Repeatable.",
            "NAME",
        ),
    ] = None

    @contextmanager
    def policy(self) -> Iterator[Policy]:
        """The policy that samplers of a ``with`` block get; its end says what the kernel lacked."""
        from dpaudit.cli.output import note
        from dpaudit.targets.sandbox.policy import sandbox_policy

        context = sandbox_policy(
            self.sandbox, visible=self.visible or (), passed=self.pass_env or ()
        )
        with context as current:
            yield current
            if current.shortfall:
                note(
                    f"sandbox: {current.shortfall} (--sandbox require would have refused; "
                    "docs/threat-models.md says what still holds)"
                )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options of commands with a verdict: where the result goes."""

    out: OutOption = None
    also: AlsoOption = None
    output: FormatOption = "text"
    verbose: VerboseOption = False


def use_data_root(folder: Path | None) -> None:
    """Make this process and its children look for data in ``folder``; None changes nothing.

    Raises:
        UsageError: it is not a folder.
    """
    if folder is None:
        return
    if not folder.is_dir():
        raise UsageError(
            f"data-root={folder}: must be a folder with the data; leave it out to download"
        )
    os.environ["DPAUDIT_DATA"] = str(folder.resolve())


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: each parameter that is a class of options becomes its fields.

    They, and the other parameters, are typer's options or :class:`dpaudit.options.Option`.
    """
    parameters: list[inspect.Parameter] = []
    shared: dict[str, Any] = {}
    own: list[OptionField] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group: Any = parameter.annotation
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            shared[parameter.name] = group
            fields = _shown(group)
        else:
            required = parameter.default is parameter.empty
            default = None if required else parameter.default
            fields = [field_of(parameter.name, group, default=default, required=required)]
            own += fields
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )
            for name, default, hint in map(_for_typer, fields)
        ]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        groups = {
            name: from_keywords(group, {f.name: arguments.pop(f.name, None) for f in _shown(group)})
            for name, group in shared.items()
        }
        for field in own:
            if field.option.read is not None and arguments.get(field.name) is not None:
                arguments[field.name] = field.option.read(arguments[field.name])
        command(**arguments, **groups)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _shown(group: type) -> list[OptionField]:
    """The fields that are on the command line."""
    return [
        f
        for f in fields_of(group)
        if f.option.help or any(isinstance(part, OptionInfo) for part in typing.get_args(f.hint))
    ]


def _for_typer(field: OptionField) -> tuple[str, Any, Any]:
    """Name, default and annotated type of an option, for typer."""
    no_default = inspect.Parameter.empty if field.required else None
    if not field.option.help:
        return field.name, no_default or field.default, field.hint
    option, default = field.option, field.default
    as_written = option.read is not None and bool(option.default)
    kind = field.type
    if option.read is not None or not _is_plain(kind):
        kind, default = (str, option.default) if as_written else (str | None, None)
    flagged = functools.partial(typer.Option, field.flag)
    make: Any = typer.Argument if isinstance(option, Argument) else flagged
    own = make(
        metavar=option.metavar,
        help=option.help,
        show_default=(not as_written and option.default) or default not in (None, ""),
        autocompletion=getattr(completion, option.completion) if option.completion else None,
    )
    return field.name, no_default or default, Annotated[kind, own]


def _is_plain(kind: Any) -> bool:
    """Whether typer reads this type itself."""
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    parts = [part for part in typing.get_args(kind) if part is not types.NoneType]
    (part,) = parts if union and len(parts) == 1 else (kind,)
    if typing.get_origin(part) is list:
        (part,) = typing.get_args(part)
    return typing.get_origin(part) is Literal or part in _PLAIN
