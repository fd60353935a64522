"""What the rotations say of ε, and how far a pancake's norm is from honest noise's."""

import math

import numpy as np
import pytest
import scipy.stats

from dpaudit.accounting import gaussian_epsilon
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.lattice import RoundedHost, lattice_step
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.noise.pancake import Pancake
from dpaudit_mitigations.rotation.dense import DenseRotation
from dpaudit_mitigations.rotation.fresh import Rotation
from dpaudit_mitigations.rotation.norms import norm_deviation
from dpaudit_mitigations.rotation.shared import SharedRotation
from dpaudit_mitigations.rotation.structured import StructuredRotation

DELTA, SIGMA = 1e-10, 22.4
HAAR = [Rotation(), SharedRotation(), DenseRotation()]
CHI = Rotation(renorm="chi")


@pytest.fixture(scope="module")
def host():
    return Histogram()


@pytest.mark.parametrize("mitigation", [*HAAR, StructuredRotation(), CHI])
def test_gaussian_noise_keeps_its_profile_but_for_the_lattice(mitigation, host):
    bounds = mitigation.epsilon(Gaussian(sigma=SIGMA), DELTA, host=host)
    exact = gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1.0)
    assert bounds.low < exact < bounds.high < exact * 1.001
    g = lattice_step(SIGMA)
    assert bounds.high == gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1 + g * math.sqrt(host.dim))
    assert bounds.low == gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1 - 2 * g * math.sqrt(host.dim))
    assert RoundedHost(host, g).sensitivity == 1 + g * math.sqrt(host.dim)


def test_a_coarse_lattice_leaves_no_lower_bound():
    class Near:
        dim, sensitivity = 10**6, 1e-5

    assert Rotation().epsilon(Gaussian(), DELTA, host=Near()).low == 0


@pytest.mark.parametrize("mitigation", HAAR)
def test_a_pancake_is_back_at_the_gaussian(mitigation, host, make_key):
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=SIGMA)
    assert pancake.epsilon(DELTA, host=host).low > 1e5
    bounds = mitigation.epsilon(pancake, DELTA, host=host)
    assert 0 == bounds.low < bounds.high < gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1.0) * 1.1
    assert "numerical" in bounds.says


def test_what_is_not_known_is_not_claimed(host, make_key):
    several = Pancake(key=make_key(dim=host.dim, directions=2), sigma=SIGMA)
    few = Pancake(key=make_key(dim=3), sigma=SIGMA)  # too few dimensions for the norm's density to be summed
    three = Histogram(table="uniform", bins=3)
    for mitigation in HAAR:
        for source, at in ((several, host), (few, three), (DiscreteGaussian(sigma=SIGMA), host)):
            bounds = mitigation.epsilon(source, DELTA, host=at)
            assert (bounds.low, bounds.high) == (0, math.inf)
            assert bounds.says.startswith("unknown")
    bounds = StructuredRotation().epsilon(Pancake(key=make_key(dim=host.dim)), DELTA, host=host)
    assert (bounds.low, bounds.high) == (0, math.inf)

    class Half:  # whole numbers that close are equal, so the discrete Gaussian's own ε is exactly 0; a rotation's is not
        dim, sensitivity = 1, 0.5

    assert DiscreteGaussian(sigma=3.0).epsilon(DELTA, host=Half()).high == 0
    assert Rotation().epsilon(DiscreteGaussian(sigma=3.0), DELTA, host=Half()).high == math.inf


def test_the_norm_channel_passes_all_but_chi(host, make_key):
    source = NormChannel(key=make_key(), sigma=SIGMA)
    honest = gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1.0)
    for mitigation in (*HAAR, StructuredRotation()):
        bounds = mitigation.epsilon(source, DELTA, host=host)
        assert bounds.low > 10 * honest
        assert bounds.high == math.inf
    assert CHI.epsilon(source, DELTA, host=host).high < honest * 1.001


def test_norm_deviation_against_simulation():
    """A few far-apart pancakes in few dimensions: the norm gives the pancake away, and the number says so."""
    assert norm_deviation(dim=3143, beta=1e-4, gamma=112, outside=1e-12) < 1e-9
    assert norm_deviation(dim=64, beta=1e-3, gamma=0.5, outside=1e-6) > 0.1
    assert norm_deviation(dim=3, beta=1e-3, gamma=10, outside=1e-6) == math.inf
    # independent check: ratio of histograms of simulated squared norms
    rng = np.random.default_rng(4)
    gamma, beta, d = 1.0, 1e-3, 6
    r2 = gamma**2 + beta**2
    k = np.arange(-20, 21)
    p = np.exp(-math.pi * k**2 / r2)
    c = rng.choice(k * math.sqrt(2 * math.pi) * gamma / r2, p=p / p.sum(), size=2_000_000)
    s = c**2 + rng.chisquare(d - 1, 2_000_000)
    edges = scipy.stats.chi2.ppf(np.linspace(0.05, 0.95, 19), d)
    ratio = np.histogram(s, edges)[0] / (0.05 * 2_000_000)
    assert np.abs(ratio - 1).max() <= norm_deviation(dim=d, beta=beta, gamma=gamma, outside=0.02) + 0.01
