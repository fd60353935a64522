"""Attackers with the key against smoothing: guessing at R = 1.5, and what brings them back."""

import math

import pytest
import scipy
import torch
from support.keyed_attackers import (
    along_key,
    attackers,
    half_a_spacing,
    informed,
    successes,
    two_proportions,
)

from dpaudit.accounting import (
    compose_epsilon,
    gaussian_epsilon,
    gaussian_sigma_paper,
    peak_spacing,
    smoothed_pancake,
    smoothing_eta,
    smoothing_tau,
)
from dpaudit.errors import UsageError
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.queries.histogram import Histogram
from dpaudit.stats import clopper_pearson
from dpaudit_mitigations.none import NoMitigation
from dpaudit_mitigations.smoothing.smoothing import Smoothing

TRIALS = 10_000


def on_the_histogram(mitigation, source, key, bins, stream, *, tau):
    host = Histogram(table="uniform", bins=bins)
    attacks = attackers(key, sigma=source.sigma, tau=tau)

    def pairs(n, s):
        return host.neighbours(n, stream=s)

    return successes(mitigation, source, attacks, pairs, trials=TRIALS, stream=stream)


@pytest.mark.parametrize(
    ("bins", "own"),
    [(256, "fast"), (256, "secure"), pytest.param(4096, "fast", marks=pytest.mark.slow)],
)
def test_the_likelihood_ratio_does_no_better_than_against_honest_noise(bins, own, make_key, stream):
    """Success at R = 1.5 against the honest mechanism's, of the same variance, at ε = 1."""
    key, sigma = make_key(dim=bins, beta=1e-4), gaussian_sigma_paper(1.0, 1e-10)
    m = Smoothing(dim=bins, ratio=1.5, own=own)
    pancake, honest = (
        on_the_histogram(m, source, key, bins, stream.child("arm", i), tau=m.tau)
        for i, source in enumerate((Pancake(key=key, sigma=sigma), Gaussian(sigma=sigma)))
    )
    for name in pancake:
        assert two_proportions(pancake[name], honest[name], TRIALS) > 1e-3, (name, pancake, honest)
    best = scipy.stats.norm.cdf(0.5 / m.scale(sigma))  # Neyman and Pearson, honest noise, Δ = 1
    interval = clopper_pearson(pancake["informed"], TRIALS, confidence=0.999)
    assert interval.low <= best <= interval.high
    assert max(pancake.values()) / TRIALS < best + 0.02


