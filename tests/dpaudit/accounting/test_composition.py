"""Composition: of pancakes against the Gaussian and a two-fold integral, of losses against lists.

Losses of randomised response: all outcomes, as fractions or decimals.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpaudit.accounting import (
    compose_epsilon,
    compose_epsilon_trivial,
    gaussian_delta,
    gaussian_epsilon,
    pancake_epsilon,
    smoothed_pancake,
)
from dpaudit.accounting.sequences import Loss, compose, optimal_delta
from dpaudit.errors import MissingExtraError, UsageError

PERIOD = math.sqrt(2 * math.pi)


@pytest.fixture
def library():
    return pytest.importorskip("dp_accounting")


SIGMA, BETA, GAMMA = smoothed_pancake(2.0, sigma=20.0, beta=1e-3, gamma=32.0)
SMOOTHED = {"sigma": SIGMA, "beta": BETA, "gamma": GAMMA}


@pytest.mark.parametrize(
    ("n", "law", "along", "above"),
    [
        *((n, {"sigma": 20.0, "beta": 3.0, "gamma": 32.0}, 0.1, 1.01) for n in (1, 10, 300)),
        (100, SMOOTHED, 0.5, 1.001),  # R = 1.3: η about 1e-14
    ],
)
def test_a_wide_and_a_smoothed_pancake_compose_like_the_gaussian(library, n, law, along, above):
    ours = compose_epsilon(1e-6, n=n, **law, along=along, across=math.sqrt(1 - along**2))
    exact = gaussian_epsilon(1e-6, sigma=law["sigma"], sensitivity=math.sqrt(n))
    assert exact * (1 - 1e-9) <= ours.value <= exact * above


@pytest.mark.parametrize("n", [1, 10, 300])
def test_a_small_phase_shift_composes_like_one_more_gaussian_coordinate(library, n):
    sigma, beta, gamma, phase = 20.0, 0.05, 32.0, 1e-3
    along = PERIOD * sigma / gamma * (1 + phase)
    t = math.sqrt((along**2 + 0.25) / sigma**2 + 2 * math.pi * (phase / beta) ** 2)
    ours = compose_epsilon(1e-6, n=n, sigma=sigma, beta=beta, gamma=gamma, along=along, across=0.5)
    exact = gaussian_epsilon(1e-6, sigma=1 / t, sensitivity=math.sqrt(n))
    assert exact * (1 - 1e-6) <= ours.value <= exact * 1.01


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.3, 0.5])
def test_one_release_is_the_exact_profile_from_above(library, beta):
    setting = {"sigma": 20.0, "beta": beta, "gamma": 32.0, "along": 0.5, "across": 0.8}
    exact = pancake_epsilon(1e-6, **setting)
    ours = compose_epsilon(1e-6, n=1, **setting)
    assert exact.value - exact.error <= ours.value <= exact.value * 1.001 + 1e-4


def test_two_releases_are_the_integral_over_both_phases(library):
    """E over two independent phases of the Gaussian's profile at √2·t, on an independent grid."""
    sigma, beta, gamma, along, across = 5.0, 0.6, 20.0, 0.35, 0.8
    u, k = (np.arange(3000) + 0.5) / 3000 - 0.5, np.arange(-9, 10)

    def comb(u):
        return np.exp(-math.pi * (k - u[:, None]) ** 2 / beta**2).sum(axis=1)

    p = comb(u) / comb(u).sum()
    h = np.log(comb(u)) - np.log(comb((u - along * gamma / (PERIOD * sigma) + 0.5) % 1 - 0.5))
    step = 1e-3
    cells = np.round(h / step).astype(int)
    pmf = np.bincount(cells - cells.min(), p)
    both = np.convolve(pmf, pmf)
    loss = (np.arange(len(both)) + 2 * cells.min()) * step
    kept, grid = both > 0, np.linspace(loss.min(), loss.max(), 2000)
    law = {"sigma": sigma, "beta": beta, "gamma": gamma, "along": along, "across": across}
    ours = compose_epsilon(1e-3, n=2, **law)

    def delta(epsilon):
        t = math.sqrt(2) * math.hypot(along, across) / sigma
        values = [gaussian_delta(epsilon - x, sigma=1 / t) for x in grid]
        return float((both[kept] * np.interp(loss[kept], grid, values)).sum())

    assert delta(ours.value) <= 1e-3 * (1 + 1e-6)
    assert delta(ours.value - 2e-3) > 1e-3


