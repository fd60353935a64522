"""Where the game is played: a universe of objects, pools that tell about a person, popularity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["Pools", "Setting", "whole"]


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
        return np.bincount(self.labels, self._checked(popularity), self.k + 1).astype(np.float64)

    def weights(self, popularity: npt.NDArray[np.float64] | None = None) -> npt.NDArray[np.float64]:
        """p̂(z)/p̂(P_i) of each object z, where P_i is its pool, shape (universe,).

        None: a uniform popularity. A pool to which the popularity gives nothing at all is taken as
        uniform (0/0 says nothing of its objects).

        Raises:
            UsageError: a popularity of another length, below 0 or not finite.
        """
        popularity = self._checked(popularity)
        mass = self.masses(popularity)
        nothing = mass == 0
        weights = np.where(nothing[self.labels], 1.0, popularity)
        mass[nothing] = self.sizes[nothing]
        return weights / mass[self.labels]

    def _checked(self, popularity: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
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
    """What each pool is called."""

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
                    f"setting={self.name}: nobody ever chooses an object of {label}; "
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