def test_that_test_can_tell(make_key, stream):
    """No smoothing, and a fifteenth of it."""
    source = Pancake(key=make_key(dim=256, beta=1e-4), sigma=gaussian_sigma_paper(1.0, 1e-10))
    bare = on_the_histogram(NoMitigation(), source, source.key, 256, stream, tau=1e-9)
    assert min(bare.values()) == TRIALS
    thin = Smoothing(dim=256, ratio=0.1)
    little = on_the_histogram(thin, source, source.key, 256, stream, tau=0.0078)
    assert two_proportions(little["likelihood"], TRIALS // 2, TRIALS) < 1e-6


def test_neighbours_half_a_spacing_apart_are_back_to_guessing(make_key, stream):
    key = make_key(beta=1e-3)
    source, pairs = Pancake(key=key), along_key(key, half_a_spacing(key, sigma=1.0))
    found = {}
    for name, m in (
        ("none", NoMitigation()),
        ("little", Smoothing(tau=1e-4)),
        ("default", Smoothing(dim=64)),
    ):
        attacks = attackers(key, sigma=1.0, tau=getattr(m, "tau", 1e-9))
        found[name] = successes(m, source, attacks, pairs, trials=4000, stream=stream)
    assert min(found["none"].values()) > 3990
    assert min(found["little"].values()) > 3900
    best = scipy.stats.norm.cdf(0.5 * half_a_spacing(key, sigma=1.0) / Smoothing(dim=64).scale(1.0))
    for right in found["default"].values():
        assert clopper_pearson(right, 4000, confidence=0.999).low <= best


@pytest.mark.parametrize(
    ("gamma", "wins"), [(0.5, True), (1.0, True), (2.0, True), ("2sqrtd", False)]
)
def test_an_attacker_with_a_small_gamma_is_not_stopped(gamma, wins, make_key, stream):
    """LAB: β = 1e-4, pancakes far apart, smoothed for γ ≥ 2√d; at γ = 2√d the distance is safe."""
    m, distance = Smoothing(dim=256, ratio=1.5), 0.5
    best = scipy.stats.norm.cdf(0.5 * distance / m.scale(1.0))
    key = make_key(dim=256, beta=1e-4, gamma=gamma, allow_small_gamma=True)
    attacks, pairs = {"informed": informed(key, sigma=1.0, tau=m.tau)}, along_key(key, distance)
    (right,) = successes(m, Pancake(key=key), attacks, pairs, trials=2000, stream=stream).values()
    if wins:
        assert right > 0.95 * 2000
    else:
        assert clopper_pearson(right, 2000, confidence=0.999).low <= best < 0.6


# γ so large that half a period is far below σ/√N: the phases alone tell
N, ETA, GAMMA = 10_000, 1e-2, 2e4


@pytest.mark.slow
def test_ten_thousand_releases_at_eta_of_a_hundredth_are_read_three_times_in_four(make_key, stream):
    """Phase density 1 ± η·cos: N of them are √(2N)·η = 1.41 deviations apart: Φ(0.707) = 76 %."""
    pytest.importorskip("dp_accounting")
    key, rounds = make_key(dim=2, beta=1e-4, gamma=GAMMA), 120
    m, source = Smoothing(eta=ETA, gamma_min=GAMMA), Pancake(key=key)
    half = peak_spacing(sigma=1.0, beta=key.beta, gamma=GAMMA) / 2
    pair = torch.stack(
        [torch.zeros(2, dtype=torch.float64), torch.from_numpy(key.direction.copy()) * half]
    )
    attack, right, single = informed(key, sigma=1.0, tau=m.tau), 0, 0
    for i in range(rounds):
        y = m.release(pair[i % 2].expand(N, 2), source, stream=stream.child(i))
        score = attack.score(y, pair)
        right += int(score.sum(0).argmax()) == i % 2
        single += int(score[0].argmax()) == i % 2
    predicted = scipy.stats.norm.cdf(math.sqrt(N / 2) * ETA)
    assert predicted == pytest.approx(0.7602, abs=1e-4)
    found = clopper_pearson(right, rounds, confidence=0.999)
    assert found.low < predicted < found.high
    assert found.low > 0.55  # 76 % of 120: five standard deviations above chance
    # one release shows next to nothing
    assert clopper_pearson(single, rounds, confidence=0.999).low < 0.5 + ETA
    # δ at ε = 0 is the advantage 2·0.76 − 1 of the best attack there is: what the composition says
    sigma, beta, gamma = smoothed_pancake(m.tau, sigma=1.0, beta=key.beta, gamma=GAMMA)
    law = {"sigma": sigma, "beta": beta, "gamma": gamma, "along": half, "across": half / 100}
    law |= {"n": N, "discretization": 1e-4}
    assert smoothing_eta(tau=m.tau, sigma=1.0, beta=key.beta, gamma=GAMMA) == pytest.approx(
        ETA, rel=1e-3
    )
    assert compose_epsilon(2 * predicted - 1 + 0.005, **law).value == 0
    assert compose_epsilon(2 * predicted - 1 - 0.005, **law).value > 0


@pytest.mark.slow
def test_many_releases_by_the_exact_composition(make_key):
    pytest.importorskip("dp_accounting")
    host = Histogram(table="uniform", bins=64)
    source, m = Pancake(key=make_key(beta=1e-3), sigma=22.4), Smoothing(dim=64, eta=1e-6)
    for n in (1, 100, 1000):
        found = m.epsilon_after(source, 1e-10, host=host, releases=n)
        honest = gaussian_epsilon(1e-10, sigma=m.scale(22.4), sensitivity=math.sqrt(n))
        assert found.low <= honest * (1 + 1e-4)
        assert honest * (1 - 1e-4) < found.high < honest * (1 + 1e-3)
        own = m.epsilon_after(Gaussian(sigma=22.4), 1e-10, host=host, releases=n)
        assert own.low < honest < own.high < honest * (1 + 1e-3)
    assert "exact composition" in found.says
    # less smoothing: honest noise composes to less
    thin = Smoothing(dim=64, eta=0.1).epsilon_after(source, 1e-10, host=host, releases=1000)
    assert thin.low > 1.02 * gaussian_epsilon(1e-10, sigma=22.4, sensitivity=math.sqrt(1000))
    assert smoothing_tau(0.1, sigma=1.0, gamma=16.0) == Smoothing(dim=64, eta=0.1).tau


@pytest.mark.slow
def test_where_no_exact_composition_is_known_the_basic_one_counts(make_key):
    host = Histogram(table="uniform", bins=64)
    m = Smoothing(dim=64)
    two = Pancake(key=make_key(directions=2), sigma=22.4)
    narrow = Pancake(key=make_key(beta=1e-7), sigma=22.4)
    for mitigation, source in (
        (Smoothing(dim=64, own="secure"), narrow),
        (m, DiscreteGaussian(sigma=22.4)),
    ):
        found = mitigation.epsilon_after(source, 1e-8, host=host, releases=100)
        assert found.high == 100 * mitigation.epsilon(source, 1e-10, host=host).high
        assert "basic composition" in found.says
    # two directions have no exact composition, but the ratio (1 ± η)^200
    found = m.epsilon_after(two, 1e-8, host=host, releases=100)
    honest = gaussian_epsilon(1e-8, sigma=m.scale(2.24))
    assert honest - 5e-4 < found.low < honest < found.high < honest + 5e-4
    with pytest.raises(UsageError, match="releases=0"):
        m.epsilon_after(two, 1e-8, host=host, releases=0)
