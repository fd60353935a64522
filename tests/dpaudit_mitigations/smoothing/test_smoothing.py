"""Smoothing: options, cost, the release on a lattice, ε, PROOF.md line by line, carried seeds."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy
import torch

from dpaudit import registry
from dpaudit.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    pancake_delta,
    pancake_epsilon,
    peak_spacing,
    peak_width,
    smoothed_pancake,
    smoothing_epsilon,
    smoothing_eta,
    smoothing_ratio,
    smoothing_tau_at_ratio,
)
from dpaudit.errors import UsageError
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.numeric.exact_integers import IntegerLaw, draw_integers
from dpaudit.numeric.lattice import RoundedHost, lattice_step
from dpaudit.protocols import Mitigation
from dpaudit.queries.histogram import Histogram
from dpaudit.stats import clopper_pearson
from dpaudit.types import EpsilonBounds
from dpaudit_attacks.seed_reader import SeedReader
from dpaudit_mitigations.smoothing.own_noise import seeded_low
from dpaudit_mitigations.smoothing.smoothing import Smoothing

DELTA = 1e-10


def test_tau_as_stated_or_as_asked_for():
    assert Smoothing(tau=0.3).scale(2.0) == pytest.approx(2 * math.sqrt(1.09))
    auto = Smoothing(gamma_min=112.0)
    assert smoothing_eta(tau=auto.tau, sigma=1, beta=1e-9, gamma=112.0) == pytest.approx(
        1e-6, rel=1e-6
    )
    assert Smoothing(gamma_min=112.0, eta=1e-9).tau > auto.tau
    assert Smoothing(dim=256).tau == Smoothing(gamma_min=32.0).tau
    for_gamma = Smoothing(gamma_min=32.0, dim=7, ratio=1.5)  # dim is offered to it by whoever knows
    assert for_gamma.tau == Smoothing(ratio=1.5, dim=256).tau == pytest.approx(0.1183, abs=1e-4)
    made = registry.create("mitigations", "smoothing:ratio=1.5,dim=256,own=secure")
    assert isinstance(made, Mitigation)
    assert (made.own, made.tau) == ("secure", for_gamma.tau)


def test_the_l2_error_at_r_of_one_and_a_half():
    for dim in (24, 25, 64, 256, 4096, 61_706, 39_000_000):
        for gamma in (2 * math.sqrt(dim), 20 * math.sqrt(dim)):
            factor = Smoothing(gamma_min=gamma, ratio=1.5).l2_factor
            assert 1 < factor <= min(1 + 2 / dim, math.sqrt(2))  # below two servers'
        assert Smoothing(dim=dim, ratio=1.5).l2_factor > 1 + 1.7 / dim


def test_both_noises_are_rounded_once_and_together(stream):
    """Bit for bit: K + round((v + n)/g). Rounding each by itself would be another release."""
    m, source = Smoothing(tau=0.3), Gaussian(sigma=3.0)
    query = torch.from_numpy(stream.child("q").numpy().standard_normal((20, 50)))
    got = m.release(query, source, stream=stream)
    step = lattice_step(3.0)
    v = source.sample(20, 50, stream=stream.child("source"), dtype=torch.float64)
    n = Gaussian(sigma=0.3 * 3.0).sample(20, 50, stream=stream.child("own"), dtype=torch.float64)
    assert torch.equal(got, ((query / step).round() + ((v + n) / step).round()) * step)
    assert not torch.equal(
        got, ((query / step).round() + (v / step).round() + (n / step).round()) * step
    )


def test_secure_noise_is_the_exact_discrete_gaussian(stream):
    m, source = Smoothing(tau=0.3, own="secure"), Gaussian(sigma=3.0)
    query, step = torch.full((20, 50), math.pi, dtype=torch.float64), lattice_step(3.0)
    got = (m.release(query, source, stream=stream) / step).numpy().ravel()
    v = source.sample(20, 50, stream=stream.child("source")).ravel()
    exact = draw_integers(1000, IntegerLaw.gaussian(0.3 * 3.0 / step), stream=stream.child("own"))
    assert np.array_equal(got, np.rint(math.pi / step) + np.rint(v / step) + exact)


def test_narrow_dtypes_are_rounded_at_the_end(stream):
    """Rounding the source's noise to bfloat16 first leaves steps of 2^-8, which τ = 1e-3 shows."""
    m, query = Smoothing(tau=1e-3), torch.zeros(4, 300, dtype=torch.bfloat16)
    got = m.release(query, Gaussian(), stream=stream)
    wide = m.release(query.float(), Gaussian(), stream=stream)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, wide.to(torch.bfloat16))


