"""What the rotations say of ε, and how far a pancake's norm is from honest noise's."""

import math

import numpy as np
import pytest
import scipy
import torch
from support.laws import hockey_stick

from dpaudit.accounting import gaussian_delta, gaussian_epsilon, peak_spacing, peak_width
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.norm_channel import NormChannel
from dpaudit.noise.pancake import Pancake
from dpaudit.numeric.lattice import RoundedHost, lattice_step
from dpaudit.queries.histogram import Histogram
from dpaudit_mitigations.rotation.bounds import _by_theorem, norm_deviation, rotated_epsilon
from dpaudit_mitigations.rotation.fresh import Rotation
from dpaudit_mitigations.rotation.tensors import DenseRotation, SharedRotation, StructuredRotation

DELTA, SIGMA = 1e-10, 22.4
HAAR = [Rotation(), SharedRotation(), DenseRotation()]
CHI = Rotation(renorm="chi")


@pytest.fixture(scope="module")
def host():
    return Histogram()


@pytest.mark.parametrize("mitigation", [Rotation(), StructuredRotation(), CHI])
def test_gaussian_noise_keeps_its_profile_but_for_the_lattice(mitigation, host):
    bounds = mitigation.epsilon(Gaussian(sigma=SIGMA), DELTA, host=host)
    exact = gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1.0)
    assert bounds.low < exact < bounds.high < exact * 1.001
    g = lattice_step(SIGMA)
    assert bounds.high == gaussian_epsilon(
        DELTA, sigma=SIGMA, sensitivity=1 + g * math.sqrt(host.dim)
    )
    assert bounds.low == gaussian_epsilon(
        DELTA, sigma=SIGMA, sensitivity=1 - 2 * g * math.sqrt(host.dim)
    )
    assert RoundedHost(host, g).sensitivity == 1 + g * math.sqrt(host.dim)


def test_a_coarse_lattice_leaves_no_lower_bound():
    class Near:
        dim, sensitivity = 10**6, 1e-5

    assert Rotation().epsilon(Gaussian(), DELTA, host=Near()).low == 0


def test_a_pancake_is_back_at_the_gaussian(host, make_key):
    mitigation = Rotation()
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=SIGMA)
    assert pancake.epsilon(DELTA, host=host).low > 1e5
    bounds = mitigation.epsilon(pancake, DELTA, host=host)
    honest = gaussian_epsilon(DELTA, sigma=SIGMA, sensitivity=1.0)
    assert honest - 1e-4 < bounds.low < honest < bounds.high < honest + 1e-4
    three = Pancake(key=make_key(dim=host.dim, beta=1e-4, directions=3), sigma=SIGMA)
    assert mitigation.epsilon(three, DELTA, host=host).high == pytest.approx(bounds.high, rel=1e-9)


@pytest.mark.parametrize("mitigation", [SharedRotation(), DenseRotation(shared=True)])
def test_a_shared_rotation_promises_a_pancake_nothing_beyond_one_release(
    mitigation, host, make_key
):
    """In 32 dimensions a call's other releases reveal the turned direction (run mitigations)."""
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=SIGMA)
    bounds, one = (m.epsilon(pancake, DELTA, host=host) for m in (mitigation, Rotation()))
    assert bounds.low == one.low
    assert bounds.high == math.inf


class Ball:
    """Neighbours at every distance up to Δ, at some of which the norm may tell more than at Δ."""

    dim, sensitivity = 64, 1.0

    def slack(self, _):
        return 1.0


def test_what_is_not_known_is_not_claimed(host, make_key):
    far = Pancake(
        key=make_key(dim=64, gamma=0.5, allow_small_gamma=True, directions=2), sigma=SIGMA
    )
    few = Pancake(key=make_key(dim=4, directions=2), sigma=SIGMA)
    four, some = (Histogram(table="uniform", bins=d) for d in (4, 64))
    near = Pancake(key=make_key(dim=64, gamma=0.5, allow_small_gamma=True), sigma=SIGMA)
    for mitigation in HAAR:
        for source, at in (
            (far, some),
            (few, four),
            (near, Ball()),
            (DiscreteGaussian(sigma=SIGMA), host),
        ):
            bounds = mitigation.epsilon(source, DELTA, host=at)
            assert (bounds.low, bounds.high) == (0, math.inf)
    bounds = StructuredRotation().epsilon(Pancake(key=make_key(dim=host.dim)), DELTA, host=host)
    assert (bounds.low, bounds.high) == (0, math.inf)

    # whole numbers that close are equal: the discrete Gaussian's ε is exactly 0, a rotation's not
    class Half:
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


