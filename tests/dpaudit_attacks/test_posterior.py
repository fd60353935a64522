"""Several directions, the posterior's calibration, and likelihood ratio against nearest peak."""

import math

import numpy as np
import pytest
import torch
from several_directions import draw, key_of

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.stats import clopper_pearson
from dpaudit.testing import check_attack
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak
from dpaudit_attacks.pancake_likelihood import log_mixture

GAMES = 1500


def played(key, sigma, *, seed=5, releases=2):
    """Games with three candidates: releases (games, t, d), candidates (games, 3, d), truths."""
    rng = np.random.default_rng(seed)
    candidates = rng.standard_normal((GAMES, 3, key.dim)) * sigma * 0.12
    truth = rng.integers(0, 3, GAMES)
    noise = draw(key, sigma, GAMES * releases, rng).reshape(GAMES, releases, key.dim)
    return (
        torch.from_numpy(noise + candidates[np.arange(GAMES), truth][:, None]),
        torch.from_numpy(candidates),
        truth,
    )


def broken_bins(probability, happened):
    """Reliability bins with mean probability outside the 99.9 % interval, and bins in use."""
    index = np.minimum((probability * 10).astype(int), 9)
    used = [i for i in range(10) if (index == i).sum() >= 30]
    outside = 0
    for i in used:
        inside = index == i
        interval = clopper_pearson(int(happened[inside].sum()), int(inside.sum()), confidence=0.999)
        outside += not interval.low <= probability[inside].mean() <= interval.high
    return outside, len(used)


def calibration(model, key, sigma):
    releases, candidates, truth = played(key, sigma)
    scores = sum(
        model.score(releases[:, t], candidates) for t in range(releases.shape[1])
    )  # :meth:`posterior`, at once
    posterior = scores.softmax(1).numpy()
    return broken_bins(posterior[:, 0], truth == 0)  # one candidate a game: games are independent


@pytest.mark.parametrize(("k", "beta", "wrong"), [(1, 0.3, 2), (2, 0.6, 0.5), (3, 0.65, 0.5)])
def test_posterior_is_calibrated_and_mistakes_are_seen(k, beta, wrong):
    """Wrong β or σ breaks it. (Doubling β = 0.5 only hides the peaks from the attack.)"""
    key, sigma = key_of(k, dim=16, beta=beta, gamma=8.0), 2.0
    outside, used = calibration(LikelihoodRatio(key=key, sigma=sigma), key, sigma)
    assert outside == 0
    assert used >= 8
    other = key_of(k, dim=16, beta=beta * wrong, gamma=8.0)
    assert calibration(LikelihoodRatio(key=other, sigma=sigma), key, sigma)[0] >= 2
    assert calibration(LikelihoodRatio(key=key, sigma=1.2 * sigma), key, sigma)[0] >= 2


def test_posterior_sums_releases_and_takes_a_prior():
    key = key_of(2, dim=16, beta=0.5, gamma=8.0)
    attack = LikelihoodRatio(key=key, sigma=2.0)
    releases, candidates, _ = played(key, 2.0)
    y, prior, candidates = releases[:3].reshape(6, 16), torch.tensor([0.0, 3.0, 1.0]), candidates[0]
    score = attack.score(y, candidates).sum(0)
    assert torch.allclose(attack.posterior(y, candidates), score.softmax(0))
    want = score.exp() * prior / (score.exp() * prior).sum()
    assert torch.allclose(attack.posterior(y, candidates, prior), want)
    assert torch.allclose(attack.posterior(y, candidates.expand(6, -1, -1)), score.softmax(0))


def right(attack, releases, candidates, truth):
    return int((attack.score(releases, candidates).argmax(1).numpy() == truth).sum())


