"""The key holder's scores against densities written out, calibrated, and where they see nothing."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from support.several_directions import draw, key_of

from dpaudit.noise.gaussian import Gaussian
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_likelihood import log_density, log_theta, log_tilt
from dpaudit.protocols import MissingRecord
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio, NearestPeak
from dpaudit_attacks.which_bin import WhichBin

ATTACKS = [NearestPeak, LikelihoodRatio]


def success(attack, source, shift, stream, *, trials=4000):
    """Share of right guesses between 0 and ``shift``."""
    d = source.dim or len(shift)
    q = torch.stack([torch.zeros(d, dtype=torch.float64), shift])
    truth = torch.arange(trials) % 2
    y = source.sample(trials, d, stream=stream, dtype=torch.float64) + q[truth]
    return int((attack.score(y, q).argmax(1) == truth).sum())


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


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_wrong_key_and_honest_noise_tell_nothing(make_key, stream, kind):
    key = make_key(beta=1e-3)
    shift = torch.from_numpy(np.array(key.direction)) * 0.004
    for source in (Gaussian(), Pancake(key=make_key(beta=1e-3, tag="other"))):
        got = success(kind(key=key, sigma=1.0), source, shift, stream)
        interval = clopper_pearson(got, 4000, confidence=0.999)
        assert interval.low <= 0.5 <= interval.high
    assert success(kind(key=key, sigma=1.0), Pancake(key=key), shift, stream) > 3900


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


@pytest.mark.parametrize("kind", [NearestPeak, LikelihoodRatio])
def test_evidence_shows_the_spikes_of_all_directions(kind):
    key = key_of(3, dim=64, beta=1e-3, gamma=16.0)
    y = torch.from_numpy(draw(key, 1.0, 200, np.random.default_rng(0)))
    picture = kind(key=key, sigma=1.0).evidence(
        y, torch.zeros(1, 64), torch.zeros(200, dtype=torch.long)
    )["phases"]
    assert sum(picture["counts"][15:17]) > 590  # 600 phases, all near a peak
    assert sum(picture["without_key"]) == 600
    assert max(picture["without_key"]) < 60  # flat: 19 expected in each of 32


def brute(x, sigma, beta, gamma):
    """The mixture written out with every peak that matters, normalised by its own weights."""
    r2 = beta**2 + gamma**2
    spacing, width = math.sqrt(2 * math.pi) * sigma * gamma / r2, sigma * beta / math.sqrt(r2)
    k = np.arange(-3000, 3001)
    weight = -math.pi * k**2 / r2
    normal = scipy.stats.norm.logpdf(x[:, None], k * spacing, width)
    return scipy.special.logsumexp(weight + normal, axis=1) - scipy.special.logsumexp(weight)


@pytest.mark.parametrize(
    ("beta", "gamma"),
    [
        (1e-3, 32), (0.1, 16), (0.5, 8), (0.99, 8), (1.0, 8), (1.01, 8), (3, 8), (30, 8),
        (0.4, 0.3), (2, 0.1), (20, 500),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sigma", [1.0, 6.4])
def test_is_the_mixture(beta, gamma, sigma):
    x = np.random.default_rng(1).normal(0, 2 * sigma, 100)
    y = torch.from_numpy(x)
    got = log_density(y[:, None], y**2, dim=1, sigma=sigma, beta=beta, gamma=gamma).numpy()
    want = brute(x, sigma, beta, gamma)
    assert np.allclose(got, want, rtol=1e-7 if beta < 0.01 else 1e-10, atol=1e-9)


@pytest.mark.parametrize(("beta", "gamma"), [(0.05, 2), (0.5, 8), (1.5, 3), (40, 8), (0.3, 0.2)])
def test_integrates_to_one(beta, gamma):
    x = torch.linspace(-14, 14, 200_001, dtype=torch.float64)
    density = log_density(x[:, None], x**2, dim=1, sigma=1.3, beta=beta, gamma=gamma).exp()
    assert float(density.sum() * (x[1] - x[0])) == pytest.approx(1, abs=1e-8)


def test_never_overflows_and_meets_at_one():
    c = torch.tensor([0.0, 0.25, 0.5, -0.5, 1e6 + 0.5, -3e9], dtype=torch.float64)
    for beta in (1e-120, 1e-8, 1e-3, 1 - 1e-12, 1.0, 1e3, 1e200):
        assert bool(torch.isfinite(log_theta(c, beta)).all()), beta
    assert torch.allclose(log_theta(c, 1 - 1e-13), log_theta(c, 1.0), atol=1e-11)
    # no pancake left: the claimed Gaussian
    wide = log_tilt(c * 100, sigma=1.0, beta=1e6, gamma=8.0)
    assert torch.allclose(wide, torch.zeros_like(wide), atol=1e-9)


def world(k, *, dim, beta, t, sigma, seed=0, missing=None):
    """One key with a random histogram: releases of it without one record of bin ``missing``."""
    rng = np.random.default_rng(seed)
    key = key_of(k, dim=dim, beta=beta, gamma=2 * dim**0.5, seed=seed)
    base = rng.integers(0, 500, dim).astype(float)
    y = base + draw(key, sigma, t, rng)
    if missing is not None:
        y[:, missing] -= 1
    return key, torch.from_numpy(base), torch.from_numpy(y)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("beta", [1e-3, 0.4])
def test_equals_the_explicit_candidates(k, beta, monkeypatch):
    monkeypatch.setattr("dpaudit_attacks.which_bin._CHUNK", 7)
    key, base, y = world(k, dim=40, beta=beta, t=5, sigma=3.0, missing=4)
    explicit = torch.cat([base - torch.eye(40, dtype=torch.float64), base[None]])
    want = LikelihoodRatio(key=key, sigma=3.0)
    attack = WhichBin(key=key, sigma=3.0)
    got = attack.score(y, MissingRecord(base, none=True))
    scale = want.score(y, explicit).abs().max()
    assert torch.allclose(got, want.score(y, explicit), rtol=0, atol=1e-9 * max(1.0, float(scale)))
    assert torch.equal(attack.score(y, MissingRecord(base)), got[:, :40])
    prior = torch.arange(1, 42, dtype=torch.float64)
    for p in (None, prior):
        found = attack.posterior(y, MissingRecord(base, none=True), p)
        assert torch.allclose(found, want.posterior(y, explicit, p), atol=1e-9)


def test_finds_the_bin_in_65536(stream):
    """β = 1e-7: one release shows 22 bits of phase, the bin has 16."""
    dim, hits = 65_536, 0
    key, base, y = world(1, dim=dim, beta=1e-7, t=8, sigma=6.4)
    attack = WhichBin(key=key, sigma=6.4)
    for i, release in enumerate(y):
        changed = release.clone()
        changed[i * 8000] -= 1
        hits += int(attack.score(changed[None], MissingRecord(base)).argmax()) == i * 8000
    assert hits >= 7


def test_none_missing_and_repeated_releases():
    key, base, y = world(2, dim=256, beta=1e-3, t=6, sigma=6.4)
    attack = WhichBin(key=key, sigma=6.4)
    assert int(attack.posterior(y, MissingRecord(base, none=True)).argmax()) == 256
    key, base, y = world(2, dim=256, beta=1e-3, t=6, sigma=6.4, missing=17)
    assert float(attack.posterior(y, MissingRecord(base))[17]) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_top_probability_is_calibrated(factor):
    """One release, β = 0.02, 64 bins: mostly unsure. With β halved the same check fails."""
    games, dim = 800, 64
    rng = np.random.default_rng(4)
    _, base, y = world(1, dim=dim, beta=0.02, t=games, sigma=2.0)
    truth = rng.integers(0, dim, games)
    y[torch.arange(games), torch.from_numpy(truth)] -= 1
    used = key_of(1, dim=dim, beta=0.02 / factor, gamma=16.0)
    posterior = WhichBin(key=used, sigma=2.0).score(y, MissingRecord(base)).softmax(1)
    sure, guess = posterior.max(1)
    interval = clopper_pearson(int((guess.numpy() == truth).sum()), games, confidence=0.999)
    assert interval.low > 0.02
    assert (interval.low <= float(sure.mean()) <= interval.high) is (factor == 1.0)