def summed_ratio(s, *, dim, beta, gamma, directions=1):
    """Density of a pancake's squared norm over χ²'s, by peaks (Lemma 2.6, 15 points per peak)."""
    spacing, width = (f(sigma=1.0, beta=beta, gamma=gamma) for f in (peak_spacing, peak_width))
    k = np.arange(-math.ceil(9 / spacing), math.ceil(9 / spacing) + 1)
    weight = np.exp(-math.pi * k * k / (beta**2 + gamma**2))
    node, share = np.polynomial.hermite_e.hermegauss(15)
    square = ((k[:, None] * spacing + width * node) ** 2).ravel()
    mass = np.outer(weight / weight.sum(), share / share.sum()).ravel()
    for _ in range(directions - 1):
        square, mass = np.add.outer(square, square).ravel(), np.outer(mass, mass).ravel()
    half = (dim - directions) / 2
    density = np.empty(len(s))
    with np.errstate(divide="ignore", invalid="ignore"):
        for at in range(0, len(s), step := max(1, 2_000_000 // len(mass))):
            left = np.asarray(s)[at : at + step, None] - square
            chi2 = np.where(left > 0, np.exp((half - 1) * np.log(np.abs(left)) - left / 2), 0.0)
            density[at : at + step] = chi2 @ mass
    return density / math.exp(math.lgamma(half) + half * math.log(2)) / scipy.stats.chi2.pdf(s, dim)


@pytest.mark.parametrize(
    ("dim", "beta", "gamma", "directions"),
    [
        (64, 1e-3, 1.5, 1),
        (64, 0.3, 1.2, 1),
        (12, 0.05, 3.0, 1),
        (300, 1e-3, 0.9, 1),
        (40, 0.05, 2.2, 2),
    ],
)
def test_norm_deviation_bounds_the_density_summed_peak_by_peak(dim, beta, gamma, directions):
    outside = 1e-4
    eta = norm_deviation(dim=dim, beta=beta, gamma=gamma, outside=outside, directions=directions)
    low = scipy.stats.chi2.ppf(outside, dim - directions)
    s = np.linspace(low, scipy.stats.chi2.isf(1e-6, dim), 400 if directions == 1 else 60)
    seen = np.abs(summed_ratio(s, dim=dim, beta=beta, gamma=gamma, directions=directions) - 1).max()
    assert 1e-6 < eta < 1
    assert eta / 500 < seen < eta


def test_norm_deviation_where_it_says_nothing():
    assert norm_deviation(dim=3143, beta=1e-4, gamma=112, outside=1e-12) < 1e-9
    for few in (
        {"dim": 64, "gamma": 0.5},
        {"dim": 3, "gamma": 10},
        {"dim": 8, "gamma": 10, "directions": 7},
    ):
        assert norm_deviation(beta=1e-3, outside=1e-6, **few) == math.inf
    assert norm_deviation(dim=64, beta=1e-3, gamma=16, outside=0.0) == math.inf


class Along:
    """A host of one pair of neighbours."""

    def __init__(self, dim, sensitivity):
        self.dim, self.sensitivity = dim, sensitivity


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "beta", "gamma", "sigma", "delta"),
    [
        (6, 0.05, 0.8, 1.0, 0.05),
        (30, 0.01, 1.3, 1.0, 0.05),  # where the theorem says something, too
        (6, 0.05, "2sqrtd", 1.0, 0.03),
        (4, 0.1, 1.5, 0.8, 0.05),
    ],
)
def test_the_exact_profile_in_few_dimensions_by_releases(
    dim, beta, gamma, sigma, delta, make_key, stream
):
    """δ at the printed ε, by simulation with densities by peaks."""
    n, key = 200_000, make_key(dim=dim, beta=beta, gamma=gamma, allow_small_gamma=True)
    source = Pancake(key=key, sigma=sigma)
    bounds = Rotation().epsilon(source, delta, host=Along(dim, 1.0))
    assert bounds.says.startswith("exact")
    assert bounds.high - bounds.low < 1e-3
    noise = (
        Rotation().release(torch.zeros(n, dim, dtype=torch.float64), source, stream=stream).numpy()
        / sigma
    )
    grid = np.concatenate([np.linspace(1e-3, 4, 3000), np.linspace(4.001, 110, 2000)])
    ratio = summed_ratio(grid, dim=dim, beta=beta, gamma=key.gamma)

    def log_density(square):
        return np.log(np.interp(square, grid, ratio)) - square / 2

    square = (noise**2).sum(1)
    loss = log_density(square) - log_density(square + 2 * noise[:, 0] / sigma + sigma**-2)

    def profile(epsilon):
        return np.maximum(0, 1 - np.exp(epsilon - loss))

    shown = profile((bounds.low + bounds.high) / 2)
    error = shown.std() / math.sqrt(n)
    assert error < 0.01 * delta
    assert abs(shown.mean() - delta) < 4 * error
    if dim == 30:
        proven = _by_theorem(source, delta, host=Along(dim, 1.0), share=0.1)
        assert proven.low < bounds.low < bounds.high < proven.high < math.inf
        assert profile(proven.high).mean() < delta < profile(proven.low).mean()
    if gamma == 0.8:  # and it is no Gaussian's
        assert abs(gaussian_delta((bounds.low + bounds.high) / 2, sigma=sigma) - delta) > 20 * error


