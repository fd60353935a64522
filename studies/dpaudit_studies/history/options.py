"""Options of ``dpaudit history``."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dpaudit.audit.options import AuditOptions, MechanismOptions
from dpaudit.options import Option, count_of

__all__ = ["HistoryOptions", "Place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """How each release is audited. The battery draws ``samples`` values, ``events`` half as many.

    Raises:
        UsageError: as :class:`~dpaudit.audit.options.AuditOptions`.
    """

    samples: Annotated[
        int,
        Option(
            "Values that the battery draws per mechanism.",
            "N",
            default="300k",
            read=functools.partial(count_of, unit="values", example="300k"),
        ),
    ] = 300_000
    releases: Annotated[
        int,
        Option(
            "Releases at each of two values that an attack looks at.",
            "N",
            default="20k",
            read=functools.partial(count_of, unit="releases", example="20k", name="releases"),
        ),
    ] = 20_000
    alpha: Annotated[
        float, Option("Probability of a false finding, over all releases and checks together.")
    ] = 0.01
    seed: Annotated[str, Option("Seed for the auditor's own randomness.")] = "0"
    allow_predictable: Annotated[
        bool, Option("Noise that can be computed from other noise is no finding (for simulators).")
    ] = False

    def __post_init__(self) -> None:
        self.noise("0", share=1)
        self.mechanism("0", share=1, samples=self.releases)

    def noise(self, seed: str, *, share: int) -> AuditOptions:
        """Of the audit of a sampler, one of ``share`` audits that have α together."""
        return AuditOptions(
            samples=self.samples,
            alpha=self.alpha / share,
            seed=seed,
            allow_predictable=self.allow_predictable,
        )

    def mechanism(self, seed: str, *, share: int, samples: int) -> MechanismOptions:
        """Of the audit of a mechanism, with ``samples`` releases."""
        return MechanismOptions(samples=samples, alpha=self.alpha / share, seed=seed)

    @property
    def note(self) -> str:
        """What the page says of predictable noise."""
        return _PREDICTABLE if self.allow_predictable else ""

    @property
    def axes(self) -> dict[str, Any]:
        """All but the seed, as a spec's grid has them."""
        return {name: v for name, v in dataclasses.asdict(self).items() if name != "seed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where releases are installed, and from what; it changes no number."""

    cache: Annotated[
        Path | None, Option("Folder for wheels and environments; in the user's cache by default.")
    ] = None
    offline: Annotated[bool, Option("Install only what is in the cache.")] = False
    keep: Annotated[bool, Option("Keep the environments after the audit.")] = False


_PREDICTABLE = (
    " Noise that can be computed from other noise, as that of any statistical generator can, was "
    "allowed."
)
