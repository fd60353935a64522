import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.accounting import peak_spacing, smoothing_eta
from dpaudit.errors import UsageError
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_mitigation
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.rotation.fresh import Rotation, norm_deviation
from dpaudit_mitigations.smoothing.smoothing import Smoothing


@pytest.mark.parametrize("mitigation", [NoMitigation(), Rotation(), Smoothing(tau=0.5), Smoothing(dim=64)])
def test_conforms(mitigation, make_key):
    check_mitigation(mitigation, Gaussian(sigma=2.0))
    check_mitigation(mitigation, Pancake(key=make_key(), sigma=2.0))


def shares(mitigation, key, stream, attacks=(NearestPeak, LikelihoodRatio), trials=4000):
    source = Pancake(key=key, sigma=1.0)
    shift = torch.from_numpy(np.array(key.direction)) * 0.5 * source.spacing
    q = torch.stack([torch.zeros(key.dim, dtype=torch.float64), shift])
    truth = torch.arange(trials) % 2
    y = mitigation.release(q[truth], source, stream=stream)
    return [int((a(key=key, sigma=1.0).score(y, q).argmax(1) == truth).sum()) for a in attacks]


@pytest.mark.parametrize("mitigation", [Rotation(), Smoothing(dim=64)])
def test_the_key_holder_is_back_to_guessing(mitigation, make_key, stream):
    key = make_key(beta=1e-3)
    assert min(shares(NoMitigation(), key, stream)) > 3990  # without it, the attack wins
    for got in shares(mitigation, key, stream):
        interval = clopper_pearson(got, 4000, confidence=0.999)
        # the shift itself gives honest noise away a little: Φ(|shift|/2σ)
        honest = scipy.stats.norm.cdf(0.25 * peak_spacing(sigma=1, beta=1e-3, gamma=16))
        assert interval.low <= honest
        assert interval.high >= 0.5


def test_too_little_smoothing_does_not_help(make_key, stream):
    assert min(shares(Smoothing(tau=1e-4), make_key(beta=1e-3), stream)) > 3900


def test_rotation_keeps_each_norm_and_turns_uniformly(make_key, stream):
    class Fixed:
        sigma, dim, claim = 1.0, None, "gaussian:sigma=1"

        def sample(self, n, d, **_):
            out = torch.zeros(n, d, dtype=torch.float64)
            out[:, 0] = torch.arange(1.0, n + 1)
            return out

    noise = Rotation().release(torch.zeros(20_000, 8, dtype=torch.float64), Fixed(), stream=stream)
    length = torch.linalg.vector_norm(noise, dim=1)
    assert torch.allclose(length, torch.arange(1.0, 20_001, dtype=torch.float64), rtol=1e-12)
    first = (noise[:, 0] / length).numpy()  # Haar: (1 + u)/2 is Beta((d−1)/2, (d−1)/2)
    assert scipy.stats.kstest((first + 1) / 2, "beta", args=(3.5, 3.5)).pvalue > 1e-3
    assert scipy.stats.kstest((first + 1) / 2, "beta", args=(4, 4)).pvalue < 1e-3


def test_norm_deviation_against_simulation(make_key):
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


def test_smoothing_claims_and_costs_what_it_says():
    m = Smoothing(tau=0.3)
    assert m.scale(2.0) == pytest.approx(2 * math.sqrt(1.09))
    auto = Smoothing(gamma_min=112.0, eta=1e-6)
    assert smoothing_eta(tau=auto.tau, sigma=1, beta=1e-9, gamma=112.0) == pytest.approx(1e-6, rel=1e-6)
    assert auto.tau < 0.02


def test_epsilon_to_the_key_holder(make_key):
    host = Histogram()
    pancake = Pancake(key=make_key(dim=host.dim, beta=1e-4), sigma=22.4)
    honest = Gaussian(sigma=22.4).epsilon(1e-10, host=host)
    assert NoMitigation().epsilon(pancake, 1e-10, host=host).low > 1e5
    for mitigation in (Rotation(), Smoothing(dim=host.dim)):
        assert mitigation.epsilon(pancake, 1e-10, host=host).high < honest.high * 1.1
    assert Smoothing(tau=1e-6).epsilon(pancake, 1e-10, host=host).high > 1000


def test_bad_input():
    with pytest.raises(UsageError, match="needs tau"):
        Smoothing()
    with pytest.raises(UsageError, match=r"gamma=0\.5"):
        Smoothing(gamma_min=0.5)


@pytest.mark.parametrize("mitigation", [NoMitigation(), Rotation(), Smoothing(tau=0.1)])
def test_bad_queries(mitigation, stream):
    for query, says in (
        (torch.full((2, 3), math.nan), "NaN"),
        (torch.tensor([[1.0, math.inf]]), "infinity"),
        (torch.ones(2, 3, dtype=torch.int64), "floating-point query"),
        (torch.ones(3), "one row a release"),
    ):
        with pytest.raises(UsageError, match=says):
            mitigation.release(query, Gaussian(), stream=stream)
