"""Reading the rows of an experiment: whatever may be missing is answered for here, once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit.report.format import number, setting
from dpaudit.results.text import printable

__all__ = [
    "Row",
    "above_chance",
    "arm_labels",
    "attacks_of",
    "best_attack",
    "chance_of",
    "ends",
    "group_of",
    "shared_settings",
]

Row = Mapping[str, Any]


def attacks_of(row: Row) -> list[Mapping[str, Any]]:
    """The attacks of a row that have a success rate, in their order."""
    return [a for a in row.get("attacks") or () if _is_share(a.get("success"))]


def best_attack(row: Row) -> Mapping[str, Any] | None:
    """The attack that shows the most: the highest lower end of its interval; None without any."""
    return max(attacks_of(row), key=lambda a: (ends(a)[0], a["success"]), default=None)


def ends(attack: Mapping[str, Any]) -> tuple[float, float]:
    """The ends of an attack's interval; without one, nothing is known: 0 and 1."""
    interval = attack.get("interval") or {}
    low, high = number(interval.get("low")), number(interval.get("high"))
    return (0.0 if low is None else max(0.0, low), 1.0 if high is None else min(1.0, high))


def chance_of(attack: Mapping[str, Any]) -> float:
    """What guessing gets; a half where the attack does not say."""
    chance = number(attack.get("chance"))
    return 0.5 if chance is None else chance


def above_chance(attack: Mapping[str, Any]) -> bool:
    """Whether the whole interval lies above chance."""
    return ends(attack)[0] > chance_of(attack)


def group_of(row: Row) -> str:
    """Source and mitigation in words."""
    source, mitigation = row.get("source"), row.get("mitigation")
    if source is None:
        return printable(row.get("label", "arm"), limit=200)
    return printable(source if mitigation in {None, "none"} else f"{source} + {mitigation}", limit=200)


def arm_labels(rows: Sequence[Row]) -> list[str]:
    """One label a row; where labels repeat, the settings that vary are added to tell them apart."""
    labels = [printable(row["label"], limit=200) if row.get("label") else group_of(row) for row in rows]
    if len(set(labels)) == len(labels):
        return labels
    varying = sorted(name for name, values in _settings(rows).items() if len(set(values)) > 1)
    added = [
        ", ".join(f"{printable(n, limit=60)} {setting(row['settings'][n])}" for n in varying if n in _of(row))
        for row in rows
    ]
    return [f"{label}, {more}" if more else label for label, more in zip(labels, added, strict=True)]


def shared_settings(rows: Sequence[Row]) -> list[tuple[str, str, bool]]:
    """Settings with a single value: name, value, and whether every row has it."""
    return [
        (printable(name, limit=60), values[0], len(values) == len(rows))
        for name, values in _settings(rows).items()
        if len(set(values)) == 1
    ]


def _of(row: Row) -> Mapping[str, Any]:
    settings = row.get("settings")
    return settings if isinstance(settings, Mapping) else {}


def _settings(rows: Sequence[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, value in _of(row).items():
            found.setdefault(name, []).append(setting(value))
    return found


def _is_share(value: object) -> bool:
    x = number(value)
    return x is not None and not math.isinf(x)
