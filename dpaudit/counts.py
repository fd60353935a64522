"""Counts as users write them."""

from __future__ import annotations

from decimal import Decimal

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line

__all__ = ["count_of"]

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}
_MOST = 10**15


def count_of(given: float | str, *, what: str, example: str, name: str = "samples") -> int:
    """A count as users write it: ``200000``, ``200k``, ``1M``, ``2e5``, ``1_000_000``.

    Raises:
        UsageError: not a whole number from 1 to 1e15, with the ways to write one.

    >>> [count_of(text, what="values", example="1e7") for text in ("200k", "1.5M", "2e5", 1e3)]
    [200000, 1500000, 200000, 1000]
    """
    text = str(given).strip().lower()
    unit = _UNITS.get(text[-1:], 1)
    try:
        number = Decimal(text[:-1] if unit > 1 else text) * unit
    except ArithmeticError:
        number = Decimal(0)
    if not (number.is_finite() and 1 <= number <= _MOST and number == int(number)):
        raise UsageError(
            f"{name}={one_line(given)}: must be a whole number of {what}, "
            f"written like {example}, 200k, 1M or 1_000_000"
        )
    return int(number)
