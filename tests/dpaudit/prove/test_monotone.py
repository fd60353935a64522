"""Logarithms, exponentials and bisection of coins, compared with Python on every coin string."""

from __future__ import annotations

import bisect
import math
import warnings

import numpy as np
import pytest

from dpaudit.prove.exploration.engine import explore
from tests.dpaudit.prove import oracle


def logarithms(rng):  # type: ignore[no-untyped-def]
    u = rng.getrandbits(7) / 128
    if u == 0:
        return "zero"
    return math.floor(-3 * math.log(u)), math.log2(u) < -2.5, math.ceil(math.log1p(-u / 2) * 4)


def logarithm_of_zero(rng):  # type: ignore[no-untyped-def]
    return math.log(rng.getrandbits(4) * 0.25 - 1) > 0.5


def numpy_logarithm_of_zero(rng):  # type: ignore[no-untyped-def]
    return int(np.floor(np.log(rng.getrandbits(4) * 0.25)))


def square_root_of_less(rng):  # type: ignore[no-untyped-def]
    try:
        return math.sqrt(rng.getrandbits(4) - 6) > 2
    except ValueError:
        return "refused"


def exponentials(rng):  # type: ignore[no-untyped-def]
    u = rng.getrandbits(7) / 32
    return math.exp(-u) < 0.3, int(math.expm1(u)), bool(np.exp(u) >= 7), math.exp(-u) >= 0.25


def bisection(rng):  # type: ignore[no-untyped-def]
    x = rng.getrandbits(6) / 16
    return bisect.bisect(ENDS, x), bisect.bisect_left(ENDS, x), bisect.bisect_right(ENDS, x, 1, 3)


ENDS = [0.25, 1.0, 1.0, 2.5]


@pytest.mark.parametrize(
    "program",
    [
        logarithms,
        logarithm_of_zero,
        numpy_logarithm_of_zero,
        square_root_of_less,
        exponentials,
        bisection,
    ],
    ids=lambda f: f.__name__,
)
def test_the_law_is_that_of_every_coin_string(program) -> None:  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = oracle.law(program)[0]
    found = explore(program, coins="rng").law
    assert dict(found.mass) == expected
    assert found.residual == 0


def test_a_coin_of_64_bits_stays_an_interval_in_a_logarithm() -> None:
    def inverted(rng):  # type: ignore[no-untyped-def]
        return math.floor(-2 * math.log((rng.getrandbits(64) + 0.5) * 2.0**-64))

    found = explore(inverted, coins="rng")
    assert len(found.graph.states) < 10
    assert 80 < len(found.law.mass) < 95
    assert abs(float(found.law.lower(0)) - (1 - math.exp(-0.5))) < 1e-15
