"""Reads the arms of an experiment and supplies what an arm may lack."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpaudit.documents import Arm, ArmAttack
from dpaudit.report.format import number, proportion, setting
from dpaudit.results.text import printable

__all__ = [
    "above_chance",
    "arm_labels",
    "attacks_of",
    "best_attack",
    "chance_of",
    "ends",
    "group_of",
    "rate_of",
    "shared_settings",
]


def attacks_of(row: Arm) -> list[ArmAttack]:
    """The attacks of an arm that have a success rate, in their order."""
    return [a for a in row.attacks if math.isfinite(a.success)]


def best_attack(row: Arm) -> ArmAttack | None:
    """The attack whose interval has the highest lower end; None without attacks."""
    return max(attacks_of(row), key=lambda a: (ends(a)[0], a.success), default=None)


def ends(attack: ArmAttack) -> tuple[float, float]:
    """The ends of an attack's interval; 0 and 1 if undefined."""
    low, high = number(attack.interval.low), number(attack.interval.high)
    return (0.0 if low is None else max(0.0, low), 1.0 if high is None else min(1.0, high))


def rate_of(attack: ArmAttack) -> str:
    """An attack's success in percent, with its interval."""
    return proportion(attack.success, attack.interval.low, attack.interval.high)


def chance_of(attack: ArmAttack) -> float:
    """The success of guessing; a half if the attack does not state it."""
    chance = number(attack.chance)
    return 0.5 if chance is None else chance


def above_chance(attack: ArmAttack) -> bool:
    """Whether the whole interval lies above chance."""
    return ends(attack)[0] > chance_of(attack)


def group_of(row: Arm) -> str:
    """Source and mitigation in words."""
    return printable(
        row.source if row.mitigation == "none" else f"{row.source} + {row.mitigation}", limit=200
    )


def arm_labels(rows: Sequence[Arm]) -> list[str]:
    """One label per row; if labels repeat, the settings that vary are added."""
    labels = [printable(row.label, limit=200) if row.label else group_of(row) for row in rows]
    if len(set(labels)) == len(labels):
        return labels
    varying = sorted(name for name, values in _settings(rows).items() if len(set(values)) > 1)
    added = [
        ", ".join(
            f"{printable(n, limit=60)} {setting(row.settings[n])}"
            for n in varying
            if n in row.settings
        )
        for row in rows
    ]
    return [
        f"{label}, {more}" if more else label for label, more in zip(labels, added, strict=True)
    ]


def shared_settings(rows: Sequence[Arm]) -> list[tuple[str, str, bool]]:
    """Settings with a single value: name, value, and whether every row has it."""
    return [
        (printable(name, limit=60), values[0], len(values) == len(rows))
        for name, values in _settings(rows).items()
        if len(set(values)) == 1
    ]


def _settings(rows: Sequence[Arm]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.settings.items():
            found.setdefault(name, []).append(setting(value))
    return found
