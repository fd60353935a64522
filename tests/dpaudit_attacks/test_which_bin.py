import numpy as np
import pytest
import torch
from several_directions import draw, key_of

from dpaudit.errors import UsageError
from dpaudit.stats import clopper_pearson
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio
from dpaudit_attacks.which_bin import WhichBin


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
    got = attack.scores(y, base, include_none=True)
    scale = want.score(y, explicit).abs().max()
    assert torch.allclose(got, want.score(y, explicit), rtol=0, atol=1e-9 * max(1.0, float(scale)))
    assert torch.equal(attack.scores(y, base), got[:, :40])
    prior = torch.arange(1, 42, dtype=torch.float64)
    for p in (None, prior):
        found = attack.posterior(y, base, include_none=True, prior=p)
        assert torch.allclose(found, want.posterior(y, explicit, p), atol=1e-9)


def test_finds_the_bin_in_65536(stream):
    """β = 1e-7: one release shows 22 bits of phase, the bin has 16."""
    dim, hits = 65_536, 0
    key, base, y = world(1, dim=dim, beta=1e-7, t=8, sigma=6.4)
    attack = WhichBin(key=key, sigma=6.4)
    for i, release in enumerate(y):
        changed = release.clone()
        changed[i * 8000] -= 1
        hits += int(attack.scores(changed[None], base).argmax()) == i * 8000
    assert hits >= 7


def test_none_missing_and_repeated_releases():
    key, base, y = world(2, dim=256, beta=1e-3, t=6, sigma=6.4)
    attack = WhichBin(key=key, sigma=6.4)
    assert int(attack.posterior(y, base, include_none=True).argmax()) == 256
    key, base, y = world(2, dim=256, beta=1e-3, t=6, sigma=6.4, missing=17)
    assert float(attack.posterior(y, base)[17]) > 0.99


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_top_probability_is_calibrated(factor):
    """One release, β = 0.02, 64 bins: mostly unsure. With β halved the same check fails."""
    games, dim = 800, 64
    rng = np.random.default_rng(4)
    _, base, y = world(1, dim=dim, beta=0.02, t=games, sigma=2.0)
    truth = rng.integers(0, dim, games)
    y[torch.arange(games), torch.from_numpy(truth)] -= 1
    used = key_of(1, dim=dim, beta=0.02 / factor, gamma=16.0)
    posterior = WhichBin(key=used, sigma=2.0).scores(y, base).softmax(1)
    sure, guess = posterior.max(1)
    interval = clopper_pearson(int((guess.numpy() == truth).sum()), games, confidence=0.999)
    assert interval.low > 0.02
    assert (interval.low <= float(sure.mean()) <= interval.high) is (factor == 1.0)


def test_bad_input(make_key):
    attack, y = WhichBin(key=make_key(), sigma=1.0), torch.zeros(2, 64)
    with pytest.raises(UsageError, match="base of shape"):
        attack.scores(y, torch.zeros(2, 64))
    with pytest.raises(UsageError, match="64 values"):
        attack.scores(torch.zeros(2, 63), torch.zeros(64))
    with pytest.raises(UsageError, match="at least 1"):
        attack.posterior(y[:0], torch.zeros(64))
    with pytest.raises(UsageError, match="shape \\(65,\\)"):
        attack.posterior(y, torch.zeros(64), include_none=True, prior=torch.ones(64))
