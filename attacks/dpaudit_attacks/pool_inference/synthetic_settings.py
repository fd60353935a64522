"""Settings made up as in the paper: six skin tones of emoji, five ratings of news websites, equal pools of any size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.pool_inference.pools import Pools
from dpaudit_attacks.pool_inference.setting import Setting, whole

__all__ = ["NEWS_POOLS", "RATINGS", "TONES", "emojis", "equal_pools", "news", "zipf_shares"]

NEWS_POOLS = (14, 13, 13, 10, 10)
"""How many websites are rated left, lean left, center, lean right, right in the paper (Section 4, setting 2)."""
TONES = ("no tone", "light", "medium-light", "medium", "medium-dark", "dark")
RATINGS = ("left", "lean left", "center", "lean right", "right")


def zipf_shares(size: int, exponent: float) -> npt.NDArray[np.float64]:
    """Zipf's law on ``size`` objects: the c-th has a share in proportion to c^−exponent, shape (size,)."""
    weight = np.arange(1.0, size + 1) ** -exponent
    share: npt.NDArray[np.float64] = weight / weight.sum()
    return share


def _in_a_row(universe: int, sizes: Sequence[int]) -> Pools:
    """Pools one after the other from object 0; the rest is neutral."""
    ends = np.cumsum([0, *sizes])
    if min(sizes) < 1 or ends[-1] >= universe:
        raise UsageError(
            f"universe={universe}: must leave a neutral object beside pools of {', '.join(map(str, sizes))}"
        )
    return Pools(universe=universe, members=tuple(np.arange(a, b) for a, b in itertools.pairwise(ends)))


def _zipfian(name: str, universe: int, sizes: Sequence[int], exponent: float, labels: tuple[str, ...]) -> Setting:
    """Equations 7 and 8: Zipf's law within each pool and within the rest, k + 1 groups of equal mass."""
    whole(name, universe=universe, size=min(sizes))
    if isinstance(exponent, (bool, str)) or not 0 <= exponent <= 100:
        raise UsageError(f"setting={name}: zipf={exponent!r} must be a number from 0 (all alike) to 100")
    pools = _in_a_row(universe, sizes)
    groups = [zipf_shares(size, exponent) for size in (*sizes, universe - sum(sizes))]
    return Setting(name, pools, np.concatenate(groups) / len(groups), labels)


def emojis(*, universe: int = 2600, size: int = 228, zipf: float = 1.2) -> Setting:
    """Setting 1: 2,600 emoji, 228 of them in each of six skin tones, Zipf's law with exponent 1.2 in each (eq. 7 and 8).

    Raises:
        UsageError: six pools do not fit, or nothing is left beside them.
    """
    return _zipfian("emojis", universe, (size,) * len(TONES), zipf, TONES)


def equal_pools(*, size: int, zipf: float, universe: int = 2600, pools: int = 6) -> Setting:
    """Appendix A.3: six equal pools of ``size`` objects, Zipf's law with exponent ``zipf`` (0: all alike) in each.

    Raises:
        UsageError: fewer than two pools, or they do not fit.
    """
    whole("equal-pools", least=2, pools=pools)
    return _zipfian("equal-pools", universe, (size,) * pools, zipf, tuple(f"pool {i + 1}" for i in range(pools)))


def news(*, universe: int = 2000, seed: int = 0, masses: str = "equal") -> Setting:
    """Setting 2: five pools of 14, 13, 13, 10 and 10 websites; each website's popularity is uniform in [0, 1], then scaled.

    ``seed`` draws the popularity (the paper drew it once). Apple's universe has 250,000 websites, the paper's tables 2,000.
    ``masses`` says how it is scaled. ``drawn``, as the paper's text has it: all at once, so that a pool's share is about
    that of its websites. ``equal``, as in the program that made the paper's tables: each pool and the rest to the same
    share, 1/6. Users and the weak adversary are the same in both (equation 6 scales within each pool). The strong one
    estimates pools far better in the second, and a sketch's estimates are worse there, since hash collisions with a
    website count in proportion to its share.

    Raises:
        UsageError: nothing is left beside the pools, or other ``masses``.
    """
    whole("news", universe=universe)
    if masses not in ("equal", "drawn"):
        raise UsageError(f"setting=news: masses={masses!r} must be equal or drawn")
    pools = _in_a_row(universe, NEWS_POOLS)
    popularity = KeyedStream.from_seed(f"news {seed}").numpy().random(universe)
    if masses == "equal":
        shares = np.bincount(pools.labels, popularity)
        popularity /= shares[pools.labels]
    return Setting("news", pools, popularity / popularity.sum(), RATINGS)