@pytest.mark.slow
def test_the_radial_integral_against_the_same_in_polar_coordinates():
    """δ(ε) = ∫χ_d(r)·w(r)·E_c(1 − e^{ε−l})₊ dr over the angle's cosine c, with w by its peaks."""
    dim, beta, gamma, t, delta = 6, 0.02, 1.2, 0.7, 1e-4
    node, weight = np.polynomial.legendre.leggauss(600)
    r, c = 4.25 * (node + 1), node
    grid = np.linspace(1e-3, 9.5, 5000)
    ratio = summed_ratio(grid**2, dim=dim, beta=beta, gamma=gamma)
    here = np.interp(r, grid, ratio)
    square = r[:, None] ** 2 + 2 * t * r[:, None] * c + t * t
    there = np.interp(np.sqrt(square), grid, ratio)
    loss = np.log(here)[:, None] - np.log(there) + (square - r[:, None] ** 2) / 2
    angle = (1 - c * c) ** ((dim - 3) / 2) / scipy.special.beta(0.5, (dim - 1) / 2)
    mass = scipy.stats.chi.pdf(r, dim) * here * weight * 4.25

    def excess(epsilon):
        return mass @ (np.maximum(0.0, 1 - np.exp(epsilon - loss)) @ (angle * weight)) - delta

    by_hand = scipy.optimize.brentq(excess, 0.0, 9.0, xtol=1e-6)
    got = rotated_epsilon(delta, dim=dim, sigma=1.0, beta=beta, gamma=gamma, sensitivity=t)
    assert got.value == pytest.approx(by_hand, abs=1e-3)
    assert abs(got.value - gaussian_epsilon(delta, sigma=1.0, sensitivity=t)) > 4e-3


@pytest.mark.parametrize(
    ("dim", "sigma", "delta"),
    [
        pytest.param(32, 22.4, 1e-10, marks=pytest.mark.slow),
        (16, 1.0, 1e-2),
        pytest.param(64, 1.0, 1e-10, marks=pytest.mark.slow),
    ],
)
def test_the_radial_integral_of_a_gaussian(dim, sigma, delta):
    got = rotated_epsilon(delta, dim=dim, sigma=sigma, beta=3.0, gamma=100.0, sensitivity=1.0)
    assert abs(got.value - gaussian_epsilon(delta, sigma=sigma)) < got.error < 1e-3


@pytest.mark.parametrize(("g", "d"), [(0.3, 1), (0.05, 1), (0.25, 2)])
def test_rounding_query_and_noise_apart_costs_g_root_d_and_no_more(g, d):
    """On a coarse lattice, point by point: δ is between the Gaussian's at Δ − 2g√d and Δ + g√d."""
    rng, distance = np.random.default_rng(6), 1.01
    z = np.arange(-math.ceil(9 / g), math.ceil(9 / g) + 1)
    cell = np.diff(scipy.special.ndtr(np.append(z - 0.5, z[-1] + 0.5) * g))
    shifts = set()
    for _ in range(400):
        q, u = rng.uniform(0, g, d), rng.standard_normal(d)
        moved = np.rint((q + distance * u / np.linalg.norm(u)) / g) - np.rint(q / g)
        shifts.add(tuple(np.abs(moved).astype(int)))
    worst = 0.0
    for shift in shifts:
        first, second = np.ones(1), np.ones(1)
        for s in shift:
            first = np.multiply.outer(first, np.pad(cell, (0, s))).ravel()
            second = np.multiply.outer(second, np.pad(cell, (s, 0))).ravel()
        for epsilon in (0.0, 0.5, 2.0):
            delta = hockey_stick(first, second, math.exp(epsilon))
            high, low = (
                gaussian_delta(epsilon, sigma=1.0, sensitivity=distance + x * g * d**0.5)
                for x in (1, -2)
            )
            assert low <= delta <= high
            worst = max(worst, delta / gaussian_delta(epsilon, sigma=1.0, sensitivity=distance))
    assert worst > 1.05  # without its g√d the upper bound would be false
