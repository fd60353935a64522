"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from dpaudit.audit.options import PrivacyClaim

__all__ = [
    "AlsoOption",
    "AuditCommand",
    "ByOption",
    "CallOption",
    "ClaimOptions",
    "DataRootOption",
    "DeviceOption",
    "DimOption",
    "Format",
    "FormatOption",
    "OutOption",
    "PassEnvOption",
    "SandboxOption",
    "SeedOption",
    "VerboseOption",
    "VisibleOption",
    "optional_count",
    "with_shared_options",
]

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
ByOption = Annotated[
    str,
    typer.Option("--by", metavar="NAME", help="Who runs this, for the report.", show_default=False),
]
CallOption = Annotated[
    str | None,
    typer.Option(
        metavar="'f(…)'",
        help="How to call a python: or library: function whose parameters do not tell, e.g. 'f(value, epsilon=1.0)' or, in C, 'f(1.0) -> double'.",
        show_default=False,
    ),
]
SandboxOption = Annotated[
    Literal["full", "require", "network", "none"] | None,
    typer.Option(
        metavar="LEVEL",
        help="Sandbox for third-party code: full (as far as this kernel can), require (full, or exit 3), network (full, but network allowed), none (resource limits only).",
        show_default="DPAUDIT_SANDBOX, else full",
    ),
]
VisibleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="A file or folder that the sampler may read. The rest of the home directory and the working tree is hidden. Repeatable.",
        show_default=False,
    ),
]
PassEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="An environment variable to pass to the sampler; it gets no others, except PATH, LANG, OMP_* and similar. Repeatable.",
        show_default=False,
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print every test, every finding's command, and everything that a pass cannot exclude.",
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
class AuditCommand:
    """Options that `audit` and `mechanism` share: the seed, the sandbox, and the output."""

    seed: SeedOption = None
    sandbox: SandboxOption = None
    visible: VisibleOption = None
    pass_env: PassEnvOption = None
    out: OutOption = None
    also: AlsoOption = None
    by: ByOption = ""
    output: FormatOption = "text"
    verbose: VerboseOption = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """Options that `mechanism` and `training` share: what is claimed."""

    claim_epsilon: Annotated[
        float | None,
        typer.Option(
            help="The claimed ε; needed unless another --claim is given.", show_default=False
        ),
    ] = None
    claim_delta: Annotated[
        float,
        typer.Option(
            help="The claimed δ; with μ, ρ, Rényi or DP-SGD alone, the δ of the ε shown (1e-5)."
        ),
    ] = 0.0
    claim_mu: Annotated[
        float | None,
        typer.Option(
            help="The claimed μ of Gaussian DP, alone or as well as ε.", show_default=False
        ),
    ] = None
    claim_rho: Annotated[
        float | None,
        typer.Option(metavar="RHO", help="ρ-zCDP is claimed, nothing else.", show_default=False),
    ] = None
    claim_renyi: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER,EPS",
            help="Rényi DP is claimed: ε at an order above 1, e.g. 8,0.5.",
            show_default=False,
        ),
    ] = None
    claim_curve: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A δ(ε) curve is claimed: .csv with columns epsilon,delta, or 'E,D;E,D'.",
            show_default=False,
        ),
    ] = None
    claim_f: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="f-DP is claimed: .csv with columns type-I error, least type-II error; or 'A,B;A,B'.",
            show_default=False,
        ),
    ] = None
    claim_dpsgd: Annotated[
        str | None,
        typer.Option(
            metavar="SETTINGS",
            help="The settings that DP-SGD's accountant counts on, e.g. sigma=1,rate=0.05,steps=80; compared as a whole curve.",
            show_default=False,
        ),
    ] = None

    def claim(self) -> PrivacyClaim:
        """The claim that was given.

        Raises:
            UsageError: as :meth:`~dpaudit.audit.options.PrivacyClaim.of`.
        """
        from dpaudit.audit.options import PrivacyClaim

        return PrivacyClaim.of(
            self.claim_epsilon,
            self.claim_delta,
            self.claim_mu,
            rho=self.claim_rho,
            renyi=self.claim_renyi,
            curve=self.claim_curve,
            f=self.claim_f,
            dpsgd=self.claim_dpsgd,
        )


def optional_count(given: str | None, *, name: str, what: str, example: str) -> int | None:
    """A count as users write it (see :func:`~dpaudit.counts.count_of`), if one was given.

    Raises:
        UsageError: it is not one.
    """
    from dpaudit.counts import count_of

    return None if given is None else count_of(given, what=what, example=example, name=name)


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is one of the classes above by its options, in its place."""
    parameters: list[inspect.Parameter] = []
    shared: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if dataclasses.is_dataclass(group):
            shared[parameter.name] = group
            hints = typing.get_type_hints(group, include_extras=True)
            options = [(f.name, f.default, hints[f.name]) for f in dataclasses.fields(group)]
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
            name: group(**{f.name: given.pop(f.name) for f in dataclasses.fields(group)})
            for name, group in shared.items()
        }
        command(**given, **groups)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
