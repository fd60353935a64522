"""What one look of the family says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import scipy

__all__ = ["Part", "fair_coins", "least"]


class Part(NamedTuple):
    """A p-value, valid for all that was tried, and its effect in words."""

    p: float
    effect: str


def fair_coins(total: int, tosses: int) -> float:
    """Two-sided p-value of a sum ``total`` of ``tosses`` independent ±1, exact."""
    if not tosses:
        return 1.0
    heads = (tosses + abs(total)) // 2
    return min(1.0, 2 * float(scipy.special.betainc(heads, tosses - heads + 1, 0.5)))


def least(parts: Sequence[Part]) -> Part:
    """The most unusual of ``parts``, its p-value corrected for their number."""
    best = min(parts, key=lambda part: part.p)
    return best._replace(p=min(1.0, len(parts) * best.p))
