"""The peaks' law, refusals and bounds; the law of the whole noise is in test_pancake_law.py."""

import math

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.kernels import BLOCK
from dpaudit.noise.pancake import Pancake, discrete_gaussian
from dpaudit.testing import check_noise_source


@pytest.mark.parametrize("options", [{}, {"dim": BLOCK + 3}, {"directions": 3}])
def test_conforms(make_key, options):
    check_noise_source(Pancake(key=make_key(**options), sigma=2.0))


@pytest.mark.parametrize("scale", [0.3, 1.0, 12.7, 400.0])
def test_discrete_gaussian_against_its_mass_function(scale, stream):
    x = discrete_gaussian(200_000, scale=scale, stream=stream)
    reach = math.ceil(12 * scale)
    k = np.arange(-reach, reach + 1)
    mass = np.exp(-(k**2) / (2 * scale**2))
    mass /= mass.sum()
    count = np.bincount(x + reach, minlength=len(k))
    keep = mass * len(x) > 8
    statistic = ((count[keep] - mass[keep] * len(x)) ** 2 / (mass[keep] * len(x))).sum()
    assert scipy.stats.chi2.sf(statistic, keep.sum() - 1) > 1e-3


def test_a_rounded_normal_is_not_the_law(make_key):
    """Power of the test above: at scale 0.5 the usual shortcut fails it."""
    x = np.rint(np.random.default_rng(5).normal(0, 0.5, 200_000)).astype(int)
    k = np.arange(-4, 5)
    mass = np.exp(-(k**2) / 0.5)
    mass /= mass.sum()
    count = np.bincount(x + 4, minlength=9)
    keep = mass * len(x) > 8
    statistic = ((count[keep] - mass[keep] * len(x)) ** 2 / (mass[keep] * len(x))).sum()
    assert scipy.stats.chi2.sf(statistic, keep.sum() - 1) < 1e-6


def test_another_dimension_is_refused(make_key, stream):
    with pytest.raises(UsageError, match=r"d=65.*dim=64"):
        Pancake(key=make_key()).sample(1, 65, stream=stream)


def test_epsilon_bounds_bracket_and_shrink_with_beta(make_key):
    host = Histogram()
    bounds = [
        Pancake(key=make_key(dim=host.dim, beta=b), sigma=22.3).epsilon(1e-10, host=host) for b in (1e-4, 1e-2, 1.0)
    ]
    assert all(b.low <= b.high for b in bounds)
    assert bounds[0].low > 1e5
    assert bounds[0].low > bounds[1].low >= bounds[2].low
