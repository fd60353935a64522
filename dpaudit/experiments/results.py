"""What an experiment measured: its arms under attack, or rows of measurements, with figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from dpaudit import wording
from dpaudit.report import Described
from dpaudit.types import (
    Amount,
    CellFailure,
    CellResult,
    Count,
    EpsilonBounds,
    Interval,
    Level,
    Number,
    PowerPoint,
    Share,
    Verdict,
    brief,
)

__all__ = [
    "Arm",
    "ArmAttack",
    "AttackResult",
    "Column",
    "ExperimentResult",
    "Figure",
    "Format",
    "MeasurementsResult",
    "measured_nothing",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult(Described):
    """How often an attack identified the right candidate; ``chance`` is the success of guessing."""

    kind: ClassVar[str] = "attack"

    attack: str
    trials: Count
    successes: Count
    success: Share
    interval: Interval
    chance: Share
    epsilon_lower_bound: Number
    l2_error: Amount
    l2_expected: Amount
    details: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        right = f"{self.successes:,} of {self.trials:,} right"
        return brief(self, self.attack, right, f"chance {self.chance:.3g}")


_OF_A_KEY = {"beta", "gamma", "key"}
"""Settings of an arm that exist only where the attacker holds a key."""

Format = Literal["setting", "number", "proportion", "epsilon", "seconds", "ratio", "flag", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAudit:
    """Outcome of the black-box audit of an arm."""

    verdict: Verdict
    samples: Count
    alpha: Level
    smallest_p: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAttack:
    """Success of one attack on an arm; ``chance`` is the success of guessing.

    ``keyless``: the attack used no key although the experiment has one.
    """

    attack: str
    successes: Count
    trials: Count
    success: Share
    interval: Interval
    chance: Share
    epsilon_lower_bound: Number
    details: Mapping[str, Any] = field(default_factory=dict)
    keyless: bool = field(default=False, metadata={"document": "if any"})

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; 0 and 1 if undefined (NaN is never above or below)."""
        return max(0.0, self.interval.low), min(1.0, self.interval.high)

    @property
    def rate(self) -> str:
        """The success in percent, with its interval."""
        return wording.proportion(self.success, self.interval.low, self.interval.high)

    @property
    def guessing(self) -> float:
        """The success of guessing; a half if the attack does not state it."""
        return 0.5 if math.isnan(self.chance) else self.chance

    @property
    def beats_chance(self) -> bool:
        """Whether the whole interval lies above chance."""
        return self.ends[0] > self.guessing

    @property
    def epsilon_shown(self) -> float:
        """The lower bound for ε; 0 if it shows none."""
        return max(0.0, self.epsilon_lower_bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A source with a mitigation under one setting: its audit, and the attacks on it."""

    source: str
    mitigation: str
    settings: Mapping[str, Any]
    attacks: tuple[ArmAttack, ...]
    label: str = ""
    audit: ArmAudit | None = None
    epsilon_claimed: Number
    epsilon_key_holder: EpsilonBounds
    l2_error: Amount | None = None
    l2_expected: Amount | None = None

    @property
    def group(self) -> str:
        """Source and mitigation in words."""
        return self.source if self.mitigation == "none" else f"{self.source} + {self.mitigation}"

    @property
    def attacked(self) -> list[ArmAttack]:
        """The attacks that have a success rate, in their order."""
        return [a for a in self.attacks if math.isfinite(a.success)]

    @property
    def best(self) -> ArmAttack | None:
        """The attack whose interval has the highest lower end; None without attacks."""
        return max(self.attacked, key=lambda a: (a.ends[0], a.success), default=None)

    @property
    def strongest(self) -> ArmAttack:
        """The most successful attack, of those that show more than is claimed if any does."""
        return max(self.attacked, key=lambda a: (self.exceeded(a), a.ends[0], a.success))

    @property
    def epsilon_shown(self) -> float:
        """The largest lower bound for ε that an attack shows; 0 if none does."""
        return max((a.epsilon_shown for a in self.attacked), default=0.0)

    @property
    def exceeds_claim(self) -> bool:
        """Whether an attack shows more than the claimed ε."""
        return any(map(self.exceeded, self.attacked))

    def exceeded(self, attack: ArmAttack) -> bool:
        """Whether an attack shows more than the claimed ε.

        To beat chance is not enough: a claim of ε allows that. An arm without a claimed ε allows
        nothing.
        """
        claimed = self.epsilon_claimed
        return attack.epsilon_shown > (0.0 if math.isnan(claimed) else claimed)

    @property
    def success_allowed(self) -> float | None:
        """How often any attack may name the right one of two neighbours under the claimed (ε, δ).

        (e^ε + δ)/(e^ε + 1), where both are equally likely (Kairouz, Oh and Viswanath 2015); None
        without a claim, or if guessing is not right half of the time.
        """
        delta = wording.number(self.settings.get("delta", 0.0))
        if delta is None or math.isnan(self.epsilon_claimed):
            return None
        if any(a.guessing != 0.5 for a in self.attacked):
            return None
        odds = math.exp(-max(0.0, self.epsilon_claimed))
        return min(1.0, (1 + min(1.0, max(0.0, delta)) * odds) / (1 + odds))

    def has_key(self, attack: ArmAttack) -> bool:
        """Whether an attack used a key."""
        return bool(_OF_A_KEY & self.settings.keys()) and not attack.keyless


class Column(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of measurements: its key in the rows, its heading (empty: the key), its format."""

    key: str
    label: str = ""
    format: Format = "setting"


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A figure of measurements: which keys of the rows to draw, as lines, bars or a map.

    ``series`` is one line or set of bars per value, ``panels`` one panel per value. ``points`` is a
    key whose value is a list of pairs [x, y] (of triples for a map), ``where`` the values of keys
    that a row must have to be drawn, ``band`` the keys of a band's ends, ``reference`` a horizontal
    line.
    """

    x: str
    y: str
    title: str = ""
    series: str | None = None
    panels: tuple[str, ...] = ()
    log_x: bool = False
    log_y: bool = False
    published: str | None = None
    band: tuple[str, ...] = ()
    reference: float | None = None
    label_x: str | None = None
    label_y: str | None = None
    kind: Literal["line", "bars", "map"] = "line"
    points: str | None = None
    value: str | None = None
    where: Mapping[str, Any] = msgspec.field(default_factory=dict)
    diagonal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult(Described):
    """An experiment whose rows are arms under attack."""

    kind: ClassVar[str] = "experiment"

    name: str
    title: str
    story: str
    command: str
    rows: tuple[Arm, ...]
    cells: tuple[CellResult, ...]
    provenance: Mapping[str, Any]
    failures: tuple[CellFailure, ...] = field(default=(), metadata={"document": "if any"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsResult(Described):
    """An experiment whose rows are measurements: values by the keys of the columns.

    A value is plain, or has ``low`` and ``high``.

    ``misses`` are the rows that differ from what is published; ``power`` and ``caveats`` belong to
    the detectability map, ``proposal`` to what is calibrated by it.
    """

    kind: ClassVar[str] = "measurements"

    name: str
    title: str
    story: str
    command: str
    columns: tuple[Column, ...]
    figures: tuple[Figure, ...]
    rows: tuple[Mapping[str, Any], ...]
    misses: tuple[Mapping[str, Any], ...]
    summary: str
    cells: tuple[CellResult, ...]
    provenance: Mapping[str, Any]
    failures: tuple[CellFailure, ...] = field(default=(), metadata={"document": "if any"})
    power: tuple[PowerPoint, ...] = field(default=(), metadata={"document": "if any"})
    caveats: tuple[str, ...] = field(default=(), metadata={"document": "if any"})
    proposal: Mapping[str, Any] = field(default_factory=dict, metadata={"document": "if any"})


def measured_nothing(
    columns: tuple[Column, ...] = (), figures: tuple[Figure, ...] = ()
) -> MeasurementsResult:
    """Measurements without rows, to check that columns and figures can be shown."""
    return MeasurementsResult(
        name="",
        title="",
        story="",
        command="",
        columns=columns,
        figures=figures,
        rows=(),
        misses=(),
        summary="",
        cells=(),
        provenance={},
    )
