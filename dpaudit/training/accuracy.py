"""How often a network names the right class, measured and with its interval; there is no other way to make one."""

from __future__ import annotations

from dataclasses import dataclass

from dpaudit.stats import clopper_pearson
from dpaudit.types import Interval

__all__ = ["Accuracy", "accuracy_from_counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(Interval):
    """``value`` = ``correct`` / ``total`` test images, and the exact interval of the probability behind it."""

    value: float
    correct: int
    total: int


def accuracy_from_counts(correct: int, total: int, *, confidence: float = 0.95) -> Accuracy:
    """The accuracy of a network that named the classes of ``correct`` of ``total`` test images.

    Formal guarantee: as :func:`~dpaudit.stats.clopper_pearson`, over test images drawn like these ones.

    Raises:
        UsageError: correct outside 0 … total, no images, or a confidence outside (0, 1).
    """
    interval = clopper_pearson(correct, total, confidence=confidence)
    return Accuracy(
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        method=interval.method,
        value=correct / total,
        correct=correct,
        total=total,
    )
