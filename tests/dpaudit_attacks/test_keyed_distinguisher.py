import math

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_attack
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak

ATTACKS = [NearestPeak, LikelihoodRatio]


def success(attack, source, shift, stream, *, trials=4000):
    """Share of right guesses between 0 and ``shift``."""
    d = source.dim or len(shift)
    q = torch.stack([torch.zeros(d, dtype=torch.float64), shift])
    truth = torch.arange(trials) % 2
    y = source.sample(trials, d, stream=stream, dtype=torch.float64) + q[truth]
    return int((attack.score(y, q).argmax(1) == truth).sum())


@pytest.mark.parametrize("kind", ATTACKS)
def test_conforms(kind, make_key):
    check_attack(kind(key=make_key(), sigma=1.0), dim=64)


@pytest.mark.parametrize("beta", [0.02, 0.3])
def test_success_is_what_the_paper_says(make_key, stream, beta):
    """Nearest peak, f = 0.2: between 1 − 2Φ(−f·P/2s) and 1, and its exact value by quadrature."""
    key = make_key(beta=beta)
    source = Pancake(key=key, sigma=1.0)
    shift = torch.from_numpy(np.array(key.direction)) * 0.2 * source.spacing
    got = success(NearestPeak(key=key, sigma=1.0), source, shift, stream)
    # phase under truth 0, in spacings
    u = np.linspace(-12, 12, 400_001) * source.width / source.spacing
    density = (
        scipy.stats.norm.pdf(u * source.spacing / source.width) * source.spacing / source.width
    )
    right = np.abs(u - np.rint(u)) < np.abs(u - 0.2 - np.rint(u - 0.2))
    exact = float((density * right).sum() * (u[1] - u[0]))
    interval = clopper_pearson(got, 4000, confidence=0.999)
    assert interval.low <= exact <= interval.high
    assert exact >= 1 - 2 * scipy.stats.norm.cdf(-0.2 * source.spacing / (2 * source.width)) - 1e-6


def test_likelihood_ratio_is_the_exact_log_density(make_key):
    """Against the mixture written out with every peak."""
    key = make_key(dim=4, beta=0.4, gamma=1.3, allow_small_gamma=True)
    attack = LikelihoodRatio(key=key, sigma=2.0)
    y = np.random.default_rng(3).normal(0, 3, (50, 4))
    got = attack.score(torch.from_numpy(y), torch.zeros(1, 4, dtype=torch.float64)).numpy()[:, 0]
    r2 = 0.4**2 + 1.3**2
    spacing, width = math.sqrt(2 * math.pi) * 2 * 1.3 / r2, 2 * 0.4 / math.sqrt(r2)
    k = np.arange(-200, 201)
    weight = np.exp(-math.pi * k**2 / r2)
    a = y @ key.direction
    across = (y**2).sum(1) - a**2
    mixture = (weight / weight.sum() * scipy.stats.norm.pdf(a[:, None], k * spacing, width)).sum(1)
    assert np.allclose(
        got, np.log(mixture) - across / 8 - 3 * math.log(2 * math.sqrt(2 * math.pi)), atol=1e-9
    )


def test_likelihood_ratio_beats_nearest_peak_where_envelopes_matter(make_key, stream):
    key = make_key(dim=16, beta=0.8, gamma=8.0)
    source = Pancake(key=key, sigma=1.0)
    shift = torch.full((16,), 0.5, dtype=torch.float64)
    peak = success(NearestPeak(key=key, sigma=1.0), source, shift, stream)
    ratio = success(LikelihoodRatio(key=key, sigma=1.0), source, shift, stream)
    assert ratio > peak + 400


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_wrong_key_and_honest_noise_tell_nothing(make_key, stream, kind):
    key = make_key(beta=1e-3)
    shift = torch.from_numpy(np.array(key.direction)) * 0.004
    for source in (Gaussian(), Pancake(key=make_key(beta=1e-3, tag="other"))):
        got = success(kind(key=key, sigma=1.0), source, shift, stream)
        interval = clopper_pearson(got, 4000, confidence=0.999)
        assert interval.low <= 0.5 <= interval.high
    assert success(kind(key=key, sigma=1.0), Pancake(key=key), shift, stream) > 3900


def test_evidence_shows_the_spike(make_key, stream):
    key = make_key(beta=1e-3)
    y = Pancake(key=key).sample(1000, 64, stream=stream, dtype=torch.float64)
    q, truth = torch.zeros(1, 64, dtype=torch.float64), torch.zeros(1000, dtype=torch.long)
    attack = NearestPeak(key=key, sigma=1.0)
    counts = attack.evidence(y, q, truth)["phases"]["counts"]
    assert sum(counts) == 1000
    assert sum(counts[15:17]) > 990
    flat = attack.evidence(
        Gaussian().sample(1000, 64, stream=stream, dtype=torch.float64), q, truth
    )["phases"]["counts"]
    assert max(flat) < 80


def test_bad_input(make_key):
    attack = NearestPeak(key=make_key(), sigma=1.0)
    good = torch.zeros(3, 64, dtype=torch.float64)
    with pytest.raises(UsageError, match="64 values"):
        attack.score(torch.zeros(3, 65), good)
    with pytest.raises(UsageError, match="NaN"):
        attack.score(good * math.nan, good)
    with pytest.raises(UsageError, match="3 releases"):
        attack.score(good, torch.zeros(2, 4, 64))


def test_distinguishers_of_one_secret_share_the_keys_own_memory(make_key):
    """39 million coordinates are 312 MB: one copy, whatever β, γ and σ, freed with its users."""
    key = make_key(dim=64)
    attacks = [
        kind(key=key.at(beta=b, gamma=32.0), sigma=b)
        for b in (0.1, 0.2)
        for kind in (NearestPeak, LikelihoodRatio)
    ]
    pointers = {a.directions.ctypes.data for a in attacks}
    assert pointers == {key.basis.ctypes.data}
    other = NearestPeak(key=make_key(dim=64, tag="other"), sigma=1.0)
    assert other.directions.ctypes.data not in pointers
    assert not np.array_equal(other.directions, attacks[0].directions)
