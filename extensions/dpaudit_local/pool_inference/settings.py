"""Settings by name: made up as in the paper, or real (emoji on Twitter, AllSides' ratings)."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.types import Reference
from dpaudit_local.pool_inference.pools import Pools, Setting, whole

__all__ = [
    "NEWS_POOLS",
    "RATINGS",
    "SETTINGS",
    "TONES",
    "Setting",
    "emojis",
    "equal_pools",
    "load_setting",
    "news",
    "rated_domains",
    "real_emoji",
    "real_news",
    "tones_of",
    "zipf_shares",
]


NEWS_POOLS = (14, 13, 13, 10, 10)
"""Websites rated left, lean left, center, lean right, right in the paper (Section 4)."""
TONES = ("no tone", "light", "medium-light", "medium", "medium-dark", "dark")
RATINGS = ("left", "lean left", "center", "lean right", "right")


def zipf_shares(size: int, exponent: float) -> npt.NDArray[np.float64]:
    """Zipf's law on ``size`` objects (size,): the c-th has a share ∝ c^−exponent."""
    weight = np.arange(1.0, size + 1) ** -exponent
    share: npt.NDArray[np.float64] = weight / weight.sum()
    return share


def _in_a_row(universe: int, sizes: Sequence[int]) -> Pools:
    """Pools one after the other from object 0; the rest is neutral."""
    ends = np.cumsum([0, *sizes])
    if min(sizes) < 1 or ends[-1] >= universe:
        raise UsageError(
            f"universe={universe}: must leave a neutral object outside pools of "
            f"{', '.join(map(str, sizes))}"
        )
    return Pools(
        universe=universe, members=tuple(np.arange(a, b) for a, b in itertools.pairwise(ends))
    )


def _zipfian(
    name: str, universe: int, sizes: Sequence[int], exponent: float, labels: tuple[str, ...]
) -> Setting:
    """Equations 7 and 8: Zipf's law within each of k + 1 groups of equal mass."""
    whole(name, universe=universe, size=min(sizes))
    if isinstance(exponent, (bool, str)) or not 0 <= exponent <= 100:
        raise UsageError(
            f"setting={name}: zipf={exponent!r} must be a number from 0 (all alike) to 100"
        )
    pools = _in_a_row(universe, sizes)
    groups = [zipf_shares(size, exponent) for size in (*sizes, universe - sum(sizes))]
    return Setting(name, pools, np.concatenate(groups) / len(groups), labels)


def emojis(*, universe: int = 2600, size: int = 228, zipf: float = 1.2) -> Setting:
    """Setting 1: 2,600 emoji, 228 of them in each of six skin tones.

    Zipf's law with exponent 1.2 in each (eq. 7 and 8).

    Raises:
        UsageError: six pools do not fit, or nothing is left outside them.
    """
    return _zipfian("emojis", universe, (size,) * len(TONES), zipf, TONES)


def equal_pools(*, size: int, zipf: float, universe: int = 2600, pools: int = 6) -> Setting:
    """Appendix A.3: six equal pools of ``size`` objects.

    Zipf's law with exponent ``zipf`` (0: all alike) in each.

    Raises:
        UsageError: fewer than two pools, or they do not fit.
    """
    whole("equal-pools", least=2, pools=pools)
    return _zipfian(
        "equal-pools", universe, (size,) * pools, zipf, tuple(f"pool {i + 1}" for i in range(pools))
    )


def news(*, universe: int = 2000, seed: int = 0) -> Setting:
    """Setting 2: five pools of 14, 13, 13, 10 and 10 websites.

    Each website's popularity is uniform in [0, 1], then scaled so that each pool and the rest have
    the same share, 1/6, as in the program that made the paper's tables (its text has pools of the
    share that is drawn; users and the weak adversary are the same in both, as equation 6 scales
    within each pool). ``seed`` draws the popularity (the paper drew it once). Apple's universe has
    250,000 websites, the paper's tables 2,000.

    Raises:
        UsageError: nothing is left outside the pools.
    """
    whole("news", universe=universe)
    pools = _in_a_row(universe, NEWS_POOLS)
    popularity = KeyedStream.from_seed(f"news {seed}").numpy().random(universe)
    popularity /= np.bincount(pools.labels, popularity)[pools.labels]
    return Setting("news", pools, popularity / popularity.sum(), RATINGS)


_MODIFIERS = ("1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff")
# asks for the picture rather than the letter; the tracker leaves it out, and a tone takes its place
_STYLE = "fe0f"


def _lines(name: str) -> list[str]:
    text = (files("dpaudit_local.pool_inference") / "data" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line]


def _split(codepoints: str) -> tuple[str, int]:
    """An emoji without its tone, and the tone: 0 for none, 1 (light) to 5 (dark)."""
    parts = codepoints.split("-")
    tone = next((1 + _MODIFIERS.index(part) for part in parts if part in _MODIFIERS), 0)
    return "-".join(part for part in parts if part != _STYLE and part not in _MODIFIERS), tone