@pytest.mark.parametrize(
    ("k", "beta", "length", "better"),
    [(1, 1e-3, 0.15, False), (1, 0.4, 0.6, True), (3, 0.5, 0.6, True)],
)
def test_likelihood_ratio_is_never_worse_than_nearest_peak(k, beta, length, better):
    """Same games for both, so only games that one of them wins add sampling error."""
    key, rng, n = key_of(k, dim=64, beta=beta, gamma=16.0), np.random.default_rng(6), 4000
    shift = rng.standard_normal((n, 2, 64))
    shift *= length / math.sqrt(2 * 64)
    truth = rng.integers(0, 2, n)
    y = torch.from_numpy(draw(key, 1.0, n, rng) + shift[np.arange(n), truth])
    q = torch.from_numpy(shift)
    peak, ratio = (
        right(kind(key=key, sigma=1.0), y, q, truth) for kind in (NearestPeak, LikelihoodRatio)
    )
    assert ratio >= peak - 3.3 * math.sqrt(n - min(peak, ratio))
    assert ratio > 0.55 * n
    if better:
        assert ratio > peak + 0.005 * n  # expected: 0.013, standard deviation 0.002


def test_more_directions_tell_more():
    one, four = (
        right(LikelihoodRatio(key=key, sigma=2.0), r[:, 0], c, t)
        for key in (key_of(k, dim=16, beta=0.5, gamma=8.0) for k in (1, 4))
        for r, c, t in [played(key, 2.0)]
    )
    assert four > one + 150


@pytest.mark.parametrize("kind", [NearestPeak, LikelihoodRatio])
def test_several_directions_conform(kind):
    key = key_of(3, dim=64, beta=1e-3, gamma=16.0)
    check_attack(kind(key=key, sigma=1.0), dim=64)
    y = torch.from_numpy(draw(key, 1.0, 200, np.random.default_rng(0)))
    picture = kind(key=key, sigma=1.0).evidence(
        y, torch.zeros(1, 64), torch.zeros(200, dtype=torch.long)
    )["phases"]
    assert sum(picture["counts"][15:17]) > 590  # 600 phases, all near a peak
    assert sum(picture["without_key"]) == 600
    assert max(picture["without_key"]) < 60  # flat: 19 expected in each of 32


def test_the_first_direction_alone_is_the_plain_key(make_key):
    """A key whose basis is its direction and one without basis give the same scores."""
    key = make_key(dim=16, beta=0.3, gamma=8.0)
    rng = np.random.default_rng(1)
    y = torch.from_numpy(rng.standard_normal((4, 16)))
    q = torch.from_numpy(rng.standard_normal((3, 16)))
    r = y[:, None] - q
    x = r @ torch.from_numpy(np.array(key.direction))
    gaussian = -(r.square().sum(-1) - x.square()) / 2 - 15 * math.log(2 * math.pi) / 2
    want = log_mixture(x, sigma=1.0, beta=0.3, gamma=8.0) + gaussian
    assert isinstance(key, PancakeKey)
    assert torch.allclose(LikelihoodRatio(key=key, sigma=1.0).score(y, q), want, atol=1e-9)


def test_a_made_key_with_three_directions(make_key, stream):
    """The library's own key and noise: all 600 phases near a peak, and the shift found."""
    key = make_key(dim=64, beta=1e-3, directions=3)
    y = Pancake(key=key, sigma=2.0).sample(200, 64, stream=stream, dtype=torch.float64)
    attack = LikelihoodRatio(key=key, sigma=2.0)
    assert attack.directions.shape == (3, 64)
    zero = torch.zeros(1, 64, dtype=torch.float64)
    assert (
        sum(attack.evidence(y, zero, torch.zeros(200, dtype=torch.long))["phases"]["counts"][15:17])
        > 590
    )
    assert float(attack.posterior(y[:1], torch.cat([zero, zero + 0.01]))[0]) > 0.99


def test_bad_input(make_key):
    attack = LikelihoodRatio(key=make_key(), sigma=1.0)
    y = torch.zeros(2, 64)
    q = torch.zeros(3, 64)
    for prior, say in (
        (torch.ones(2), "one value"),
        (torch.tensor([1, -1, 1.0]), "≥ 0"),
        (torch.zeros(3), "above 0"),
    ):
        with pytest.raises(UsageError, match=say):
            attack.posterior(y, q, prior)
    with pytest.raises(UsageError, match="one of each"):
        attack.posterior(y[:0], q)
