"""Pairs (ε, δ) that claims imply: never more than what the claim says, and nearly all of it."""

import math

import numpy as np
import pytest
import scipy.optimize
from scipy import stats

from dpaudit.audit.epsilon.one_run import tradeoff_of_mu, tradeoff_of_profile
from dpaudit.audit.implied_pairs import of_renyi
from dpaudit.audit.stated_claims import Gaussian, Renyi, TradeOff, ZeroConcentrated

PLACES = (1e-4, 0.02, 0.3, 0.5, 0.7, 0.98, 0.9999)


def divergence(p, q, order):
    return math.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (
        order - 1
    )


def least_allowed(y, order, most):
    """The least P₀(E) for P₁(E) = y with both Rényi divergences of the coins at most ``most``."""

    def excess(x):
        return max(divergence(y, x, order), divergence(x, y, order)) - most

    return scipy.optimize.brentq(excess, y * 1e-12, y - 1e-12)


@pytest.mark.parametrize(("order", "most"), [(1.5, 0.3), (2.0, 1.0), (8.0, 0.5)])
def test_renyi_pairs_touch_the_border_of_what_is_allowed(order, most):
    inverse = tradeoff_of_profile(of_renyi(np.array([order]), np.array([most])))
    for y in PLACES:
        exact = least_allowed(y, order, most)
        assert inverse(y) <= exact + 1e-9
        assert inverse(y) >= 0.97 * exact - 1e-6


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_gaussian_noise_keeps_what_its_claims_imply(mu):
    """N(0, 1) against N(μ, 1) is μ-GDP, μ²/2-zCDP, and (α, αμ²/2)-Rényi at every α."""
    exact = tradeoff_of_mu(mu)
    for claim in (Gaussian(mu), ZeroConcentrated(mu**2 / 2), Renyi(4.0, 2 * mu**2)):
        inverse = tradeoff_of_profile(claim.profile)
        for y in PLACES:
            assert inverse(y) <= exact(y) + 1e-9
    near = tradeoff_of_profile(Gaussian(mu).profile)
    assert near(0.7) == pytest.approx(exact(0.7), rel=1e-3)


def test_a_claim_that_the_neighbours_look_alike():
    for claim in (ZeroConcentrated(0.0), Renyi(2.0, 0.0), Gaussian(0.0)):
        assert tradeoff_of_profile(claim.profile)(0.3) == pytest.approx(0.3)


def test_a_table_of_f_implies_the_hull_of_its_steps():
    """Between two rows only monotony is claimed, and tests can be mixed by a coin."""
    inverse = tradeoff_of_profile(TradeOff(((0.1, 0.5), (0.5, 0.2))).profile)
    # P₁ is at most 0.5 up to P₀ = 0.1, then 0.8 up to 0.5, then 1: the hull is 0.5 + 3·P₀ and
    # 0.75 + P₀/2; with the neighbours swapped, P₀ ≥ 0.25 − (1 − P₁)/2 as well
    assert inverse(0.5) == pytest.approx(0.0, abs=1e-9)
    assert inverse(0.8) == pytest.approx(0.15)
    assert inverse(0.65) == pytest.approx(0.075)
    assert inverse(1.0) == pytest.approx(0.5)
    rows = [(a, float(stats.norm.cdf(stats.norm.isf(a) - 1))) for a in np.linspace(0, 1, 201)]
    many = tradeoff_of_profile(TradeOff(tuple((float(a), b) for a, b in rows)).profile)
    for y in (0.05, 0.3, 0.7, 0.95):
        exact = tradeoff_of_mu(1.0)(y)
        assert exact - 0.01 <= many(y) <= exact + 1e-9
