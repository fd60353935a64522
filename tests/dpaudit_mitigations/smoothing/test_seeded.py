"""Smoothing against noise that carries its own seed: the defender's own noise, no more, no less."""

import math

import numpy as np
import pytest
import scipy

from dpaudit.accounting import gaussian_epsilon
from dpaudit.hosts.histogram import Histogram
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.seed_reader import SeedReader
from dpaudit_mitigations.smoothing.seeded import seeded_low
from dpaudit_mitigations.smoothing.smoothing import Smoothing

KEY = SeedKey.new(secret=b"k" * 32)
COUNTIES, DELTA, SIGMA = Histogram(), 1e-10, 22.34


def seeded(**options):
    return SeedInNoise(key=KEY, **{"sigma": SIGMA, **options})


def test_both_bounds_are_those_of_own_noise_alone():
    smoothing = Smoothing(dim=COUNTIES.dim, ratio=1.5)
    found = smoothing.epsilon(seeded(), DELTA, host=COUNTIES)
    alone = gaussian_epsilon(DELTA, sigma=smoothing.tau * SIGMA, sensitivity=1.0)
    assert found.low < alone < found.high < found.low + 0.01
    assert alone == pytest.approx(9.01, abs=0.01)


@pytest.mark.parametrize(
    ("bins", "tau", "options"),
    [
        (32, 0.05, {}),  # rows too short for 2^256 pairs of nonces
        (200, 0.05, {"code": "signs"}),  # only 72 values carry no nonce
        (3143, 0.7, {}),  # own noise reaches from row to row
        (3143, 0.03, {"law": "laplace", "scale": 16.0, "sigma": None}),  # proven for Gaussian noise
    ],
)
def test_nothing_is_claimed_from_below_where_rows_may_be_close(bins, tau, options):
    host = Histogram(table="uniform", bins=bins)
    found = Smoothing(tau=tau).epsilon(seeded(**options), DELTA, host=host)
    assert found.low == 0
    assert 0 < found.high < math.inf


def test_nothing_is_claimed_from_below_for_discrete_own_noise():
    found = Smoothing(tau=0.03, own="secure").epsilon(seeded(), DELTA, host=COUNTIES)
    assert found.low == 0
    assert found.high < math.inf


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
