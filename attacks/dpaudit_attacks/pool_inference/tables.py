"""Per-hash popularity tables: each pool's popularity summed by sketch position, for one hash function after the other.

A pool's sum over its objects needs, for each hash function, only this table, so an observation costs the same for a
universe of 2,000 objects and of 250,000; what grows with the universe is one pass over the neutral pool for each hash
function that occurs, kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.local.hashing import HashFamily
from dpaudit_attacks.pool_inference.pools import Pools

__all__ = ["LANES", "PoolTables", "Rows", "fill_table"]

LANES = 8
"""Pools side by side in a table: one vector register of doubles."""

_KEPT = 5 << 27  # bytes of one kind of rows that may be kept: 640 MiB

jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


class Rows:
    """A row for each hash function, computed when first asked for, and kept if all rows together take at most 640 MiB."""

    def __init__(
        self, count: int, width: int, dtype: npt.DTypeLike, fill: Callable[[int, npt.NDArray[Any]], None]
    ) -> None:
        """``fill(function, row)`` writes a row (width,) that starts as zeros."""
        self._width, self._dtype, self._fill = width, np.dtype(dtype), fill
        self._kept = count * width * self._dtype.itemsize <= _KEPT
        self._table = np.empty((count if self._kept else 0, width), self._dtype)  # takes memory as it is written
        self._known = np.zeros(count, bool)

    def rows(self, functions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """A table, and the index in it of each of ``functions`` (f,), all different."""
        if not self._kept:
            table = np.zeros((len(functions), self._width), self._dtype)
            for row, function in zip(table, functions.tolist(), strict=True):
                self._fill(function, row)
            return table, np.arange(len(functions))
        for function in functions[~self._known[functions]].tolist():
            row = np.zeros(self._width, self._dtype)
            self._fill(function, row)
            self._table[function] = row  # whole and always the same: two threads that meet here do no harm
            self._known[function] = True
        return self._table, functions


class PoolTables:
    """What the tables of all hash functions are made from: where pools' members lie, and the neutral pool's sums.

    Kept, for 65,536 functions and m = 1024: 128 KiB for each member of a pool of interest (16-bit positions; 171 MiB for six
    pools of 228), and for the neutral pool 16-bit counts where its objects weigh alike (128 MiB; 32-bit above 65,535
    objects), else 64-bit sums (512 MiB; 32-bit ones, each 6e-8 of itself off at most, where 64-bit ones would take more
    than 640 MiB). Positions that would take more than 640 MiB are computed anew in each call, whose cost then grows with the
    pools of interest.
    """

    def __init__(self, hashes: HashFamily, pools: Pools, popularity: npt.NDArray[np.float64] | None) -> None:
        """Tables for an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self.hashes, self.pools = hashes, pools
        self._members = np.concatenate(pools.members)
        self.column = pools.labels[self._members]
        dtype = np.uint16 if hashes.size <= 1 << 16 else np.uint32
        self.positions = Rows(hashes.count, len(self._members), dtype, self._fill_positions)
        self._weigh(popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> PoolTables:
        """The same for another adversary; members' positions are shared."""
        other = object.__new__(PoolTables)
        other.hashes, other.pools, other._members = self.hashes, self.pools, self._members
        other.column, other.positions = self.column, self.positions
        other._weigh(popularity)
        return other

    def _weigh(self, popularity: npt.NDArray[np.float64] | None) -> None:
        weights = self.pools.weights(popularity)
        self.weight = weights[self._members]
        neutral = weights[self.pools.neutral]
        count, size = self.hashes.count, self.hashes.size
        if not len(neutral) or (neutral == neutral[0]).all():
            self.scale = float(neutral[0]) if len(neutral) else 0.0
            self._neutral_weights = None
            counts = np.uint16 if len(neutral) < 1 << 16 else np.uint32
            self.neutral = Rows(count, size, counts, self._fill_neutral)
        else:
            self.scale = 1.0
            self._neutral_weights = neutral
            sums = np.float64 if 8 * count * size <= _KEPT else np.float32
            self.neutral = Rows(count, size, sums, self._fill_neutral)

    def _fill_positions(self, function: int, row: npt.NDArray[Any]) -> None:
        row[:] = self.hashes.positions(self._members, function)

    def _fill_neutral(self, function: int, row: npt.NDArray[Any]) -> None:
        positions = self.hashes.positions(self.pools.neutral, function)
        if self._neutral_weights is None:
            _count(positions, row)
        else:
            sums = np.zeros(len(row))
            _add(positions, self._neutral_weights, sums)
            row[:] = sums


@jit
def _count(positions, row):  # type: ignore[no-untyped-def]
    for p in positions:
        row[p] += 1


@jit
def _add(positions, weights, row):  # type: ignore[no-untyped-def]
    for z in range(positions.size):
        row[positions[z]] += weights[z]


@jit
def fill_table(table, positions, column, weight, neutral, scale):  # type: ignore[no-untyped-def]
    """One function's ``table`` (blocks of 8 pools, m or more, 8) from its rows of positions and of the neutral pool."""
    table[1:], table[:, neutral.size :] = 0.0, 0.0
    first = table[0]
    for p in range(neutral.size):
        first[p, 0] = scale * neutral[p]
        for i in range(1, LANES):
            first[p, i] = 0.0
    for z in range(positions.size):
        c = column[z]
        table[c >> 3, positions[z], c & 7] += weight[z]
