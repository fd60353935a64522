"""Attackers with the key against smoothing: guessing at R = 1.5, and what brings them back."""

import pytest
import scipy
from keyed_attackers import along_key, attackers, half_a_spacing, successes, two_proportions

from dpaudit.accounting import gaussian_sigma_paper
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
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


def check_like_honest(bins, own, make_key, stream):
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
    return key, sigma


@pytest.mark.parametrize("own", ["fast", "secure"])
def test_the_likelihood_ratio_does_no_better_than_against_honest_noise(own, make_key, stream):
    key, sigma = check_like_honest(256, own, make_key, stream)
    if own == "fast":  # and the test can tell: without smoothing, and with a fifth of it
        source = Pancake(key=key, sigma=sigma)
        assert (
            min(on_the_histogram(NoMitigation(), source, key, 256, stream, tau=1e-9).values())
            == TRIALS
        )
        little = on_the_histogram(
            Smoothing(dim=256, ratio=0.1), source, key, 256, stream, tau=0.0078
        )
        assert two_proportions(little["likelihood"], TRIALS // 2, TRIALS) < 1e-6


@pytest.mark.slow
def test_nor_in_4096_dimensions(make_key, stream):
    check_like_honest(4096, "fast", make_key, stream)


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


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_an_attacker_with_a_small_gamma_is_not_stopped(gamma, make_key, stream):
    """LAB: β = 1e-4, pancakes far apart, smoothed for γ ≥ 2√d; at γ = 2√d the distance is safe."""
    m, distance = Smoothing(dim=256, ratio=1.5), 0.5
    best = scipy.stats.norm.cdf(0.5 * distance / m.scale(1.0))
    for g, wins in ((gamma, True), ("2sqrtd", False)):
        key = make_key(dim=256, beta=1e-4, gamma=g, allow_small_gamma=True)
        attacks = attackers(key, sigma=1.0, tau=m.tau)
        right = successes(
            m, Pancake(key=key), attacks, along_key(key, distance), trials=2000, stream=stream
        )
        if wins:
            assert right["informed"] > 0.95 * 2000
        else:
            assert clopper_pearson(right["informed"], 2000, confidence=0.999).low <= best < 0.6
