"""Settings of the game: a universe of objects, pools that tell about a person, popularity.

Settings have names: made up as in the paper, or real (emoji on Twitter, AllSides' ratings).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.registry import nearest
from dpaudit.types import Reference

__all__ = ["Pools", "Setting", "equal_pools", "load_setting", "rated_domains", "tones_of"]


@dataclass(frozen=True, eq=False)
class Pools:
    """Disjoint sets P_1 … P_k of objects of a universe 0 … universe − 1.

    The rest is the neutral pool, number 0.

    >>> Pools(6, (np.array([0, 1]), np.array([4]))).labels.tolist()
    [1, 1, 0, 0, 2, 0]
    """

    universe: int
    members: tuple[npt.NDArray[np.int64], ...]
    """The objects of each pool, at least two pools, none empty."""

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            UsageError: fewer than two pools, an empty one, an object outside the universe or in two
                places.
        """
        if len(self.members) < 2 or not all(len(m) for m in self.members):
            raise UsageError(
                f"pools={len(self.members)}: there must be at least two, and no pool may be empty"
            )
        every = np.concatenate(self.members)
        if not np.issubdtype(every.dtype, np.integer):
            raise UsageError(f"pools of type {every.dtype}: objects are whole numbers")
        if every.min() < 0 or every.max() >= self.universe:
            raise UsageError(
                f"pools of {every.min()} … {every.max()}: the universe is 0 … {self.universe - 1}"
            )
        if len(np.unique(every)) < len(every):
            raise UsageError("pools: an object lies in two pools; pools of interest are disjoint")

    @property
    def k(self) -> int:
        """How many pools of interest."""
        return len(self.members)

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """The pool of each object, shape (universe,): 0 for neutral, 1 … k."""
        labels = np.zeros(self.universe, np.int64)
        for i, members in enumerate(self.members):
            labels[members] = i + 1
        return labels

    @cached_property
    def neutral(self) -> npt.NDArray[np.int64]:
        """The objects in no pool of interest; may be none."""
        return np.flatnonzero(self.labels == 0)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many objects each pool has, shape (k + 1,), the neutral one first."""
        return np.bincount(self.labels, minlength=self.k + 1)

    def masses(self, popularity: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        """The popularity p̂(P_i) of each pool, shape (k + 1,), the neutral one first.

        None: every object counts alike.

        Raises:
            UsageError: as in :meth:`weights`.
        """
        return np.bincount(self.labels, self._valid(popularity), self.k + 1).astype(np.float64)

    def weights(self, popularity: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        """p̂(z)/p̂(P_i) of each object z, where P_i is its pool, shape (universe,).

        None: a uniform popularity. A pool to which the popularity gives nothing at all is taken as
        uniform (0/0 says nothing of its objects).

        Raises:
            UsageError: a popularity of another length, below 0 or not finite.
        """
        popularity = self._valid(popularity)
        mass = self.masses(popularity)
        nothing = mass == 0
        weights = np.where(nothing[self.labels], 1.0, popularity)
        mass[nothing] = self.sizes[nothing]
        return weights / mass[self.labels]

    def _valid(self, popularity: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
        if popularity is None:
            return np.ones(self.universe)
        popularity = np.asarray(popularity, np.float64)
        if (
            popularity.shape != (self.universe,)
            or not np.isfinite(popularity).all()
            or popularity.min() < 0
        ):
            raise UsageError(
                f"popularity of shape {popularity.shape}: needs {self.universe} finite numbers ≥ 0"
            )
        return popularity


@dataclass(frozen=True, eq=False)
class Setting:
    """A universe with its pools of interest, and the true popularity p_Ω of its objects.

    Between pools the popularity says nothing of a person (equation 6 normalises it within each
    pool); it says from what an adversary's other people draw who estimates it from them.
    """

    name: str
    pools: Pools
    popularity: npt.NDArray[np.float64]
    """Shape (universe,), adds up to 1."""
    labels: tuple[str, ...]
    """The names of the pools."""

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            UsageError: a popularity of another length, below 0 or not finite, or a pool (or the
                rest) with none at all.
        """
        p = self.popularity
        if p.shape != (self.pools.universe,) or not np.isfinite(p).all() or (p < 0).any():
            raise UsageError(
                f"setting={self.name}: a popularity is {self.pools.universe} finite numbers ≥ 0"
            )
        if len(self.labels) != self.k:
            raise UsageError(f"setting={self.name}: {self.k} pools have {len(self.labels)} labels")
        for label, group in zip(("the neutral rest", *self.labels), self.groups, strict=True):
            if not p[group].sum() > 0:
                raise UsageError(
                    f"setting={self.name}: no object of {label} has any popularity; "
                    "leave such a pool out"
                )

    @property
    def universe(self) -> int:
        """How many objects there are: 0 … universe − 1."""
        return self.pools.universe

    @property
    def k(self) -> int:
        """The number of pools of interest."""
        return self.pools.k

    @cached_property
    def groups(self) -> tuple[npt.NDArray[np.int64], ...]:
        """The neutral objects, then each pool's: k + 1 arrays of objects."""
        return self.pools.neutral, *self.pools.members

    def within(self, group: int) -> npt.NDArray[np.float64]:
        """The popularity within ``groups[group]``: p_Ω(x)/p_Ω(P)."""
        p = self.popularity[self.groups[group]]
        share: npt.NDArray[np.float64] = p / p.sum()
        return share

    def entropies(self) -> tuple[float, ...]:
        """The entropy in bits of the popularity within each pool (Table 4)."""
        shares = (self.within(1 + i) for i in range(self.k))
        return tuple(float(-(p[p > 0] * np.log2(p[p > 0])).sum()) for p in shares)


def whole(setting: str, *, least: int = 1, **options: object) -> None:
    """Check that options are whole numbers, ``least`` or more.

    Raises:
        UsageError: one is not.
    """
    for name, value in options.items():
        if type(value) is not int or value < least:
            raise UsageError(
                f"setting={setting}: {name}={value!r} must be a whole number of at least {least}"
            )


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
    ratings: dict[str, str] = {}
    for name, rating in sorted(entries, key=lambda entry: "/" in entry[0]):
        ratings.setdefault(name.partition("/")[0], rating)
    return tuple(ratings.items())


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