@pytest.mark.slow
def test_the_grid_is_pessimistic_and_refining_it_helps(library):
    law = {"sigma": 20.0, "beta": 0.5, "gamma": 32.0, "along": 0.5, "across": 0.8}
    coarse, middle, fine = (
        compose_epsilon(1e-6, n=20, **law, discretization=d).value for d in (0.05, 0.01, 0.002)
    )
    assert coarse > middle > fine > pancake_epsilon(1e-6, **law).value
    assert fine < compose_epsilon_trivial(1e-6, n=20, **law)


def test_impractical_losses_are_refused_with_the_way_out(library):
    law = {"sigma": 20.0, "beta": 1e-4, "gamma": 32.0, "along": 0.5, "across": 0.8}
    with pytest.raises(
        UsageError,
        match=r"discretization=.*compose_epsilon_trivial|compose_epsilon_trivial.*discretization=",
    ):
        compose_epsilon(1e-6, n=10, **law)
    one = pancake_epsilon(1e-7, **law)
    assert compose_epsilon_trivial(1e-6, n=10, **law) == pytest.approx(10 * one.value, rel=1e-9)
    with pytest.raises(UsageError, match=r"gamma=0\.5"):
        compose_epsilon(1e-6, n=100, sigma=20.0, beta=1.0, gamma=0.5, along=0.9, across=0.1)


def test_impossible_arguments_are_named(library):
    law = {"sigma": 20.0, "beta": 0.5, "gamma": 32.0, "along": 0.5, "across": 0.8}
    for n in (0, -1, 1.5):
        with pytest.raises(UsageError, match=f"n={n}"):
            compose_epsilon(1e-6, n=n, **law)
    with pytest.raises(UsageError, match="delta=1e-13"):
        compose_epsilon(1e-13, n=2, **law)
    with pytest.raises(UsageError, match="discretization=0"):
        compose_epsilon(1e-6, n=2, **law, discretization=0.0)
    assert compose_epsilon(1e-6, n=2, **(law | {"along": 0.0, "across": 0.0})).value == 0.0


def test_without_the_library_the_extra_is_named(monkeypatch):
    law = {"sigma": 20.0, "beta": 0.5, "gamma": 32.0, "along": 0.5, "across": 0.8}
    for module in ("", ".pld", ".pld.pld_pmf", ".pld.common", ".pld.privacy_loss_distribution"):
        monkeypatch.setitem(sys.modules, f"dp_accounting{module}", None)
    with pytest.raises(MissingExtraError, match=r"dpaudit\[accounting\]"):
        compose_epsilon(1e-6, n=2, **law)


# ---------------------------------------------------------------- sequences of losses


def _listed_delta(epsilon, losses):
    """δ(ε) of the worst mechanisms: every outcome of every one, 40 digits; leaks are outcomes."""
    with mpmath.workdps(40):
        pairs = []
        for one in losses:
            e, leak = mpmath.exp(mpmath.mpf(one.epsilon)), mpmath.mpf(one.delta)
            true, lie = (1 - leak) * e / (1 + e), (1 - leak) / (1 + e)
            pairs.append(((leak, 0), (true, lie), (lie, true), (0, leak)))
        factor, total = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(0)
        for outcome in itertools.product(*pairs):
            p, q = (mpmath.fprod(chances) for chances in zip(*outcome, strict=True))
            total += max(mpmath.mpf(0), p - factor * q)
        return float(total)