@cache
def tones_of() -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Unicode's emoji 11.0 as code points, and the places of each tone of ``TONES``."""
    emoji = tuple(_lines("emoji_v11.txt"))
    places: dict[str, list[int]] = {}
    for i, codepoints in enumerate(emoji):
        base, tone = _split(codepoints)
        places.setdefault(base, [-1] * len(TONES))[tone] = i
    return emoji, tuple(tuple(six) for six in places.values() if six[1] >= 0)


def real_emoji(*, floor: float = 1.0) -> Setting:
    """All 2,780 fully qualified emoji of Unicode 11.0.

    The pools are the six tones of the 228 that have tones. The popularity is a model on real
    counts. Emojitracker counted 26,248,765,803 uses of 845 emoji on Twitter up to 2 July 2019. It
    does not tell tones apart, so the count of an emoji that has tones is split evenly among its
    six: the same popularity in each pool, and no pool more popular than another. Emoji that it does
    not list (sequences such as a profession, and newer ones; 170 of the 228 with tones) are taken
    to be used ``floor`` times as often as the least used one it lists. What people do with tones
    (γ, δ, the preferred one) is the game's, as in all settings.

    Raises:
        UsageError: ``floor`` is not a number above 0.
    """
    if isinstance(floor, (bool, str)) or not 0 < floor < float("inf"):
        raise UsageError(f"setting=real-emoji: floor={floor!r} must be a number above 0")
    emoji, toned = tones_of()
    counted = {
        _split(code)[0]: float(n)
        for code, n in (line.split("\t") for line in _lines("emojitracker_2019-07-02.tsv"))
    }
    unlisted = floor * min(counted.values())
    popularity = np.array([counted.get(_split(codepoints)[0], unlisted) for codepoints in emoji])
    members = np.array(toned, np.int64)
    popularity[members] /= len(TONES)
    pools = Pools(universe=len(emoji), members=tuple(members.T.copy()))
    return Setting("real-emoji", pools, popularity / popularity.sum(), TONES)


@cache
def rated_domains() -> tuple[tuple[str, str], ...]:
    """News domains with AllSides' rating of April 2020, in the order of the file.

    A device reports domains: of ``mtv.com/news`` that is ``mtv.com``. Where several entries share a
    domain, the one without a path stands, as the paper keeps the news entry of a site that has two.
    """
    entries = [line.rsplit(",", 1) for line in _lines("allsides_2020-04.csv")]
    found: dict[str, str] = {}
    for name, rating in sorted(entries, key=lambda entry: "/" in entry[0]):
        found.setdefault(name.partition("/")[0], rating)
    return tuple(found.items())


def real_news(*, universe: int = 250_000, popularity: str = "uniform", seed: int = 0) -> Setting:
    """329 news websites as AllSides rated them.

    Left, lean left, center, lean right, right; those rated mixed are neutral. The rest of the
    ``universe`` (Apple's has 250,000 domains) are websites without a name. Popularity is not in the
    data and is made up: ``uniform``, the paper's, draws each website's from [0, 1]; ``zipf`` gives
    the c-th of a random order, in each pool and in the rest, a share in proportion to 1/c, the
    groups weighing as many websites as they have.

    Raises:
        UsageError: a universe too small, or another ``popularity``.
    """
    whole("real-news", universe=universe)
    domains = rated_domains()
    if universe < len(domains):
        raise UsageError(
            f"setting=real-news: universe={universe} must hold the {len(domains)} rated domains"
        )
    ratings = np.array([rating.lower() for _, rating in domains])
    pools = Pools(
        universe=universe, members=tuple(np.flatnonzero(ratings == rating) for rating in RATINGS)
    )
    random = KeyedStream.from_seed(f"real news {seed}").numpy()
    if popularity == "uniform":
        p = random.random(universe)
        return Setting("real-news", pools, p / p.sum(), RATINGS)
    if popularity != "zipf":
        raise UsageError(f"setting=real-news: popularity={popularity!r} must be uniform or zipf")
    p = np.zeros(universe)
    rest = np.setdiff1d(np.arange(universe), np.concatenate(pools.members))
    for group in (rest, *pools.members):
        p[random.permutation(group)] = len(group) / universe * zipf_shares(len(group), 1.0)
    return Setting("real-news", pools, p, RATINGS)


SETTINGS: dict[str, Callable[..., Setting]] = {
    "emojis": emojis,
    "equal-pools": equal_pools,
    "news": news,
    "real-emoji": real_emoji,
    "real-news": real_news,
}


def load_setting(text: str) -> Setting:
    """A setting as people write it.

    ``emojis``, ``news:universe=250000``, ``equal-pools:size=50,zipf=0.5``.

    Raises:
        UsageError: no such setting, an option that it does not take or lacks, or one that makes no
            sense.

    >>> round(load_setting("equal-pools:size=10,zipf=0").entropies()[0], 2)
    3.32
    """
    reference = Reference.parse(text)
    name = reference.name
    if name not in SETTINGS:
        raise UsageError(f"setting={name}: not known{nearest(name, SETTINGS)}")
    takes = inspect.signature(SETTINGS[name])
    try:
        takes.bind(**reference.options)
    except TypeError as error:
        raise UsageError(
            f"setting={name}: {error}; it takes {', '.join(takes.parameters)}"
        ) from error
    return SETTINGS[name](**reference.options)
