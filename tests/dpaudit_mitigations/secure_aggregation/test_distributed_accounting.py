"""The accounting against exact sums: probabilities convolved by terms, in 1 and 2 dimensions."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from support.laws import profile

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.distributed import (
    discrete_gaussian_sum_bounds,
    discrete_gaussian_sum_factor,
    skellam_bounds,
    skellam_rdp,
)
from dpaudit.errors import UsageError


def gaussian(scale, reach):
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-0.5 * (z / scale) ** 2)
    return mass / mass.sum()


def summed(scale, parties):
    """P(z) of the sum at −reach..reach: convolved in positive terms, exact for small ones too."""
    one = gaussian(scale, math.ceil(20 * scale))
    out = one
    for _ in range(parties - 1):
        out = np.convolve(out, one)
    return out


def epsilon(mass, shift, delta):
    """The least ε ≥ 0 at δ between ``mass`` (1D or 2D) and its ``shift``, by Σ(P − e^ε·Q)₊."""
    pad = [(0, abs(s)) for s in shift]
    p = np.pad(mass, pad)
    q = np.pad(mass, [(abs(s), 0) for s in shift])

    def excess(eps):
        return profile(p, q, eps) - delta

    return 0.0 if excess(0.0) <= 0 else scipy.optimize.brentq(excess, 0.0, 300.0, xtol=1e-12)


@pytest.mark.parametrize("scale", [0.4, 0.6, 0.8, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("parties", [1, 2, 3, 8])
def test_sum_of_discrete_gaussians(scale, parties):
    mass = summed(scale, parties)
    for shift, delta in ((1, 1e-2), (1, 1e-6), (3, 1e-6)):
        exact = epsilon(mass, (shift,), delta)
        bounds = discrete_gaussian_sum_bounds(
            delta, scale=scale, parties=parties, sensitivity=shift, dim=1
        )
        assert bounds.low - 1e-9 <= exact <= bounds.high + 1e-9
        if scale >= 1:
            assert bounds.high <= 1.01 * exact + 1e-6  # and tight where shares are not tiny
            assert bounds.low >= 0.99 * exact - 1e-6


@pytest.mark.parametrize(("scale", "parties"), [(0.6, 2), (1.0, 3), (2.5, 2)])
def test_sum_of_discrete_gaussians_in_two_dimensions(scale, parties):
    one = summed(scale, parties)
    for shift, delta in (((1, 1), 1e-5), ((2, 1), 1e-3)):
        exact = epsilon(np.outer(one, one), shift, delta)
        bounds = discrete_gaussian_sum_bounds(
            delta, scale=scale, parties=parties, sensitivity=math.hypot(*shift), dim=2
        )
        assert bounds.low - 1e-9 <= exact <= bounds.high


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_the_factor_bounds_every_ratio_and_is_not_idle(scale, parties):
    mass = summed(scale, parties)
    reach = len(mass) // 2
    whole = gaussian(scale * math.sqrt(parties), reach)
    # the convolved windows are cut off further out
    inner = slice(reach - int(8 * scale), reach + int(8 * scale) + 1)
    worst = np.abs(np.log(mass[inner] / whole[inner])).max()
    factor = discrete_gaussian_sum_factor(scale, parties)
    assert worst <= factor + 1e-12
    if scale == 0.7:
        assert factor < 20 * worst
    assert worst > 1e-9 or scale > 1


def test_rounding_is_included():
    """Values 1.4 apart become whole numbers up to 2 apart, in d dimensions up to 1.4 + √d."""
    mass = summed(2.0, 3)
    bounds = discrete_gaussian_sum_bounds(
        1e-6, scale=2.0, parties=3, sensitivity=1.4, dim=1, rounded=True
    )
    assert bounds.high >= epsilon(mass, (2,), 1e-6) - 1e-9
    without = discrete_gaussian_sum_bounds(1e-6, scale=2.0, parties=3, sensitivity=1.4, dim=1)
    assert without.high < epsilon(mass, (2,), 1e-6)
    far = discrete_gaussian_sum_bounds(
        1e-6, scale=100.0, parties=3, sensitivity=50.0, dim=400, rounded=True
    )
    ideal = gaussian_epsilon(1e-6, sigma=100 * math.sqrt(3), sensitivity=70.0)
    assert ideal <= far.high <= 1.01 * ideal
    sk = skellam_bounds(1e-6, variance=9e6, sensitivity=50.0, dim=400, rounded=True)
    assert sk.high >= gaussian_epsilon(1e-6, sigma=3000.0, sensitivity=70.0)
    assert sk.high > skellam_bounds(1e-6, variance=9e6, sensitivity=50.0, dim=400).high


def test_many_coordinates_cost_something_only_for_tiny_shares():
    big = discrete_gaussian_sum_bounds(
        1e-10, scale=2.0**20, parties=3, sensitivity=2.0**18, dim=39_000_000
    )
    assert big.high == pytest.approx(
        gaussian_epsilon(1e-10, sigma=2**20 * math.sqrt(3), sensitivity=2.0**18), rel=1e-6
    )
    small = [
        discrete_gaussian_sum_bounds(1e-6, scale=1.0, parties=3, sensitivity=1.0, dim=d).high
        for d in (1, 100, 10**6)
    ]
    assert small[0] < small[1] < small[2]
    assert (
        discrete_gaussian_sum_bounds(1e-6, scale=0.2, parties=3, sensitivity=1.0, dim=1).high
        == math.inf
    )


def log_skellam(z, variance):
    return np.log(scipy.special.ive(np.abs(z).astype(float), variance))


def exact_divergence(order, variance, shift):
    """ln Σ P^α·Q^(1−α)/(α−1) for one coordinate."""
    reach = int(14 * math.sqrt(variance)) + order * shift + 25
    reach = min(reach, int(60 + 30 * math.sqrt(variance)))
    z = np.arange(-reach, reach + 1)
    log = order * log_skellam(z, variance) + (1 - order) * log_skellam(z - shift, variance)
    log = log[np.isfinite(log)]
    return float(scipy.special.logsumexp(log)) / (order - 1)


@pytest.mark.parametrize("variance", [4.0, 25.0, 400.0])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("order", [2, 3, 8])
def test_skellam_divergence(variance, shift, order):
    exact = exact_divergence(order, variance, shift)
    bound = skellam_rdp(np.array([order]), variance=variance, l1=shift, l2=shift)
    assert exact <= bound
    if variance >= 400:
        # and no idle one
        assert skellam_rdp(np.array([order]), variance=1.1 * variance, l1=shift, l2=shift) < exact


def test_skellam_theorem_by_hand():
    """The exact divergence is mostly below the Gaussian's: this checks the second term itself."""
    first, second = skellam_rdp(np.array([2.0, 100.0]), variance=4.0, l1=1.0, l2=1.0)
    assert first == 2 / 8 + 9 / 64
    assert second == 100 / 8 + 3 / 8  # where 205/64 would be more
    assert skellam_bounds(0.5, variance=1e4, sensitivity=1.0, dim=1).high < 1e-3