LISTS = [
    [Loss(1.0)],
    [Loss(0.3, 0.01)] * 4,
    [Loss(2.0), Loss(0.5), Loss(0.5), Loss(0.1)],
    [Loss(1.0, 1e-3), Loss(1.0), Loss(0.2, 1e-4), Loss(3.0, 1e-5)],
]


@pytest.mark.parametrize("losses", LISTS)
def test_the_optimal_profile_is_the_listed_one(losses):
    for epsilon in (0.0, 0.05, 0.4, 1.0, 2.2, 3.09, 9.0):
        listed = _listed_delta(epsilon, losses)
        assert optimal_delta(epsilon, losses=losses) == pytest.approx(listed, abs=1e-14)


@pytest.mark.parametrize("losses", LISTS)
def test_the_optimal_epsilon_is_the_least_with_the_listed_delta(losses):
    for delta in (0.02, 0.05, 0.2, 0.6):
        epsilon = compose(losses, delta=delta, method="optimal")
        if math.isinf(epsilon):
            assert _listed_delta(1e3, losses) > delta
            continue
        assert _listed_delta(epsilon, losses) <= delta * (1 + 1e-9)
        below = epsilon * (1 - 1e-6) - 1e-9
        assert epsilon == 0 or _listed_delta(below, losses) > delta * (1 - 1e-12)


