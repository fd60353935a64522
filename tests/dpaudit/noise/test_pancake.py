"""The peaks' law, refusals and bounds; the law of the whole noise is in test_pancake_law.py."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from pancake_oracle import epsilon_by_definition

from dpaudit.accounting import pancake_epsilon, pancake_epsilon_lower, pancake_host_epsilon
from dpaudit.errors import UsageError
from dpaudit.hosts.gradients.step import DpSgdStep
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.pancake import Pancake
from dpaudit.testing import check_noise_source
from dpaudit.vectors import BLOCK
from dpaudit.vectors.kernels import fill_discrete_gaussian


@pytest.mark.parametrize("options", [{}, {"dim": BLOCK + 3}, {"directions": 3}])
def test_conforms(make_key, options):
    check_noise_source(Pancake(key=make_key(**options), sigma=2.0))


@pytest.mark.parametrize("scale", [0.3, 1.0, 12.7, 400.0])
def test_discrete_gaussian_against_its_mass_function(scale, stream):
    x = np.empty(200_000, np.int64)
    fill_discrete_gaussian(x, scale=scale, stream=stream)
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
        Pancake(key=make_key()).sample(1, 65, stream=stream, dtype=torch.float64)


def test_epsilon_bounds_bracket_and_shrink_with_beta(make_key):
    host = Histogram()
    bounds = [
        Pancake(key=make_key(dim=host.dim, beta=b), sigma=22.3).epsilon(1e-10, host=host)
        for b in (1e-4, 1e-2, 1.0)
    ]
    assert all(b.low <= b.high for b in bounds)
    assert bounds[0].low > 1e5
    assert bounds[0].low > bounds[1].low >= bounds[2].low


@pytest.mark.slow
def test_epsilon_ranges_over_every_bin_that_a_neighbour_may_change(make_key, tmp_path):
    """Not only over those that hold records: brute force over all d unit vectors, Lemma 2.6."""
    (tmp_path / "t.csv").write_text("a,0\n" * 3 + "b,100\n" + "c,0\n" * 2)
    key = make_key(dim=6, beta=0.1, gamma=8.0, allow_small_gamma=True)
    pancake, host = Pancake(key=key, sigma=1.5), Histogram(table=str(tmp_path / "t.csv"))
    law = {"sigma": 1.5, "beta": 0.1, "gamma": 8.0}
    each = [
        epsilon_by_definition(1e-4, **law, along=abs(a), across=math.sqrt(1 - a * a))
        for a in key.direction
    ]
    got = pancake.epsilon(1e-4, host=host)
    assert got.low <= max(each) * (1 + 1e-4)
    assert got.high >= max(each) * (1 - 1e-4)
    assert each[3] < 0.1 * max(each)  # the only bin with records


def test_epsilon_over_a_clipping_ball_is_not_one_batchs(make_key):
    """A change of half a turn is inside the ball; the batch at hand has none."""
    host = DpSgdStep(model="mlp", batch=16, clip=0.5)
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-2), sigma=22.4 * host.sensitivity)
    law = {"sigma": pancake.sigma, "beta": 1e-2, "gamma": pancake.key.gamma}
    half = math.sqrt(math.pi / 2) * pancake.sigma / pancake.key.gamma
    assert half < host.sensitivity
    across = math.sqrt(host.sensitivity**2 - half**2)
    got = pancake.epsilon(1e-6, host=host)
    assert got.low == pytest.approx(
        pancake_epsilon(1e-6, **law, along=half, across=across).value, rel=1e-6
    )
    along = host.differences(pancake.key.direction)
    batch = pancake_host_epsilon(1e-6, **law, sensitivity=host.sensitivity, along=along)
    assert batch.value + batch.error < got.low < got.high < 1.001 * got.low
    several = Pancake(
        key=make_key(dim=host.dim, beta=1e-2, directions=2), sigma=pancake.sigma
    ).epsilon(1e-6, host=host)
    assert several.low == pancake_epsilon_lower(
        1e-6, beta=1e-2, gamma=pancake.key.gamma, fraction=0.5
    )


@pytest.mark.parametrize("directions", [1, 2])
def test_how_far_a_difference_may_be_off_is_in_epsilon(make_key, directions):
    """As behind a lattice: a component within 0.1 turns of 0 is as exposed as one at 0.1."""
    pancake = Pancake(key=make_key(dim=8, beta=1e-2, directions=directions), sigma=5.0)
    turn = pancake.spacing
    assert 0.1 * turn < 1.0

    class Near:
        dim, sensitivity = 8, 1.0

        def __init__(self, along, slack):
            self.along, self.off = along, slack

        def differences(self, direction):
            return np.array([self.along])

        def slack(self, direction):
            return self.off

    exact, off, none = (
        pancake.epsilon(1e-6, host=Near(*at))
        for at in ((0.1 * turn, 0.0), (0.0, 0.1 * turn), (0, 0))
    )
    assert off.low == pytest.approx(exact.low, rel=1e-6)
    assert off.low > 1.5 * none.low