@pytest.fixture
def host():
    return Histogram()


@dataclass
class OneNeighbour:
    """A host whose one difference lies along a direction: the worst case for a key there."""

    dim: int
    along: float
    sensitivity: float = 1.0

    def neighbours(self, n, *, stream):
        raise NotImplementedError

    def differences(self, direction):
        return np.array([self.along])


@pytest.mark.parametrize("own", ["fast", "secure"])
def test_the_key_holder_learns_what_a_gaussian_tells(own, host, make_key):
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    assert pancake.epsilon(DELTA, host=host).low > 1e5
    m = Smoothing(dim=host.dim, own=own)
    got = m.epsilon(pancake, DELTA, host=host)
    honest = gaussian_epsilon(DELTA, sigma=m.scale(22.4))
    assert honest - 1e-4 < got.low < honest < got.high < honest + 1e-4
    assert "smoothing theorem" in got.says
    # by hand, from the theorem
    eta = smoothing_eta(tau=m.tau, sigma=1.0, beta=1e-4, gamma=pancake.key.gamma)
    base = gaussian_epsilon(
        DELTA / (1 + eta),
        sigma=m.scale(22.4),
        sensitivity=1 + lattice_step(22.4) * math.sqrt(host.dim),
    )
    assert got.high == pytest.approx(base + math.log((1 + eta) / (1 - eta)), rel=1e-12)


def test_several_directions_multiply(make_key):
    host = OneNeighbour(dim=64, along=0.1)
    one, three = (
        Smoothing(dim=64, eta=0.01).epsilon(Pancake(key=make_key(directions=k)), DELTA, host=host)
        for k in (1, 3)
    )
    m, eta = Smoothing(dim=64, eta=0.01), 0.01
    for k, got in ((1, one), (3, three)):
        base = gaussian_epsilon(DELTA / (1 + eta) ** k, sigma=m.scale(1.0))
        assert got.high == pytest.approx(base + k * math.log((1 + eta) / (1 - eta)), abs=2e-4)
    secure, three = Smoothing(dim=64, own="secure"), Pancake(key=make_key(directions=3))
    assert "alone" in secure.epsilon(three, DELTA, host=host).says


@pytest.mark.slow
def test_too_little_smoothing_says_own_noise_alone(host, make_key):
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    got = Smoothing(tau=1e-4).epsilon(pancake, DELTA, host=host)
    alone = gaussian_epsilon(
        DELTA, sigma=22.4e-4, sensitivity=RoundedHost(host, lattice_step(22.4)).sensitivity
    )
    assert got.high == pytest.approx(alone)
    assert "own noise alone" in got.says
    assert "unknown" in got.says
    assert 100 < got.low < got.high


