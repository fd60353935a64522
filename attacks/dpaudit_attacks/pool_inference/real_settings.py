"""Settings from real files: emoji with what Twitter made of them, and news websites with AllSides' ratings."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.pool_inference.pools import Pools
from dpaudit_attacks.pool_inference.setting import Setting, whole
from dpaudit_attacks.pool_inference.synthetic_settings import RATINGS, TONES, zipf_shares

__all__ = ["rated_domains", "real_emoji", "real_news", "tones_of"]

_MODIFIERS = ("1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff")
_STYLE = "fe0f"  # asks for the picture rather than the letter; the tracker leaves it out, and a tone takes its place


def _lines(name: str) -> list[str]:
    text = (files("dpaudit_attacks.pool_inference") / "data" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line]


def _split(codepoints: str) -> tuple[str, int]:
    """An emoji without its tone, and the tone: 0 for none, 1 (light) to 5 (dark)."""
    parts = codepoints.split("-")
    tone = next((1 + _MODIFIERS.index(part) for part in parts if part in _MODIFIERS), 0)
    return "-".join(part for part in parts if part != _STYLE and part not in _MODIFIERS), tone


@cache
def tones_of() -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Unicode's emoji 11.0 as code points, and the places of each of those with skin tones, in the six of ``TONES``."""
    emoji = tuple(_lines("emoji_v11.txt"))
    places: dict[str, list[int]] = {}
    for i, codepoints in enumerate(emoji):
        base, tone = _split(codepoints)
        places.setdefault(base, [-1] * len(TONES))[tone] = i
    return emoji, tuple(tuple(six) for six in places.values() if six[1] >= 0)


def real_emoji(*, floor: float = 1.0) -> Setting:
    """All 2,780 fully qualified emoji of Unicode 11.0; the pools are the six tones of the 228 that have tones.

    The popularity is a model on real counts. Emojitracker counted 26,248,765,803 uses of 845 emoji on Twitter up to
    2 July 2019. It does not tell tones apart, so the count of an emoji that has tones is split evenly among its six: the
    same popularity in each pool, and no pool more popular than another. Emoji that it does not list (sequences such as a
    profession, and newer ones; 170 of the 228 with tones) are taken to be used ``floor`` times as often as the least used
    one it lists. What people do with tones (γ, δ, the preferred one) is the game's, as in all settings.

    Raises:
        UsageError: ``floor`` is not a number above 0.
    """
    if isinstance(floor, (bool, str)) or not 0 < floor < float("inf"):
        raise UsageError(f"setting=real-emoji: floor={floor!r} must be a number above 0")
    emoji, toned = tones_of()
    counted = {
        _split(code)[0]: float(n) for code, n in (line.split("\t") for line in _lines("emojitracker_2019-07-02.tsv"))
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

    A device reports domains: of ``mtv.com/news`` that is ``mtv.com``. Where several entries share a domain, the one
    without a path stands, as the paper keeps the news entry of a site that has two.
    """
    entries = [line.rsplit(",", 1) for line in _lines("allsides_2020-04.csv")]
    found: dict[str, str] = {}
    for name, rating in sorted(entries, key=lambda entry: "/" in entry[0]):
        found.setdefault(name.partition("/")[0], rating)
    return tuple(found.items())


def real_news(*, universe: int = 250_000, popularity: str = "uniform", seed: int = 0) -> Setting:
    """329 news websites as AllSides rated them: left, lean left, center, lean right, right; those rated mixed are neutral.

    The rest of the ``universe`` (Apple's has 250,000 domains) are websites without a name. Popularity is not in the data
    and is made up: ``uniform``, the paper's, draws each website's from [0, 1]; ``zipf`` gives the c-th of a random order,
    in each pool and in the rest, a share in proportion to 1/c, the groups weighing as many websites as they have.

    Raises:
        UsageError: a universe too small, or another ``popularity``.
    """
    whole("real-news", universe=universe)
    domains = rated_domains()
    if universe < len(domains):
        raise UsageError(f"setting=real-news: universe={universe} must hold the {len(domains)} rated domains")
    ratings = np.array([rating.lower() for _, rating in domains])
    pools = Pools(universe=universe, members=tuple(np.flatnonzero(ratings == rating) for rating in RATINGS))
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
