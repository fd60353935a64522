"""The game's people choose as equation 6 says."""

import numpy as np
import pytest
import scipy.stats

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.pool_inference.game import _alias, people
from dpaudit_attacks.pool_inference.settings import load_setting

STREAM = KeyedStream.from_seed("pool game")


def behaviour(setting, *, preferred, gamma, delta):
    """Φ of equation 6, object by object."""
    phi = np.zeros(setting.universe)
    for i, group in enumerate(setting.groups):
        of_pools = gamma * delta if i == preferred + 1 else gamma * (1 - delta) / (setting.k - 1)
        share = of_pools if i else 1 - gamma
        phi[group] = share * setting.popularity[group] / setting.popularity[group].sum()
    return phi


@pytest.mark.parametrize(
    "way", ["news:universe=100", "equal-pools:size=5,zipf=2,universe=40", "real-emoji"]
)
@pytest.mark.parametrize(("gamma", "delta"), [(0.7, 0.6), (1.0, 0.4), (0.3, 1.0)])
def test_objects_follow_equation_6(way, gamma, delta):
    setting = load_setting(way)
    some = people(setting, 300, 700, stream=STREAM.child(way), gamma=gamma, delta=delta)
    expected = np.zeros(setting.universe)
    seen = np.bincount(some.objects.ravel(), minlength=setting.universe)
    for preferred, users in enumerate(np.bincount(some.preferred, minlength=setting.k)):
        expected += 700 * users * behaviour(setting, preferred=preferred, gamma=gamma, delta=delta)
    assert expected.sum() == pytest.approx(seen.sum())
    assert (seen[expected == 0] == 0).all()
    rare = expected < 8
    observed = np.append(seen[~rare], seen[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    assert scipy.stats.chisquare(observed[kept], wanted[kept]).pvalue > 1e-3


def test_each_user_for_themselves():
    """The pools of one person's choices by preferred pool; choices are independent in time."""
    setting = load_setting("news:universe=80")
    some = people(setting, 2000, 50, stream=STREAM.child("each"), gamma=0.9, delta=0.7)
    group_of = np.zeros(setting.universe, int)
    for i, group in enumerate(setting.groups):
        group_of[group] = i
    groups = group_of[some.objects]
    mine = groups == some.preferred[:, None] + 1
    for pool in range(setting.k):
        rows = mine[some.preferred == pool]
        assert abs(rows.mean() - 0.63) < 4.5 * np.sqrt(0.63 * 0.37 / rows.size)
    after = mine[:, 1:][mine[:, :-1]]
    assert abs(after.mean() - 0.63) < 4.5 * np.sqrt(0.63 * 0.37 / after.size)


def test_behaviour_is_uniform():
    some = people(load_setting("emojis"), 20_000, 1, stream=STREAM.child("behaviour"))
    assert scipy.stats.kstest(some.gamma, "uniform").pvalue > 1e-3
    assert scipy.stats.kstest((some.delta - 1 / 6) / (5 / 6), "uniform").pvalue > 1e-3
    assert scipy.stats.chisquare(np.bincount(some.preferred, minlength=6)).pvalue > 1e-3
    assert abs(np.corrcoef(some.gamma, some.delta)[0, 1]) < 4 / np.sqrt(20_000)


@pytest.mark.parametrize("size", [1, 2, 3, 228, 5000])
def test_alias_tables_are_the_law(size):
    share = np.random.default_rng(size).random(size) ** 4
    share[size // 2 : size // 2 + size // 10] = 0
    share /= share.sum()
    stays, other = np.empty(size), np.empty(size, np.int64)
    _alias(share, stays, other)
    made = stays.copy()
    np.add.at(made, other, 1 - stays)
    assert made / size == pytest.approx(share, abs=1e-14)
    assert ((stays >= 0) & (stays <= 1)).all()


def test_the_same_stream_gives_the_same_people():
    setting = load_setting("news")
    one, two = (people(setting, 50, 20, stream=KeyedStream.from_seed(3)) for _ in range(2))
    assert (one.objects == two.objects).all()
    assert (one.delta == two.delta).all()
    assert (one.objects != people(setting, 50, 20, stream=KeyedStream.from_seed(4)).objects).any()


@pytest.mark.parametrize(
    "bad", [{"users": 0}, {"n": 0}, {"gamma": 0.0}, {"gamma": 1.1}, {"delta": 0.2}, {"delta": 1.01}]
)
def test_games_that_are_none(bad):
    with pytest.raises(UsageError):
        people(load_setting("news"), **{"users": 3, "n": 2, **bad}, stream=STREAM)
