"""Exact numbers as floats and as text, rounded to the safe side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from dpaudit_prove.results import ProvedBounds
from dpaudit_prove.verdicts.enclosures import Bounds

__all__ = ["at_least", "at_most", "bounds_of", "digits", "down", "up"]

_TINY = Decimal("1e-300")  # below it a float is coarse, or 0


def down(value: Fraction | float) -> float:
    """The largest float that is not above ``value``; a float as it is."""
    near = float(value)
    if isinstance(value, float) or Fraction(near) <= value:
        return near
    return math.nextafter(near, -math.inf)


def up(value: Fraction | float) -> float:
    """The smallest float that is not below ``value``; a float as it is."""
    near = float(value)
    if isinstance(value, float) or Fraction(near) >= value:
        return near
    return math.nextafter(near, math.inf)


def bounds_of(bounds: Bounds) -> ProvedBounds:
    """Bounds as floats, rounded outwards."""
    return ProvedBounds(low=down(bounds.lower), high=up(bounds.upper))


def at_least(value: Fraction | float) -> str:
    """Four digits, rounded down."""
    return digits(value, ROUND_FLOOR)


def at_most(value: Fraction | float) -> str:
    """Four digits, rounded up."""
    return digits(value, ROUND_CEILING)


def digits(value: Fraction | float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Four digits, rounded exactly."""
    if math.isinf(value):
        return "inf"
    exact = Fraction(value)
    near = Context(prec=4, rounding=rounding).divide(exact.numerator, exact.denominator)
    return f"{float(near):.4g}" if not 0 < abs(near) < _TINY else f"{near:.4g}"