@pytest.mark.parametrize("variance", [4.0, 25.0, 400.0])
def test_skellam_epsilon(variance):
    z = np.arange(-int(35 * math.sqrt(variance)), int(35 * math.sqrt(variance)) + 1)
    mass = scipy.special.ive(np.abs(z).astype(float), variance)
    for shift, delta in (((1,), 1e-3), ((1,), 1e-8), ((3,), 1e-6)):
        exact = epsilon(mass, shift, delta)
        bounds = skellam_bounds(delta, variance=variance, sensitivity=shift[0], dim=1)
        assert bounds.low <= exact <= bounds.high
        assert bounds.high < 2 * exact
    if variance == 25:
        shift = (1, 2)
        exact = epsilon(np.outer(mass, mass), shift, 1e-4)
        assert (
            exact <= skellam_bounds(1e-4, variance=25.0, sensitivity=math.hypot(*shift), dim=2).high
        )


def test_bad_arguments():
    for bad in ({"scale": 0.0}, {"parties": 0}, {"dim": 0}, {"sensitivity": -1.0}):
        with pytest.raises(UsageError):
            discrete_gaussian_sum_bounds(
                1e-6, **{"scale": 1.0, "parties": 2, "sensitivity": 1.0, "dim": 1, **bad}
            )
    for bad in ({"variance": math.nan}, {"dim": 0}, {"sensitivity": 0.0}):
        with pytest.raises(UsageError):
            skellam_bounds(1e-6, **{"variance": 1.0, "sensitivity": 1.0, "dim": 1, **bad})
    for delta in (0.0, 1.0):
        with pytest.raises(UsageError, match="delta"):
            skellam_bounds(delta, variance=1.0, sensitivity=1.0, dim=1)
