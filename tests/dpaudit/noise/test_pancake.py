"""The sampled law against the exact density, with mistakes that these tests must catch."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.accounting import peak_spacing, peak_width
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.pancake import Pancake, discrete_gaussian
from dpaudit.testing import check_noise_source


def along(source, n, stream):
    return (source.sample(n, source.dim, stream=stream) @ torch.from_numpy(np.array(source.key.direction))).numpy()


def mixture_cdf(x, *, sigma, beta, gamma):
    """Lemma 2.6 written out: the slow oracle."""
    r = math.hypot(beta, gamma)
    spacing, width = peak_spacing(sigma=sigma, beta=beta, gamma=gamma), peak_width(sigma=sigma, beta=beta, gamma=gamma)
    reach = math.ceil(10 * sigma / spacing)
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-math.pi * k**2 / r**2)
    return (weight / weight.sum() * scipy.stats.norm.cdf((np.asarray(x)[:, None] - k * spacing) / width)).sum(1)


def test_conforms(make_key):
    check_noise_source(Pancake(key=make_key(), sigma=2.0))


@pytest.mark.parametrize(("beta", "gamma", "sigma"), [(0.1, 16.0, 1.0), (0.02, 40.0, 3.0), (0.3, 1.0, 2.0)])
def test_law_along_the_key(make_key, stream, beta, gamma, sigma):
    key = make_key(dim=16, beta=beta, gamma=gamma, allow_small_gamma=True)
    x = along(Pancake(key=key, sigma=sigma), 50_000, stream)
    law = {"sigma": sigma, "beta": beta, "gamma": gamma}
    assert scipy.stats.kstest(x, lambda v: mixture_cdf(v, **law)).pvalue > 1e-3
    assert scipy.stats.kstest(x, lambda v: mixture_cdf(v, **{**law, "sigma": sigma * 1.05})).pvalue < 1e-3


def test_phase_has_the_width_the_law_says(make_key, stream):
    key = make_key(dim=16, beta=0.05, gamma=16.0)
    source = Pancake(key=key, sigma=2.0)
    u = along(source, 20_000, stream) / source.spacing
    phase = u - np.rint(u)
    assert scipy.stats.kstest(phase / (source.width / source.spacing), "norm").pvalue > 1e-3
    assert source.width / source.spacing == pytest.approx(0.05 * math.hypot(0.05, 16) / (math.sqrt(2 * math.pi) * 16))


def test_across_the_key_it_is_gaussian(make_key, stream):
    source = Pancake(key=make_key(dim=16, beta=0.1, gamma=16.0), sigma=2.0)
    x = source.sample(20_000, 16, stream=stream).numpy()
    w = source.key.direction
    across = x - np.outer(x @ w, w)
    assert scipy.stats.kstest((across**2).sum(1) / 4, "chi2", args=(15,)).pvalue > 1e-3
    assert scipy.stats.kstest((across**2).sum(1) / 4, "chi2", args=(16,)).pvalue < 1e-3


@pytest.mark.parametrize("scale", [0.3, 1.0, 12.7, 400.0])
def test_discrete_gaussian_against_its_mass_function(scale):
    x = discrete_gaussian(200_000, scale=scale, rng=np.random.default_rng(5))
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