@pytest.mark.parametrize(
    ("k", "epsilon", "delta"), [(5, 0.4, 0.0), (20, 0.1, 1e-4), (9, 1.5, 1e-6)]
)
def test_the_points_of_kairouz_oh_and_viswanath(k, epsilon, delta):
    """Theorem 3.3 as printed."""
    e, losses = math.exp(epsilon), [Loss(epsilon, delta)] * k
    for i in range(k // 2 + 1):
        terms = (math.comb(k, j) * (e ** (k - j) - e ** (k - 2 * i + j)) for j in range(i))
        printed = 1 - (1 - delta) ** k * (1 - sum(terms) / (1 + e) ** k)
        found = optimal_delta((k - 2 * i) * epsilon, losses=losses)
        assert found == pytest.approx(printed, abs=1e-13)


def _binomial_delta(factor, k, local):
    """δ(ε) of k randomised responses by the law of truths, as fractions of a rational e^ε."""
    truth, total = local / (1 + local), Fraction(0)
    lie = 1 - truth
    for truths in range(k + 1):
        p = truth**truths * lie ** (k - truths)
        q = lie**truths * truth ** (k - truths)
        total += math.comb(k, truths) * max(Fraction(0), p - factor * q)
    return total


@pytest.mark.parametrize(
    ("ratio", "k"), [(Fraction(11, 10), 200), (Fraction(3, 1), 30), (Fraction(50, 1), 12)]
)
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_every_bound_holds_for_randomised_response_and_the_optimal_one_is_tight(ratio, k, delta):
    losses, methods = [Loss(math.log(ratio))] * k, ("basic", "advanced", "optimal", "best")
    found = {m: compose(losses, delta=delta, method=m) for m in methods}
    for name, epsilon in found.items():
        factor = Fraction(math.exp(min(epsilon, 700.0)))  # beyond, δ = 0 whatever the ε
        assert float(_binomial_delta(factor, k, ratio)) <= delta * (1 + 1e-6), name
    assert found["optimal"] == found["best"]
    assert found["optimal"] <= min(found["basic"], found["advanced"])
    below = Fraction(math.exp(found["optimal"] * (1 - 1e-6)))
    assert float(_binomial_delta(below, k, ratio)) > delta


def _exact_delta(epsilon, k, local):
    """The same with real local ε in 60 digits: from the outcome just above ε downwards."""
    with mpmath.workdps(60):
        e, s = mpmath.mpf(epsilon), mpmath.mpf(local)
        lies = mpmath.ceil((k - e / s) / 2) - 1
        if lies < 0:
            return mpmath.mpf(0)
        chosen = mpmath.loggamma(k + 1) - mpmath.loggamma(lies + 1) - mpmath.loggamma(k - lies + 1)
        mass = mpmath.exp(chosen - k * mpmath.log1p(mpmath.exp(-s)) - lies * s)
        total = mpmath.mpf(0)
        while lies >= 0 and mass > total * mpmath.mpf(10) ** -25:
            total += mass * (1 - mpmath.exp(e - (k - 2 * lies) * s))
            mass *= lies / (k - lies + 1) * mpmath.exp(s)
            lies -= 1
        return total


@pytest.mark.parametrize(
    ("k", "local", "delta"),
    [
        (1, 1e-6, 1e-15),
        (1, 0.01, 1e-15),
        (2, 32.0, 1e-10),
        (180, 4.0, 1e-6),
        (180, 8.0, 1e-6),
        (180, 32.0, 1e-10),
        (3650, 4.0, 1e-12),
        (3650, 8.0, 1e-10),
        (3650, 100.0, 1e-10),
        (20_000, 8.0, 0.1),
        (100_000, 0.003, 1e-6),
    ],
)
def test_the_optimal_epsilon_is_rounded_up_where_a_last_digit_decides(k, local, delta):
    epsilon = compose([Loss(local)] * k, delta=delta, method="optimal")
    assert _exact_delta(epsilon, k, local) <= delta
    least = epsilon - 3e-14 * k * local
    assert _exact_delta(least, k, local) > delta * (1 - 1e-8)


@pytest.mark.parametrize("share", [1 + 1e-15, 1 + 1e-12, 1.01])
@pytest.mark.parametrize(("k", "leak"), [(10, 1e-7), (100, 1e-9), (3, 0.1)])
def test_what_is_left_of_delta_is_rounded_down(k, leak, share):
    delta = k * leak * share
    epsilon = compose([Loss(1.0, leak)] * k, delta=delta, method="optimal")
    with mpmath.workdps(60):
        assert 1 - (1 - mpmath.mpf(leak)) ** k * (1 - _exact_delta(epsilon, k, 1.0)) <= delta


def test_the_sum_is_the_answer_where_delta_is_below_all_rounding():
    generator = random.Random(1)
    for _ in range(100):
        losses = [Loss(generator.uniform(0.01, 5)) for _ in range(generator.randint(2, 6))]
        total = math.fsum(one.epsilon for one in losses)
        for delta in (1e-300, 1e-30, 1e-17):
            assert compose(losses, delta=delta) == pytest.approx(total, rel=1e-13)
    assert compose([Loss(1.0, 1e-5)], delta=1e-5, method="optimal") == 1.0
    assert compose([Loss(1e308)] * 10, delta=0.1) == math.inf


def test_what_cannot_be_had_is_infinite_or_refused():
    leaky = [Loss(1.0, 1e-4)] * 20
    for method in ("basic", "advanced", "optimal", "best"):
        assert compose(leaky, delta=1e-3, method=method) == math.inf
    assert compose([Loss(1.0)] * 3, delta=0.0, method="optimal") == 3.0
    assert compose([Loss(1.0)] * 3, delta=0.0, method="advanced") == math.inf
    many = [Loss(1 + i / 1000) for i in range(30)]
    assert compose(many, delta=1e-6) < math.inf
    for call in (
        lambda: compose(many, delta=1e-6, method="optimal"),
        lambda: compose([], delta=1e-6),
        lambda: compose([Loss(1.0)], delta=1.0),
        lambda: compose([Loss(1.0)], delta=math.nan),
        lambda: compose([Loss(1.0)], delta=1e-6, method="rdp"),
        lambda: Loss(0.0),
        lambda: Loss(1.0, 1.0),
        lambda: optimal_delta(-1.0, losses=[Loss(1.0)]),
    ):
        with pytest.raises(UsageError):
            call()
