"""The price of a lattice, compared with exact laws at scales that can be summed."""

import math

import mpmath
import pytest

from dpaudit.accounting import gaussian_delta, lattice_slack
from dpaudit.accounting.discrete import discrete_gaussian_delta
from dpaudit.errors import UsageError


def divergence(s):
    """KL of the discrete Gaussian from the rounded continuous one, in 40 digits."""
    with mpmath.workdps(40):
        s = mpmath.mpf(s)
        reach = range(-int(14 * s) - 14, int(14 * s) + 15)
        mass = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in reach]
        total, found = mpmath.fsum(mass), mpmath.mpf(0)
        for k, p in zip(reach, mass, strict=True):
            a = abs(k)  # the tails without cancellation
            near = mpmath.erfc((a - mpmath.mpf("0.5")) / (s * mpmath.sqrt(2)))
            far = mpmath.erfc((a + mpmath.mpf("0.5")) / (s * mpmath.sqrt(2)))
            found += p / total * mpmath.log(p / total / ((near - far) / 2))
        return float(found)


@pytest.mark.parametrize("s", [1, 1.5, 2, 3.7, 6])
def test_the_distance_of_one_number_is_within_the_bound_and_not_far_below(s):
    eta = lattice_slack(1.0, dim=1, steps=1, scale=s).total_variation
    bound = 2 * eta**2  # κ
    assert bound == pytest.approx(1 / (300 * s**4))
    exact = divergence(s)
    assert exact < bound < 2.5 * exact
    assert exact == pytest.approx(1 / (576 * s**4), rel=0.15 / s)  # the leading term


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("s", "moves"), [(4, 5), (9, 9), (20, 10)])
def test_one_release_is_as_private_as_stated(epsilon, s, moves):
    # a record moves the query by `moves` lattice steps, and after rounding by one more at worst
    exact = discrete_gaussian_delta(epsilon, scale=s, shift=moves + 1)
    slack = lattice_slack(s / moves, dim=1, steps=1, scale=s)
    assert slack.noise_multiplier == pytest.approx(s / (moves + 1))
    at = gaussian_delta(epsilon, sigma=slack.noise_multiplier, sensitivity=1.0)
    assert exact <= slack.delta(epsilon, delta=at)
    # without the rounding it would not hold
    assert exact > 1.05 * gaussian_delta(epsilon, sigma=s / moves, sensitivity=1.0)


def test_it_grows_with_dimension_and_steps():
    one = lattice_slack(2.0, dim=10**6, steps=100)
    more = lattice_slack(2.0, dim=4 * 10**6, steps=100)
    longer = lattice_slack(2.0, dim=10**6, steps=400)
    assert more.total_variation == pytest.approx(2 * one.total_variation)
    assert longer.total_variation == pytest.approx(2 * one.total_variation)
    assert longer.noise_multiplier == one.noise_multiplier
    assert 1 / more.noise_multiplier - 1 / 2 == pytest.approx(2 * 1000 / 2**24)
    assert one.delta(700.0, delta=0.0) == 1.0


def test_what_it_refuses():
    for options in ({"dim": 0}, {"steps": 0}, {"scale": 0.5}, {"scale": math.inf}):
        with pytest.raises(UsageError, match=f"{next(iter(options))}="):
            lattice_slack(1.0, **{"dim": 1, "steps": 1, **options})
    with pytest.raises(UsageError, match="noise_multiplier="):
        lattice_slack(0.0, dim=1, steps=1)
