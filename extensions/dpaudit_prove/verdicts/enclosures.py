"""Real numbers between two rationals: exponentials and logarithms with a proved error.

FLINT's ball arithmetic (``arb``, from python-flint) computes them; what leaves this module are
fractions, so that their users need no floating point. As floats and as text these are
rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Literal

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit_prove.results import ProvedBounds

__all__ = [
    "Bounds",
    "Range",
    "as_floats",
    "at_least",
    "at_most",
    "ball",
    "bounds_of",
    "digits",
    "down",
    "exp_bounds",
    "flint",
    "log_bounds",
    "precision",
    "up",
]

BITS = 192
"""Bits of working precision; a bound's relative width is about 2^-180."""


@dataclass(frozen=True)
class Bounds:
    """A real number known to lie in [lower, upper]."""

    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise UsageError(f"lower={self.lower}: must not be above upper={self.upper}")

    def below(self, limit: Fraction) -> Literal["proved", "refuted", "undecided"]:
        """Whether the number is at most a limit."""
        if self.lower > limit:
            return "refuted"
        return "proved" if self.upper <= limit else "undecided"


@dataclass(frozen=True)
class Range:
    """As `Bounds`, of what may be infinite: then the bound is the float `math.inf`."""

    lower: Fraction | float
    upper: Fraction | float


def flint() -> Any:
    """The module ``flint``.

    Raises:
        MissingExtraError: python-flint is not installed.
    """
    try:
        import flint as module
    except ImportError as error:
        raise MissingExtraError(
            "certified bounds: python-flint is not installed; pip install 'dpaudit[prove]'"
        ) from error
    return module


@contextmanager
def precision(bits: int = BITS) -> Iterator[Any]:
    """The module ``flint`` with ``bits`` bits of working precision until the block ends."""
    module = flint()
    with module.ctx.workprec(bits):
        yield module


def ball(module: Any, x: Fraction | int) -> Any:
    """A ball around a rational number, at the current precision."""
    return module.arb(module.fmpq(x.numerator, x.denominator))


def bounds_of(x: Any) -> Bounds:
    """The rational end points of a ball.

    Raises:
        ArithmeticError: a ball that is not finite: the precision did not suffice.
    """
    if not x.is_finite():
        raise ArithmeticError("a ball without end; raise the precision")
    return Bounds(_rational(x.lower()), _rational(x.upper()))


def _rational(x: Any) -> Fraction:
    mantissa, exponent = (int(part) for part in x.man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


def exp_bounds(x: Fraction | int, *, bits: int = BITS) -> Bounds:
    """Bounds for e^x.

    >>> b = exp_bounds(1)
    >>> Fraction(2718281828459045235360287471352, 10**30) < b.lower < b.upper
    True
    """
    if x == 0:
        return Bounds(Fraction(1), Fraction(1))
    with precision(bits) as module:
        return bounds_of(ball(module, x).exp())


def log_bounds(x: Fraction | int, *, bits: int = BITS) -> Bounds:
    """Bounds for the natural logarithm of x > 0.

    Raises:
        UsageError: x is not above 0.
    """
    if x <= 0:
        raise UsageError(f"x={x}: a logarithm needs a number above 0")
    if x == 1:
        return Bounds(Fraction(0), Fraction(0))
    with precision(bits) as module:
        return bounds_of(ball(module, x).log())


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


def as_floats(bounds: Bounds | Range) -> ProvedBounds:
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
