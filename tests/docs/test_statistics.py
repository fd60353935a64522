"""Formulas of the statistics pages, computed by another way."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special
import scipy.stats

from dpaudit.audit.battery.hidden_direction import fourth_order_p, phase_p
from dpaudit.audit.betting.noise import BETS
from dpaudit.audit.mechanism.bounds import epsilon_bounds
from dpaudit.audit.mechanism.one_run import (
    Guesses,
    one_run_p,
    one_run_p_tradeoff,
    tradeoff_of_epsilon,
)


def phase_bound(r, f, *, waves=True):
    """The page's phase bound (n = 50) with its moment generating function by quadrature."""
    y = np.linspace(-9, 9, 4001)
    weight = np.exp(-y * y / 2) / np.exp(-y * y / 2).sum()
    rho, s, total = math.exp(-2 * math.pi**2 * f * f), 2 * r, 0.0
    for theta in 2 * math.pi * np.arange(16) / 16:
        moment = (
            float(weight @ np.exp(s * np.cos(2 * math.pi * f * y - theta)))
            if waves
            else scipy.special.i0(s)
        )
        exponent = s * (r * math.cos(math.pi / 16) + rho * math.cos(theta)) - math.log(moment)
        total += math.exp(-50 * max(exponent, 0.0))
    return min(1.0, total)


def test_the_phase_bound_by_quadrature_and_that_it_falls():
    for f in (0.1, 0.25, 0.4, 1.0):
        rho = math.exp(-2 * math.pi**2 * f * f)
        rs = np.linspace(0.02, 1.0, 60)
        p = [phase_p(rho + r, 0.0, n=50, frequency=f) for r in rs]
        assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(p)), "not falling: no p-value"
        for r in (0.3, 0.5, 0.7):
            assert phase_p(rho + r, 0.0, n=50, frequency=f) == pytest.approx(
                phase_bound(r, f), rel=1e-6
            )
    right, wrong = phase_bound(0.5, 0.25), phase_bound(0.5, 0.25, waves=False)
    assert abs(wrong / right - 1) > 0.01  # without the waves it is another number


def test_the_fourth_order_bound_falls():
    cells = 4096
    x = 2 * (np.arange(cells) + 0.5) / cells - 1
    # where 3P₄ is largest, and where it is least
    for end in (np.abs(x) > 0.95, np.abs(np.abs(x) - 0.65) < 0.05):
        p = []
        for share in range(0, 101, 5):
            counts = np.full(cells, 100 - share, dtype=np.int64)
            counts[end] += share * cells // int(end.sum())
            p.append(fourth_order_p(counts * 2))
        assert all(b <= a for a, b in itertools.pairwise(p))
        assert p[0] > 0.5 > 1e-9 > p[-1]


def missed(epsilon, delta, p0, *, draws, alpha, told):
    """P(the bound exceeds ε) for P₁(E) = e^ε·P₀(E) + δ, exactly; ``told`` is the δ it is given."""
    p1 = math.exp(epsilon) * p0 + delta
    k = np.arange(draws + 1)
    inside, outside = np.meshgrid(k, k, indexing="ij")
    possible = inside + outside <= draws
    inside, outside = inside[possible], outside[possible]
    log = scipy.special.gammaln(draws + 1) - sum(
        scipy.special.gammaln(c + 1) for c in (inside, outside, draws - inside - outside)
    )
    log += (
        inside * math.log(p1 / 2)
        + outside * math.log(p0 / 2)
        + (draws - inside - outside) * math.log1p(-(p1 + p0) / 2)
    )
    bounds = epsilon_bounds(inside, outside, draws=draws, delta=told, alpha=alpha)
    return float(np.exp(log)[bounds > epsilon].sum())


