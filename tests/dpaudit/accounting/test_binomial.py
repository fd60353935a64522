"""Binomial noise against sums of fractions, subset by subset, and against coins tossed."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support.laws import hockey_stick

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.binomial import binomial_coins, binomial_delta, binomial_epsilon
from dpaudit.errors import UsageError


def law(n, shift):
    return {k + shift: Fraction(math.comb(n, k), 2**n) for k in range(n + 1)}


@pytest.mark.parametrize("n", [1, 2, 3, 10, 155, 156, 700])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.1, 1.0, 2.5, math.log(155), 9.0])
def test_both_directions_against_fractions(n, epsilon):
    factor = Fraction(math.exp(epsilon))
    for shift in (1, -1):
        exact = hockey_stick(law(n, 0), law(n, shift), factor)
        assert math.isclose(binomial_delta(epsilon, coins=n), exact, rel_tol=1e-11)


def test_no_event_does_better():
    """Every one of the 2^7 events, not only the threshold that the formula takes."""
    p, q = law(5, 0), law(5, 1)
    factor = Fraction(math.exp(0.7))
    outcomes = range(7)
    best = max(
        sum((p.get(k, Fraction(0)) - factor * q.get(k, Fraction(0)) for k in event), Fraction(0))
        for size in range(8)
        for event in itertools.combinations(outcomes, size)
    )
    assert math.isclose(binomial_delta(0.7, coins=5), best, rel_tol=1e-12)


@pytest.mark.parametrize("epsilon", [50.0, 699.9, 700.0, 1e300, math.inf])
def test_the_end_of_the_range_gives_away_whatever_epsilon(epsilon):
    assert math.isclose(binomial_delta(epsilon, coins=5), 2**-5, rel_tol=1e-14)


def test_least_coins_are_least():
    """Coins for ε = 1 and 0.1 at δ = 1e-10: enough in fractions, and one coin fewer is not."""
    for epsilon, coins in ((1.0, binomial_coins(1.0, 1e-10)), (0.3, binomial_coins(0.3, 1e-10))):
        factor = Fraction(math.exp(epsilon))
        assert hockey_stick(law(coins, 0), law(coins, 1), factor) <= Fraction(1, 10**10)
        assert hockey_stick(law(coins - 1, 0), law(coins - 1, 1), factor) > Fraction(1, 10**10)


def test_published_rules_ask_for_more():
    """331 and 28,452 coins (a rule of thumb) suffice for ε = 1 and 0.1; so do fewer than half."""
    for epsilon, thumb in ((1.0, 331), (0.1, 28_452)):
        assert binomial_delta(epsilon, coins=thumb) < 1e-18
        assert binomial_coins(epsilon, 1e-10) < thumb / 2


def test_epsilon_inverts_delta():
    for coins in (40, 331, 11_767, 10**7):
        for delta in (1e-10, 1e-4):
            epsilon = binomial_epsilon(delta, coins=coins)
            assert math.isclose(binomial_delta(epsilon, coins=coins), delta, rel_tol=1e-6)
    assert binomial_epsilon(0.6, coins=10) == 0.0
    assert binomial_epsilon(1e-10, coins=33) == math.inf  # 2^−33 > 1e-10 whatever ε
    assert binomial_epsilon(1e-10, coins=34) < math.inf
    assert binomial_epsilon(2.0**-34, coins=34) <= math.log(34) + 1e-9


@pytest.mark.parametrize("coins", [10**5, 10**7, 10**9])
def test_many_coins_come_near_the_gaussian(coins):
    mine = binomial_epsilon(1e-6, coins=coins)
    gaussian = gaussian_epsilon(1e-6, sigma=math.sqrt(coins) / 2)
    assert gaussian < mine * (1 + 1e-9)
    assert mine < gaussian * (1 + 40 / coins**0.5)


def test_delta_falls_with_coins_and_epsilon():
    table = np.array(
        [[binomial_delta(e, coins=n) for n in range(1, 60)] for e in np.linspace(0, 4, 30)]
    )
    assert (np.diff(table, axis=0) <= 1e-13).all()
    assert (np.diff(table, axis=1) <= 1e-13).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: binomial_delta(-0.1, coins=3),
        lambda: binomial_delta(math.nan, coins=3),
        lambda: binomial_delta(1.0, coins=0),
        lambda: binomial_delta(1.0, coins=2.0),
        lambda: binomial_epsilon(0.0, coins=3),
        lambda: binomial_coins(1e-9, 1e-10),
        lambda: binomial_coins(0.0, 1e-10),
    ],
)
def test_refusals(call):
    with pytest.raises(UsageError, match=r"(epsilon|delta|coins)="):
        call()
