"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.models import OptionInfo

from dpaudit.cli import completion
from dpaudit.options import OptionField, fields_of, from_keywords

if TYPE_CHECKING:
    from dpaudit.samplers.sandbox.policy import Policy

__all__ = [
    "AlsoOption",
    "DataRootOption",
    "DeviceOption",
    "DimOption",
    "Format",
    "FormatOption",
    "OutOption",
    "Output",
    "Sandbox",
    "SeedOption",
    "VerboseOption",
    "with_shared_options",
]

_PLAIN = (bool, float, int, str, Path)
Format = Literal["text", "json"]
FormatOption = Annotated[
    Format, typer.Option("--format", help="text for people, json (one document) for programs.")
]
DimOption = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Values per vector; chosen by the auditor by default.",
        show_default=False,
    ),
]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="Device for tensors.")]
DataRootOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with mnist.npz, cifar10.npz, weights/…; by default DPAUDIT_DATA, else data is downloaded.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Also write report.html and result.json here.", show_default=False),
]
AlsoOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="Also write these formats, comma-separated: junit, sarif, markdown; needs --out.",
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
SeedOption = Annotated[
    str | None,
    typer.Option(
        help="Seed for the auditor's own randomness and for registered sources; random by default.",
        show_default=False,
    ),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Options of commands that run third-party code: what it may do."""

    sandbox: Annotated[
        Literal["full", "require", "network", "none"] | None,
        typer.Option(
            metavar="LEVEL",
            help="Sandbox for third-party code: full (as far as this kernel can), require (full, or exit 3), network (full, but network allowed), none (resource limits only).",
            show_default="DPAUDIT_SANDBOX, else full",
        ),
    ] = None
    visible: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A file or folder that the sampler may read. The rest of the home directory and the working tree is hidden. Repeatable.",
            show_default=False,
        ),
    ] = None
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An environment variable to pass to the sampler; it gets no others, except PATH, LANG, OMP_* and similar. Repeatable.",
            show_default=False,
        ),
    ] = None

    def asking(self) -> AbstractContextManager[Policy]:
        """The policy that samplers of a ``with`` block get."""
        from dpaudit.samplers.sandbox.policy import asking

        return asking(self.sandbox, visible=self.visible or (), passed=self.pass_env or ())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options of commands with a verdict: where the result goes."""

    out: OutOption = None
    also: AlsoOption = None
    output: FormatOption = "text"
    verbose: VerboseOption = False


def optional_count(given: str | None, *, name: str, what: str, example: str) -> int | None:
    """A count as users write it (see :func:`~dpaudit.options.count_of`), if one was given.

    Raises:
        UsageError: it is not one.
    """
    from dpaudit.options import count_of

    return None if given is None else count_of(given, what=what, example=example, name=name)


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a class of options by its fields, in its place.

    They are typer's options, or :class:`dpaudit.options.Option`.
    """
    parameters: list[inspect.Parameter] = []
    shared: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group: Any = parameter.annotation
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            shared[parameter.name] = group
            options = [_for_typer(field) for field in _shown(group)]
        else:
            options = [(parameter.name, parameter.default, group)]
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )
            for name, default, hint in options
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        groups = {
            name: from_keywords(group, {f.name: given.pop(f.name) for f in _shown(group)})
            for name, group in shared.items()
        }
        command(**given, **groups)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _shown(group: type) -> list[OptionField]:
    """The fields that are on the command line."""
    return [f for f in fields_of(group) if f.option.help or _is_of_typer(f)]


def _is_of_typer(field: OptionField) -> bool:
    return any(isinstance(part, OptionInfo) for part in typing.get_args(field.hint))


def _for_typer(field: OptionField) -> tuple[str, Any, Any]:
    """Name, default and annotated type of an option, for typer."""
    if _is_of_typer(field):
        return field.name, field.default, field.hint
    option, default = field.option, field.default
    as_written = option.read is not None and bool(option.default)
    kind = field.type
    if option.read is not None or not _is_plain(kind):
        kind, default = (str, option.default) if as_written else (str | None, None)
    own = typer.Option(
        field.flag,
        metavar=option.metavar,
        help=option.help,
        show_default=(not as_written and option.default) or default not in (None, ""),
        autocompletion=getattr(completion, option.completion) if option.completion else None,
    )
    return field.name, default, Annotated[kind, own]


def _is_plain(kind: Any) -> bool:
    """Whether typer reads this type itself."""
    parts = [part for part in typing.get_args(kind) or (kind,) if part is not type(None)]
    return typing.get_origin(kind) is Literal or (len(parts) == 1 and parts[0] in _PLAIN)