@pytest.mark.slow
def test_peaks_narrower_than_the_lattice_give_no_lower_bound(host, make_key):
    """Before the lattice ε is above 10^14; but rounding blurs such peaks to about 10^4 widths."""
    narrow = Pancake(key=make_key(dim=host.dim, beta=1e-9), sigma=22.4)
    assert Smoothing(tau=1e-12).epsilon(narrow, DELTA, host=host).low == 0
    assert Smoothing(tau=1e-6).epsilon(narrow, DELTA, host=host).low > 1e6


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_a_small_gamma_leaves_own_noise_alone(gamma, make_key):
    """The adaptive attacker: smoothing for γ ≥ 2√d, pancakes far apart."""
    source = Pancake(key=make_key(beta=1e-4, gamma=gamma, allow_small_gamma=True), sigma=5.0)
    host = OneNeighbour(dim=64, along=0.9)
    m = Smoothing(dim=64, ratio=1.5)
    got = m.epsilon(source, DELTA, host=host)
    assert "own noise alone" in got.says
    assert got.high == pytest.approx(gaussian_epsilon(DELTA, sigma=5.0 * m.tau), rel=1e-4)
    honest = gaussian_epsilon(DELTA, sigma=m.scale(5.0))
    assert got.low > honest + 1
    assert (
        Smoothing(tau=1.0).epsilon(source, DELTA, host=host).high
        <= gaussian_epsilon(DELTA, sigma=5.0) * 1.001
    )


def test_narrow_pancakes_on_a_lattice_are_not_claimed(make_key):
    host = OneNeighbour(dim=64, along=0.1)
    secure, fast = (Smoothing(dim=64, own=own) for own in ("secure", "fast"))
    narrow = Pancake(key=make_key(beta=1e-7))
    assert "alone" in secure.epsilon(narrow, DELTA, host=host).says
    assert "theorem" in fast.epsilon(narrow, DELTA, host=host).says
    assert "theorem" in secure.epsilon(Pancake(key=make_key(beta=1e-4)), DELTA, host=host).says


@dataclass
class Lying:
    """Zeros that call themselves Gaussian."""

    sigma: float = 1.0
    dim: int | None = None
    claim: str = "gaussian:sigma=1.0"

    def sample(self, n, d, **_):
        return torch.zeros(n, d, dtype=torch.float64)

    def epsilon(self, delta, *, host):
        return EpsilonBounds(low=math.inf, high=math.inf, says="nothing")


@pytest.mark.parametrize("own", ["fast", "secure"])
def test_whatever_the_source_own_noise_remains(own, stream):
    m, zeros = Smoothing(tau=0.5, own=own), torch.zeros(50, 400, dtype=torch.float64)
    got = m.epsilon(Lying(), DELTA, host=Histogram())
    assert got.high == pytest.approx(gaussian_epsilon(DELTA, sigma=0.5), rel=1e-4)
    noise = m.release(zeros, Lying(), stream=stream).numpy().ravel()
    assert scipy.stats.kstest(noise / 0.5, "norm").pvalue > 1e-3


def test_honest_sources_keep_what_they_have(host):
    m = Smoothing(tau=0.3)
    exact = gaussian_epsilon(DELTA, sigma=m.scale(22.4))
    got = m.epsilon(Gaussian(sigma=22.4), DELTA, host=host)
    assert exact - 1e-4 < got.low < exact < got.high < exact + 1e-4
    own = SecureGaussian(sigma=22.4).epsilon(DELTA, host=host)
    assert m.epsilon(SecureGaussian(sigma=22.4), DELTA, host=host).high == own.high
    # on another lattice the query's bits in between are not covered by the source's noise
    for other in (SecureGaussian(sigma=22.4, granularity=0.25), DiscreteGaussian(sigma=22.4)):
        assert "alone" in m.epsilon(other, DELTA, host=host).says


def test_the_lower_bound_is_one(make_key):
    """low < ε: the smoothed pancake's exact profile lies between them, at a visible η."""
    key = make_key(beta=1e-4)
    m = Smoothing(tau=0.06)
    host = OneNeighbour(dim=64, along=0.5 * math.sqrt(2 * math.pi) / key.gamma)
    got = m.epsilon(Pancake(key=key), 1e-6, host=host)
    sigma, beta, gamma = smoothed_pancake(m.tau, sigma=1.0, beta=key.beta, gamma=key.gamma)
    across = math.sqrt(1 - host.along**2)
    exact = pancake_epsilon(
        1e-6, sigma=sigma, beta=beta, gamma=gamma, along=host.along, across=across
    )
    assert got.low < exact.value < got.high < got.low + 0.6
    assert exact.value > gaussian_epsilon(1e-6, sigma=sigma) + 0.01
    eta = smoothing_eta(tau=m.tau, sigma=1.0, beta=key.beta, gamma=key.gamma)
    by_hand = gaussian_epsilon(1e-6 / (1 - eta), sigma=sigma) - math.log((1 + eta) / (1 - eta))
    assert got.low == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.slow
