"""Closed forms against integrals, fractions, and the exact profile.

Also ε of DP-SGD towards someone who knows coins of the batches.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy
from support.laws import hockey_stick

from dpaudit.accounting import gaussian_delta, gaussian_epsilon
from dpaudit.accounting.dpsgd import DpSgd, known_batch_epsilon, worst_known_batch_epsilon
from dpaudit.accounting.mechanisms import (
    binomial_coins,
    binomial_delta,
    binomial_epsilon,
    laplace_epsilon,
)
from dpaudit.errors import UsageError


@pytest.mark.parametrize("t", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("share", [-1.5, -0.4, 0.0, 0.3, 0.9, 1.0])
def test_laplace_epsilon_is_where_the_integral_over_the_positive_part_is_delta(t, share):
    scale = 3.0
    epsilon = share * t

    def gain(x):
        more = math.exp(-abs(x) / scale) - math.exp(epsilon - abs(x - t * scale) / scale)
        return max(0.0, more) / (2 * scale)

    kink = (t - epsilon) * scale / 2
    points = sorted({-60 * scale, 0.0, min(max(kink, 0.0), t * scale), t * scale, 60 * scale})
    integral = sum(scipy.integrate.quad(gain, a, b)[0] for a, b in itertools.pairwise(points))
    found = laplace_epsilon(integral, scale=scale, sensitivity=t * scale)
    assert found == pytest.approx(max(0.0, epsilon), abs=1e-7)


@pytest.mark.parametrize(
    "call",
    [
        lambda: laplace_epsilon(0.1, scale=0.0),
        lambda: laplace_epsilon(1.0, scale=1.0),
        lambda: binomial_delta(-0.1, coins=3),
        lambda: binomial_delta(math.nan, coins=3),
        lambda: binomial_delta(1.0, coins=0),
        lambda: binomial_delta(1.0, coins=2.0),
        lambda: binomial_epsilon(0.0, coins=3),
        lambda: binomial_coins(1e-9, 1e-10),
        lambda: binomial_coins(0.0, 1e-10),
    ],
)
def test_values_out_of_range_are_refused(call):
    with pytest.raises(UsageError, match=r"\w+="):
        call()


# ---------------------------------------------------------------- binomial noise


def tossed(n, shift):
    """The exact law of coins tossed."""
    return {k + shift: Fraction(math.comb(n, k), 2**n) for k in range(n + 1)}


@pytest.mark.parametrize("n", [1, 2, 3, 10, 155, 156, 700])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.1, 1.0, 2.5, math.log(155), 9.0])
def test_both_directions_against_fractions(n, epsilon):
    factor = Fraction(math.exp(epsilon))
    for shift in (1, -1):
        exact = hockey_stick(tossed(n, 0), tossed(n, shift), factor)
        assert math.isclose(binomial_delta(epsilon, coins=n), exact, rel_tol=1e-11)


def test_no_event_does_better():
    """Every one of the 2^7 events, not only the threshold that the formula takes."""
    p, q, factor = tossed(5, 0), tossed(5, 1), Fraction(math.exp(0.7))
    gain = [p.get(k, Fraction(0)) - factor * q.get(k, Fraction(0)) for k in range(7)]
    events = (itertools.combinations(gain, size) for size in range(8))
    best = max(sum(event, Fraction(0)) for event in itertools.chain.from_iterable(events))
    assert math.isclose(binomial_delta(0.7, coins=5), best, rel_tol=1e-12)


@pytest.mark.parametrize("epsilon", [50.0, 699.9, 700.0, 1e300, math.inf])
def test_the_end_of_the_range_gives_away_whatever_epsilon(epsilon):
    assert math.isclose(binomial_delta(epsilon, coins=5), 2**-5, rel_tol=1e-14)


def test_least_coins_are_least_and_published_rules_ask_for_more():
    """331 and 28,452 coins (a rule of thumb) suffice for ε = 1 and 0.1; so do fewer than half."""
    for epsilon in (1.0, 0.3):
        coins, factor = binomial_coins(epsilon, 1e-10), Fraction(math.exp(epsilon))
        assert hockey_stick(tossed(coins, 0), tossed(coins, 1), factor) <= Fraction(1, 10**10)
        fewer = tossed(coins - 1, 0), tossed(coins - 1, 1)
        assert hockey_stick(*fewer, factor) > Fraction(1, 10**10)
    for epsilon, thumb in ((1.0, 331), (0.1, 28_452)):
        assert binomial_delta(epsilon, coins=thumb) < 1e-18
        assert binomial_coins(epsilon, 1e-10) < thumb / 2


def test_epsilon_inverts_delta():
    for coins, delta in itertools.product((40, 331, 11_767, 10**7), (1e-10, 1e-4)):
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


# ---------------------------------------------------------------- batches that somebody knows


DELTA = 1e-5


def test_a_known_batch_is_the_gaussian_mechanism_that_often():
    pytest.importorskip("dp_accounting")
    run = DpSgd(1.1, 0.25, 12)
    found = known_batch_epsilon(run, DELTA, known=0.25)
    steps = np.arange(1, 13)
    deltas = [gaussian_delta(found, sigma=1.1 / math.sqrt(k)) for k in steps]
    assert scipy.stats.binom.pmf(steps, 12, 0.25) @ deltas == pytest.approx(DELTA, rel=2e-3)
    worst = worst_known_batch_epsilon(run, DELTA, known=0.25)
    assert worst == pytest.approx(gaussian_epsilon(DELTA, sigma=1.1 / math.sqrt(12)))
    assert run.epsilon(DELTA) < found < worst


def test_one_step_against_a_mixture_by_hand():
    """Towards an attacker who knows the coin, δ(ε) of one step is rate·δ of a Gaussian."""
    found = known_batch_epsilon(DpSgd(2.0, 0.01, 1), DELTA, known=0.01)
    assert found == pytest.approx(gaussian_epsilon(DELTA / 0.01, sigma=2.0), rel=2e-3)


@pytest.mark.slow
def test_what_stays_hidden_still_amplifies():
    pytest.importorskip("dp_accounting")
    run = DpSgd(1.1, 0.0625, 20)
    known = [known_batch_epsilon(run, DELTA, known=k) for k in (0.0625, 0.25, 0.5, 1.0)]
    assert known == sorted(known, reverse=True)
    assert known[-1] == run.epsilon(DELTA)
    assert worst_known_batch_epsilon(run, DELTA, known=0.25) == DpSgd(1.1, 0.25, 20).epsilon(DELTA)
    assert worst_known_batch_epsilon(run, DELTA, known=1.0) == run.epsilon(DELTA)
    with pytest.raises(UsageError, match=r"known=0\.01"):
        known_batch_epsilon(run, DELTA, known=0.01)
