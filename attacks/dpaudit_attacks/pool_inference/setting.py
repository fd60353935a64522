"""Where the game is played: a universe of objects, pools that tell something about a person, and how popular objects are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks.pool_inference.pools import Pools

__all__ = ["Setting", "whole"]


@dataclass(frozen=True, eq=False)
class Setting:
    """A universe with its pools of interest, and the true popularity p_Ω of its objects.

    Between pools the popularity says nothing of a person (equation 6 normalises it within each pool); it says from what
    an adversary's other people draw who estimates it from them.
    """

    name: str
    pools: Pools
    popularity: npt.NDArray[np.float64]
    """Shape (universe,), adds up to 1."""
    labels: tuple[str, ...]
    """What each pool is called."""

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            UsageError: a popularity of another length, below 0 or not finite, or a pool (or the rest) with none at all.
        """
        p = self.popularity
        if p.shape != (self.pools.universe,) or not np.isfinite(p).all() or (p < 0).any():
            raise UsageError(f"setting={self.name}: a popularity is {self.pools.universe} finite numbers ≥ 0")
        if len(self.labels) != self.k:
            raise UsageError(f"setting={self.name}: {self.k} pools have {len(self.labels)} labels")
        for label, group in zip(("the neutral rest", *self.labels), self.groups, strict=True):
            if not p[group].sum() > 0:
                raise UsageError(
                    f"setting={self.name}: nobody ever chooses an object of {label}; leave such a pool out"
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
            raise UsageError(f"setting={setting}: {name}={value!r} must be a whole number of at least {least}")