def test_smoothing_takes_nothing_away_that_the_source_gave(make_key):
    """Beyond the theorem, own noise is still post-processing: never worse than the source."""
    source = Pancake(key=make_key(dim=64, beta=0.5, gamma=0.5, allow_small_gamma=True), sigma=3.0)
    host = Histogram(table="uniform", bins=64)
    own = source.epsilon(1e-6, host=host)
    behind = Smoothing(tau=0.001).epsilon(source, 1e-6, host=host)
    # at γ = 0.5 the bound on phases that the lattice may shift is loose
    assert behind.high <= own.high * 1.02
    assert "post-processed" in behind.says


CASES = [
    (beta, gamma, tau)
    for beta, gamma, tau in itertools.product(
        (1e-4, 0.5), (1.0, 3.0, 8.0, 32.0), (0.03, 0.04, 0.08, 0.2, 0.5, 1.0)
    )
    if smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma) < 1
]


def peaks(*, beta, gamma, sigma=1.0):
    """Places and weights of the pancakes, summed as Lemma 2.6 has them."""
    r = math.hypot(beta, gamma)
    k = np.arange(-math.ceil(6 * r) - 6, math.ceil(6 * r) + 7)
    weight = np.exp(-math.pi * k**2 / r**2)
    return k * peak_spacing(sigma=sigma, beta=beta, gamma=gamma), weight / weight.sum()


def test_the_ratio_is_a_width_in_spacings():
    for beta, gamma, tau in CASES:
        law = {"sigma": 2.0, "beta": beta, "gamma": gamma}
        width = math.hypot(peak_width(**law), 2 * tau)
        spacing = peak_spacing(**law) * math.hypot(beta, gamma) / (2 * gamma)
        by_hand = width / spacing / (2 * math.hypot(1, tau))
        assert smoothing_ratio(tau=2 * tau, **law) == pytest.approx(by_hand, rel=1e-12)


@pytest.fixture(scope="module")
def against_the_profile():
    """(η, exact δ at the theorem's ε, its δ, exact δ at the plain ε, the Gaussian's) by case."""
    rows = []
    for beta, gamma, tau in CASES:
        eta = smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma)
        sigma, wide, narrow = smoothed_pancake(tau, sigma=1.0, beta=beta, gamma=gamma)
        period = math.sqrt(2 * math.pi) * sigma / narrow
        for turns, distance, epsilon in itertools.product((0.5, 0.27), (1.0,), (0.0, 1.0)):
            along = turns * period
            if along > distance:
                continue
            shift = {"along": along, "across": math.sqrt(distance**2 - along**2)}
            exact, plain = (
                pancake_delta(e, sigma=sigma, beta=wide, gamma=narrow, **shift)
                for e in (epsilon + smoothing_epsilon(eta), epsilon)
            )
            gauss = gaussian_delta(epsilon, sigma=sigma, sensitivity=distance)
            low, bare = (x.value - x.error for x in (exact, plain))
            rows.append((eta, low, (1 + eta) * gauss, bare, gauss))
    return np.array(rows)


@pytest.mark.slow
def test_the_exact_profile_never_exceeds_the_theorem(against_the_profile):
    _, exact, promised, _, _ = against_the_profile.T
    assert len(exact) > 60
    assert (exact <= promised * (1 + 1e-11) + 1e-15).all()


@pytest.mark.slow
def test_the_theorem_is_needed_and_nearly_tight(against_the_profile):
    eta, exact, promised, plain, gauss = against_the_profile.T
    # without its ln((1+η)/(1−η)) and 1 + η it would be false
    assert (plain > gauss * 1.01).sum() > 10
    wide = eta > 1e-2
    assert (exact[wide] / promised[wide]).max() > 0.9


