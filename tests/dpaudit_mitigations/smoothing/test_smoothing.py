"""Smoothing as a plug-in: options, cost, the release on a lattice, both generators, epsilon."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy
import torch

from dpaudit import registry
from dpaudit.accounting import gaussian_epsilon, pancake_epsilon, smoothed_pancake, smoothing_eta
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.interfaces import Mitigation
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.secure_gaussian import SecureGaussian
from dpaudit.testing import check_mitigation
from dpaudit.types import EpsilonBounds
from dpaudit.vectors.exact_integers import draw_integers
from dpaudit.vectors.exact_law import IntegerLaw
from dpaudit.vectors.lattice import RoundedHost, lattice_step
from dpaudit_mitigations.smoothing.smoothing import Smoothing

DELTA = 1e-10


@pytest.mark.parametrize(
    "mitigation",
    [
        Smoothing(tau=0.5),
        Smoothing(dim=64),
        Smoothing(dim=64, ratio=1.5),
        Smoothing(tau=0.3, own="secure"),
    ],
)
def test_conforms(mitigation, make_key):
    for source in (
        Gaussian(sigma=2.0),
        Pancake(key=make_key(), sigma=2.0),
        SecureGaussian(sigma=2.0),
    ):
        check_mitigation(mitigation, source)


# ---------------------------------------------------------------- options and cost


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


@pytest.mark.parametrize("dim", [24, 25, 64, 256, 4096, 61_706, 39_000_000])
def test_the_l2_error_at_r_of_one_and_a_half(dim):
    for gamma in (2 * math.sqrt(dim), 20 * math.sqrt(dim)):
        factor = Smoothing(gamma_min=gamma, ratio=1.5).l2_factor
        assert 1 < factor <= 1 + 2 / dim
        assert factor < math.sqrt(2)  # two servers
    assert Smoothing(dim=dim, ratio=1.5).l2_factor > 1 + 1.7 / dim


def test_the_l2_error_is_what_is_measured(stream):
    m, query = Smoothing(tau=0.6), torch.zeros(400, 500, dtype=torch.float64)
    own = m.release(query, Gaussian(sigma=3.0), stream=stream)
    assert float(own.square().mean().sqrt()) / 3.0 == pytest.approx(m.l2_factor, rel=0.01)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs tau"),
        ({"tau": -1}, r"tau=-1: must be a finite number > 0"),
        ({"tau": "much"}, r"tau=much: must be a finite number > 0"),
        ({"tau": math.nan}, r"tau=nan"),
        ({"tau": True}, r"tau=True"),
        ({"gamma_min": 0.5}, r"gamma=0\.5: .* beyond σ"),
        ({"gamma_min": -3}, r"gamma_min=-3"),
        ({"dim": -3}, r"dim=-3"),
        ({"dim": "many"}, r"dim=many"),
        ({"dim": 64, "eta": 0}, r"eta=0"),
        ({"dim": 64, "eta": 1.5}, r"eta=1\.5: must be below 1"),
        ({"dim": 64, "ratio": "a"}, r"ratio=a"),
        ({"dim": 4, "ratio": 1.5}, r"ratio=1\.5 needs smoothing beyond σ"),
        ({"tau": 0.1, "eta": 1e-6}, r"tau=0\.1 and eta=1e-06: .* give one"),
        ({"tau": 0.1, "gamma_min": 9, "ratio": 1}, r"tau=0\.1 and gamma_min=9, ratio=1"),
        ({"dim": 64, "eta": 0.1, "ratio": 1}, r"ratio=1 and eta=0\.1"),
        ({"tau": 0.1, "own": "opendp"}, r"own=opendp: must be fast .* or secure"),
        ({"tau": 1e-6, "own": "secure"}, r"tau=1e-06: own=secure takes"),
        ({"tau": 1e3, "own": "secure"}, r"tau=1000\.0: own=secure"),
    ],
)
def test_usage_errors_name_the_option(options, says):
    with pytest.raises(UsageError, match=says):
        Smoothing(**options)


@pytest.mark.parametrize("own", ["fast", "secure"])
def test_bad_queries(own, stream):
    for query, says in (
        (torch.full((2, 3), math.nan), "NaN"),
        (torch.ones(2, 3, dtype=torch.int64), "floating-point query"),
        (torch.ones(3), "one row per release"),
        (torch.full((1, 3), 1e12, dtype=torch.float64), "clip the query"),
    ):
        with pytest.raises(UsageError, match=says):
            Smoothing(tau=0.1, own=own).release(query, Gaussian(), stream=stream)


# ---------------------------------------------------------------- the release


def on_the_lattice(values, step):
    steps = values.double() / step
    return torch.equal(steps, steps.round())


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


@pytest.mark.parametrize("own", ["fast", "secure"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bits_of_the_query_below_the_lattice_are_not_in_it(own, dtype, stream):
    m, source, step = Smoothing(tau=0.2, own=own), Gaussian(sigma=1.0), lattice_step(1.0)
    query = (torch.arange(-500, 500, dtype=torch.float64) * 16 * step).reshape(10, 100)
    released = m.release(query.to(dtype), source, stream=stream)
    assert released.dtype == dtype
    assert on_the_lattice(released, step)
    nudged = (query + 0.49 * step).to(dtype)
    assert not torch.equal(nudged, query.to(dtype))
    assert torch.equal(released, m.release(nudged, source, stream=stream))


def test_narrow_dtypes_are_rounded_at_the_end(stream):
    """Rounding the source's noise to bfloat16 first leaves steps of 2^-8, which τ = 1e-3 shows."""
    m, query = Smoothing(tau=1e-3), torch.zeros(4, 300, dtype=torch.bfloat16)
    got = m.release(query, Gaussian(), stream=stream)
    wide = m.release(query.float(), Gaussian(), stream=stream)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, wide.to(torch.bfloat16))


# ---------------------------------------------------------------- epsilon


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
    assert (
        "alone"
        in Smoothing(dim=64, own="secure")
        .epsilon(Pancake(key=make_key(directions=3)), DELTA, host=host)
        .says
    )


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


def test_peaks_narrower_than_the_lattice_give_no_lower_bound(host, make_key):
    """Before the lattice ε is above 10^14; but rounding blurs such peaks to about 10^4 widths."""
    narrow = Pancake(key=make_key(dim=host.dim, beta=1e-9), sigma=22.4)
    assert Smoothing(tau=1e-12).epsilon(narrow, DELTA, host=host).low == 0
    assert Smoothing(tau=1e-6).epsilon(narrow, DELTA, host=host).low > 1e6


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
    host, m = Histogram(), Smoothing(tau=0.5, own=own)
    got = m.epsilon(Lying(), DELTA, host=host)
    assert got.high == pytest.approx(gaussian_epsilon(DELTA, sigma=0.5), rel=1e-4)
    assert got.says == "the defender's own noise alone"
    noise = (
        m.release(torch.zeros(50, 400, dtype=torch.float64), Lying(), stream=stream).numpy().ravel()
    )
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


def test_smoothing_takes_nothing_away_that_the_source_gave(make_key):
    """Beyond the theorem, own noise is still post-processing: never worse than the source."""
    source = Pancake(key=make_key(dim=64, beta=0.5, gamma=0.5, allow_small_gamma=True), sigma=3.0)
    host = Histogram(table="uniform", bins=64)
    own = source.epsilon(1e-6, host=host)
    behind = Smoothing(tau=0.001).epsilon(source, 1e-6, host=host)
    # at γ = 0.5 the bound on phases that the lattice may shift is loose
    assert behind.high <= own.high * 1.02
    assert "post-processed" in behind.says
