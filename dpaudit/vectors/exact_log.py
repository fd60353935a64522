"""Natural logarithms of doubles: fast with a proven bound, and correctly rounded."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
import numpy.typing as npt

__all__ = ["log_near", "log_rounded"]

_LN2 = 0.6931471805599453
_TERMS = 15

Array = npt.NDArray[np.float64]


def log_near(u: Array) -> Array:
    """Logarithms of doubles 0 < u < 1, not subnormal: off by a factor within 1 ± 2^-48.

    With u = m·2^e, √½ ≤ m < √2, and f = (m − 1)/(m + 1): ln u = e·ln 2 + 2f·(1 + f²/3 + f⁴/5 + …). |f| < 0.1716, so what
    follows the fifteenth term is below 2^-75 of the sum. m − 1 is exact; f has two roundings, the sum, whose terms all
    have one sign, fewer than eight more: ln m is off by a factor within 1 ± 10·2^-53, e·ln 2 by 1 ± 2·2^-53. They cancel
    at worst at e = −1, m = √2, from 0.693 to 0.347: (2·0.693 + 10·0.347)·2^-53/0.347 and a last rounding, 15·2^-53.
    """
    m, e = np.frexp(u)
    small = m < 0.7071067811865476
    m = np.where(small, 2 * m, m)
    f = (m - 1) / (m + 1)
    square = f * f
    total = np.full_like(f, 1 / (2 * _TERMS - 1))
    for odd in range(2 * _TERMS - 3, 0, -2):
        total = total * square + 1 / odd
    return np.asarray((e - small) * _LN2 + 2 * f * total)


def log_rounded(u: float) -> float:
    """The double nearest to ln u, 0 < u < 1.

    ln u is transcendental, so it lies on no midpoint of two doubles: digits are added until the enclosure, ``decimal``'s
    correctly rounded logarithm and one unit of its last digit, rounds to one double.
    """
    digits = 40
    while True:
        context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
        value = context.ln(Decimal(u))
        low, high = float(context.next_minus(value)), float(context.next_plus(value))
        if low == high:
            return low
        digits *= 2
