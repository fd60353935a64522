"""The p-value and effect of one part of a test, and of several parts together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import scipy

from dpaudit.types import Evidence

__all__ = ["DISCRETE", "Part", "fair_coins", "no_evidence", "strongest", "two_sided"]

DISCRETE = "not applicable: the claimed law is discrete"


class Part(NamedTuple):
    """A p-value, valid for all that was tried, and its effect in words."""

    p: float
    effect: str


def strongest(parts: Iterable[Part]) -> Part:
    """The most unusual of ``parts``, its p-value corrected for their number; 1 of none."""
    every = list(parts) or [Part(1.0, "")]
    best = min(every, key=lambda part: part.p)
    return best._replace(p=min(1.0, len(every) * best.p))


def no_evidence(effect: str, *, statistic: float = 0.0) -> Evidence:
    """The evidence of a test that does not apply, or has too few values."""
    return Evidence(p=1.0, statistic=statistic, effect=effect)


def two_sided(lower: float, upper: float) -> float:
    """Twice the smaller of two tails, at most 1."""
    return float(min(1.0, 2 * min(lower, upper)))


def fair_coins(total: int, tosses: int) -> float:
    """Two-sided p-value of a sum ``total`` of ``tosses`` independent ±1, exact."""
    if not tosses:
        return 1.0
    heads = (tosses + abs(total)) // 2
    return min(1.0, 2 * float(scipy.special.betainc(heads, tosses - heads + 1, 0.5)))