@pytest.mark.parametrize(
    ("epsilon", "delta", "p0"), [(0.5, 0.0, 0.3), (1.0, 0.05, 0.1), (0.3, 0.2, 0.3)]
)
def test_one_event_errs_as_often_as_it_may_by_summing_over_all_counts(epsilon, delta, p0):
    assert missed(epsilon, delta, p0, draws=120, alpha=0.1, told=delta) <= 0.1
    if delta:
        # forgetting δ would be seen
        assert missed(epsilon, delta, p0, draws=120, alpha=0.1, told=0.0) > 0.1


@pytest.mark.parametrize("name", ["bet on the mean", "bet on the scale"])
def test_expected_capital_is_one_and_of_another_law_it_is_not(name):
    """Over the exact law of what the bet looks at: Σz ~ N(0, n), Σz² ~ χ²_n."""
    n = 6
    if name == "bet on the mean":
        x = np.linspace(-30, 30, 801)
        density, other = (scipy.stats.norm.pdf(x, scale=scale * math.sqrt(n)) for scale in (1, 1.2))
        rows = [np.full((1, n), s / n) for s in x]
    else:
        x = np.geomspace(1e-4, 600, 1201)
        density, other = (scipy.stats.chi2.pdf(x, n, scale=scale**2) for scale in (1, 1.2))
        rows = [np.full((1, n), math.sqrt(q / n)) for q in x]
    capital = []
    for row in rows:
        bet = BETS[name](None)
        bet.update(SimpleNamespace(z=row))
        capital.append(math.exp(bet.log_capital))
    assert np.trapezoid(density * capital, x) == pytest.approx(1.0, abs=3e-3)
    assert np.trapezoid(other * capital, x) > 1.01


def test_one_run_without_delta_is_the_binomial_both_ways():
    """The recursion for δ = 0 promises no less than the binomial tail, which it generalises."""
    for right, made in ((30, 40), (55, 60)):
        guesses = Guesses(made, 0, right)
        tail = scipy.stats.binom.sf(right - 1, made, 1 / (1 + math.exp(-0.8)))
        assert one_run_p(100, guesses, epsilon=0.8, delta=0.0) == pytest.approx(tail, rel=1e-9)
        assert one_run_p_tradeoff(100, guesses, tradeoff_of_epsilon(0.8, 0.0)) >= 0.99 * tail
        assert one_run_p_tradeoff(100, guesses, tradeoff_of_epsilon(0.7, 0.0)) < one_run_p_tradeoff(
            100, guesses, tradeoff_of_epsilon(0.8, 0.0)
        )


def test_the_pancake_is_a_gaussian_times_a_comb():
    beta, gamma, sigma = 0.6, 2.5, 1.3
    r = math.hypot(beta, gamma)
    k, x = np.arange(-60, 61), np.linspace(-4, 4, 801)
    peaks = k * math.sqrt(2 * math.pi) * sigma * gamma / r**2
    weight = np.exp(-math.pi * k * k / r**2)
    mixture = (weight * scipy.stats.norm.pdf(x[:, None], peaks, sigma * beta / r)).sum(axis=1)

    def product(spacing):
        comb = np.exp(-math.pi * (k - x[:, None] / spacing) ** 2 / beta**2).sum(axis=1)
        return np.exp(-x * x / (2 * sigma**2)) * comb

    def ratio(spacing):
        parts = mixture / product(spacing)
        return float(parts.max() / parts.min())

    assert ratio(math.sqrt(2 * math.pi) * sigma / gamma) == pytest.approx(1.0, abs=1e-9)
    assert ratio(float(peaks[61] - peaks[60])) > 1.5  # the peaks' own spacing is not the comb's


def test_the_area_over_all_thresholds():
    s = (np.arange(200_000) + 0.5) / 200_000
    for chance in (1 - s, 0.4 + 0.6 * (s < 0.2), s**2):
        running = np.cumsum(chance) / np.arange(1, len(s) + 1)
        assert float(running.mean()) == pytest.approx(float((-np.log(s) * chance).mean()), abs=1e-4)
        assert float(running.mean()) != pytest.approx(
            float((-np.log1p(-s) * chance).mean()), abs=1e-2
        )
