"""The settings: pools, popularity, real files, and what is refused."""

import numpy as np
import pytest

from dpaudit.errors import UsageError
from dpaudit_local.pool_inference.settings import (
    Setting,
    equal_pools,
    load_setting,
    rated_domains,
    tones_of,
)

TABLE_4 = {
    10: (3.32, 3.22, 2.88, 1.78, 0.48),
    50: (5.64, 5.44, 4.61, 2.19, 0.48),
    200: (7.64, 7.36, 5.99, 2.31, 0.48),
    400: (8.64, 8.33, 6.64, 2.33, 0.48),
}
WAYS = ["emojis", "news", "news:universe=25000", "equal-pools:size=50,zipf=0.5",
        "real-emoji", "real-news",
        "real-news:popularity=zipf,universe=2000"]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_groups_are_a_partition_and_popularity_a_law(way):
    setting = load_setting(way)
    everything = np.concatenate(setting.groups)
    assert len(everything) == setting.universe
    assert (np.sort(everything) == np.arange(setting.universe)).all()
    assert setting.popularity.sum() == pytest.approx(1)
    for i, group in enumerate(setting.groups):
        assert setting.within(i) == pytest.approx(
            setting.popularity[group] / setting.popularity[group].sum()
        )
    assert len(setting.entropies()) == setting.k == len(setting.labels)


@pytest.mark.parametrize("size", TABLE_4)
def test_table_4(size):
    for zipf, published in zip((0, 0.5, 1, 2, 4), TABLE_4[size], strict=True):
        assert equal_pools(size=size, zipf=zipf).entropies() == pytest.approx(
            (published,) * 6, abs=0.0051
        )


def test_emojis_as_in_equations_7_and_8():
    setting = load_setting("emojis")
    assert (setting.universe, setting.k, len(setting.groups[0])) == (2600, 6, 2600 - 6 * 228)
    assert [setting.popularity[group].sum() for group in setting.groups] == pytest.approx(
        [1 / 7] * 7
    )
    for group in setting.groups:
        assert setting.popularity[group[4]] / setting.popularity[group[0]] == pytest.approx(5**-1.2)


def test_news():
    setting = load_setting("news")
    assert [len(members) for members in setting.pools.members] == [14, 13, 13, 10, 10]
    rest = setting.within(0) / setting.within(0).max()
    assert abs(rest.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 1940)
    assert [setting.popularity[group].sum() for group in setting.groups] == pytest.approx(
        [1 / 6] * 6
    )
    assert (load_setting("news").popularity == setting.popularity).all()
    assert (load_setting("news:seed=1").popularity != setting.popularity).any()


def test_real_emoji():
    emoji, toned = tones_of()
    assert (len(emoji), len(toned)) == (2780, 228)
    thumbs = next(six for six in toned if emoji[six[0]] == "1f44d")
    assert [emoji[i] for i in thumbs] == ["1f44d", *(f"1f44d-1f3f{tone}" for tone in "bcdef")]
    setting = load_setting("real-emoji")
    tears = setting.popularity[emoji.index("1f602")] / 2_469_042_098
    for at, count in (
        (list(thumbs), 249_064_384),
        ([emoji.index("1f469-200d-2708-fe0f")], 174_478),
    ):
        share = setting.popularity[at] / tears
        assert share == pytest.approx([count / 6] * len(at))  # thumbs up; the least listed
    assert all(setting.within(1 + i) == pytest.approx(setting.within(1)) for i in range(6))
    assert load_setting("real-emoji:floor=0.5").entropies()[0] < setting.entropies()[0]


def test_real_news():
    domains = dict(rated_domains())
    assert len(domains) == 328  # of 329 entries two are the same site
    assert domains["mtv.com"]
    assert not any("/" in name for name in domains)
    setting = load_setting("real-news")
    assert [len(members) for members in setting.pools.members] == [50, 75, 111, 36, 43]
    names = list(domains)
    assert [domains[names[i]] for i in setting.pools.members[4]] == ["Right"] * 43
    assert sum(rating == "Mixed" for rating in domains.values()) == 13
    steep = load_setting("real-news:popularity=zipf")
    assert steep.within(3).max() == pytest.approx(1 / (1 / np.arange(1, 112)).sum())


@pytest.mark.parametrize(
    "bad",
    ["emoji", "news:universes=100", "emojis:size=500", "emojis:tones=6", "equal-pools:size=10",
     "equal-pools:size=10,zipf=x",
      "equal-pools:size=10,zipf=-1", "equal-pools:size=10,zipf=1,pools=1",
      "news:universe=60", "news:universe=1e3",
      "real-emoji:floor=0", "real-news:universe=300",
      "real-news:popularity=benford"],
)  # fmt: skip
def test_settings_that_are_none(bad):
    with pytest.raises(UsageError):
        load_setting(bad)


def test_a_pool_that_nobody_chooses():
    emojis = load_setting("emojis")
    popularity = emojis.popularity * (emojis.pools.labels != 3)
    with pytest.raises(UsageError, match="medium-light"):
        Setting("emojis", emojis.pools, popularity, emojis.labels)