@pytest.mark.slow
def test_a_factor_of_two_in_eta_would_be_seen():
    """Half the logarithm is too little: half a turn along the key the exact profile exceeds it."""
    law = {"sigma": 1.0, "beta": 1e-4, "gamma": 32.0}
    eta = smoothing_eta(tau=0.03, **law)
    sigma, wide, narrow = smoothed_pancake(0.03, **law)
    period = math.sqrt(2 * math.pi) * sigma / narrow
    shift = {"along": period / 2, "across": 0.0}
    tiny = gaussian_delta(0.1, sigma=sigma, sensitivity=period / 2)
    whole, half = (
        pancake_delta(
            0.1 + part * smoothing_epsilon(eta), sigma=sigma, beta=wide, gamma=narrow, **shift
        )
        for part in (1, 0.5)
    )
    assert whole.value <= (1 + eta) * tiny
    assert half.value > 2 * tiny


def test_tau_at_a_ratio_is_the_least_for_every_beta():
    for ratio_, gamma in itertools.product((0.5, 1.5, 2.0), (8.0, 32.0, 5e3)):
        tau = smoothing_tau_at_ratio(ratio_, sigma=3.0, gamma=gamma)
        assert smoothing_ratio(tau=tau, sigma=3.0, beta=1e-12, gamma=gamma) == pytest.approx(
            ratio_, rel=1e-12
        )
        for beta, more in itertools.product((1e-6, 0.1, 3.0), (1.0, 2.0)):
            assert smoothing_ratio(tau=tau, sigma=3.0, beta=beta, gamma=more * gamma) >= ratio_ * (
                1 - 1e-12
            )
    with pytest.raises(UsageError, match=r"ratio=1\.5"):
        smoothing_tau_at_ratio(1.5, sigma=1.0, gamma=5.3)
    assert smoothing_tau_at_ratio(1.5, sigma=1.0, gamma=5.3174) == pytest.approx(1.0, abs=1e-3)


# --------------------------- Section 5: a discrete Gaussian on the lattice, one coordinate, exactly


def lattice_ratio(*, beta, gamma, tau, step):
    """The rounded pancake plus a discrete Gaussian over the rounded Gaussian, near 0 and 1.5σ."""
    at, weight = peaks(beta=beta, gamma=gamma)
    width = peak_width(sigma=1.0, beta=beta, gamma=gamma)
    n = np.arange(-math.ceil(9 / step), math.ceil(9 / step) + 1)
    edges = (np.append(n, n[-1] + 1) - 0.5) * step
    noise = sum(
        w * np.diff(scipy.special.ndtr((edges - a) / width))
        for a, w in zip(at, weight, strict=True)
    )
    own = np.exp(-((n * step) ** 2) / (2 * tau**2))
    both = scipy.signal.fftconvolve(noise, own / own.sum(), mode="same")
    honest = np.diff(scipy.special.ndtr(edges / math.hypot(1, tau)))
    near = np.abs(n * step) < 2.0
    return both[near] / honest[near]


@pytest.mark.parametrize(
    ("beta", "gamma", "tau", "step"),
    [(0.2, 8.0, 0.15, 0.01), (0.3, 3.0, 0.5, 0.02), (0.25, 8.0, 0.1, 0.01)],
)
def test_the_lattice_theorem_holds(beta, gamma, tau, step):
    waves = math.floor(math.sqrt(2 * math.pi) / gamma / (4 * step))
    eta = smoothing_eta(tau=tau, sigma=1.0, beta=beta, gamma=gamma, waves=waves)
    assert 1e-12 < eta < 1
    assert np.abs(lattice_ratio(beta=beta, gamma=gamma, tau=tau, step=step) - 1).max() <= eta + 1e-9


