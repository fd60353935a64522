"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

__all__ = [
    "AlsoOption",
    "AuditCommand",
    "DataRootOption",
    "DeviceOption",
    "Format",
    "FormatOption",
    "OutOption",
    "PassEnvOption",
    "SandboxOption",
    "SeedOption",
    "VisibleOption",
    "with_audit_command",
]

Format = Literal["text", "json"]
FormatOption = Annotated[
    Format, typer.Option("--format", help="text for people, json (one document) for programs.")
]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where tensors live.")]
DataRootOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with mnist.npz, cifar10.npz, weights/…; if not given, DPAUDIT_DATA, else data is downloaded.",
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
        help="Also write for other programs: junit, sarif, markdown, with commas; needs --out.",
        show_default=False,
    ),
]
SandboxOption = Annotated[
    Literal["full", "require", "network", "none"] | None,
    typer.Option(
        help="How foreign code is held: full (as far as this kernel can), require (full or nothing, exit 3), network (full, but with the network), none (limits only).",
        show_default="DPAUDIT_SANDBOX, else full",
    ),
]
VisibleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="A file or folder that the sampler also needs; shown read-only. The home directory and the working tree are hidden. Repeatable.",
        show_default=False,
    ),
]
PassEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="An environment variable to pass on; others are kept back, but for PATH, LANG, OMP_* and the like. Repeatable.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option(
        help="For the auditor's own randomness and registered sources; fresh if not given.",
        show_default=False,
    ),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommand:
    """What `audit` and `mechanism` share: the seed, how foreign code is held, and where the result goes."""

    seed: SeedOption = None
    sandbox: SandboxOption = None
    visible: VisibleOption = None
    pass_env: PassEnvOption = None
    out: OutOption = None
    also: AlsoOption = None
    output: FormatOption = "text"


def with_audit_command(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`AuditCommand`, which it gets as one value, ``common``."""
    hints = typing.get_type_hints(AuditCommand, include_extras=True)
    shared = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]
        )
        for f in dataclasses.fields(AuditCommand)
    ]
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "common"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        common = AuditCommand(**{name: given.pop(name) for name in hints})
        command(**given, common=common)

    run.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
    return run