def test_and_needs_its_further_term():
    """On a lattice near a third of the peaks' distance a slow beat outlives own noise."""
    gamma, tau = 8.0, 0.3
    step = math.sqrt(2 * math.pi) / gamma / 3.1
    seen = np.abs(lattice_ratio(beta=1e-3, gamma=gamma, tau=tau, step=step) - 1).max()
    assert seen > 1e-3 > 100 * smoothing_eta(tau=tau, sigma=1.0, beta=1e-3, gamma=gamma)
    assert smoothing_eta(tau=tau, sigma=1.0, beta=1e-3, gamma=gamma, waves=0) == math.inf


KEY = SeedKey.new(secret=b"k" * 32)
COUNTIES, SIGMA = Histogram(), 22.34


def seeded(**options):
    return SeedInNoise(key=KEY, **{"sigma": SIGMA, **options})


def test_both_bounds_are_those_of_own_noise_alone():
    smoothing = Smoothing(dim=COUNTIES.dim, ratio=1.5)
    found = smoothing.epsilon(seeded(), DELTA, host=COUNTIES)
    alone = gaussian_epsilon(DELTA, sigma=smoothing.tau * SIGMA, sensitivity=1.0)
    assert found.low < alone < found.high < found.low + 0.01
    assert alone == pytest.approx(9.01, abs=0.01)


@pytest.mark.parametrize(
    ("bins", "smoothing", "options"),
    [
        (32, {"tau": 0.05}, {}),  # rows too short for 2^256 pairs of nonces
        (200, {"tau": 0.05}, {"code": "signs"}),  # only 72 values carry no nonce
        (3143, {"tau": 0.7}, {}),  # own noise reaches from row to row
        (3143, {"tau": 0.03, "own": "secure"}, {}),  # nor for discrete own noise
        (3143, {"tau": 0.03}, {"law": "laplace", "scale": 16.0, "sigma": None}),  # nor for others
    ],
)
def test_nothing_is_claimed_from_below_where_rows_may_be_close(bins, smoothing, options):
    host = Histogram(table="uniform", bins=bins)
    found = Smoothing(**smoothing).epsilon(seeded(**options), DELTA, host=host)
    assert found.low == 0
    assert 0 < found.high < math.inf


def test_longer_nonces_need_longer_rows():
    """Where 16 bits suffice for the proof and 128 do not, by Chernoff's bound itself."""
    host, tau = Histogram(table="uniform", bins=64), 0.02 * SIGMA
    most = gaussian_epsilon(DELTA, sigma=tau, sensitivity=1.0)
    short, full = seeded(nonce_bits=16), seeded(code="head")
    assert seeded_low(full, DELTA, host=host, tau=tau, most=most) == 0
    assert seeded_low(short, DELTA, host=host, tau=tau, most=most) == pytest.approx(most, rel=1e-3)
    reach = tau * (8 + math.sqrt(2 * (most + math.log(2e9 / DELTA)))) + 1
    m, pairs = 64 - 2, (2 * 16 + 64) * math.log(2)
    assert scipy.stats.chi2.logcdf(2 * (reach / SIGMA) ** 2, m) < -pairs


@pytest.mark.slow
def test_the_key_holder_wins_what_own_noise_leaves(stream):
    """Φ(Δ/2τσ) of the rounds, the best there is against N(0, (τσ)²)."""
    n, source = 400, seeded(code="signs")
    smoothing = Smoothing(tau=0.03)
    pairs = COUNTIES.neighbours(n, stream=stream.child("pairs"))
    truth = np.arange(n) % 2
    query = pairs[np.arange(n), truth]
    released = smoothing.release(query, source, stream=stream.child("release"))
    reader = SeedReader(key=KEY, sigma=SIGMA, code="signs", blur=0.03 * SIGMA)
    right = int((reader.score(released, pairs).argmax(1) == truth).sum())
    ideal = float(scipy.stats.norm.cdf(1 / (2 * 0.03 * SIGMA)))
    bounds = clopper_pearson(right, n, confidence=0.999)
    assert bounds.low < ideal < bounds.high
    assert ideal > 0.77
