"""Evidence in reports of sketches.

Computed from tables of each pool's popularity summed by sketch position, one per hash function. A
pool's sum over its objects needs only its function's table, so an observation costs the same for a
universe of 2,000 objects and of 250,000; what grows with the universe is one pass over the neutral
pool for each hash function that occurs, kept.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from dpaudit_local.mechanisms.coins import unpack_words
from dpaudit_local.mechanisms.hashing import HashFamily
from dpaudit_local.mechanisms.reports import HadamardReports, SketchReports
from dpaudit_local.pool_inference.settings import Pools

__all__ = ["HadamardEvidence", "SketchEvidence"]

LANES = 8
"""Pools side by side in a table: one vector register of doubles."""

_MOST_KEPT_BYTES = 5 << 27  # bytes of one kind of rows that may be kept: 640 MiB

jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


class Rows:
    """A row per hash function, computed on demand, kept if all take at most 640 MiB."""

    def __init__(
        self,
        count: int,
        width: int,
        dtype: npt.DTypeLike,
        fill: Callable[[int, npt.NDArray[Any]], None],
    ) -> None:
        """``fill(function, row)`` writes a row (width,) that starts as zeros."""
        self._width, self._dtype, self._fill = width, np.dtype(dtype), fill
        self._kept = count * width * self._dtype.itemsize <= _MOST_KEPT_BYTES
        # takes memory as it is written
        self._table = np.empty((count if self._kept else 0, width), self._dtype)
        self._known = np.zeros(count, bool)

    def rows(
        self, functions: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """A table, and the index in it of each of ``functions`` (f,), all different."""
        if not self._kept:
            table = np.zeros((len(functions), self._width), self._dtype)
            for row, function in zip(table, functions.tolist(), strict=True):
                self._fill(function, row)
            return table, np.arange(len(functions))
        for function in functions[~self._known[functions]].tolist():
            row = np.zeros(self._width, self._dtype)
            self._fill(function, row)
            # whole and always the same: two threads that meet here do no harm
            self._table[function] = row
            self._known[function] = True
        return self._table, functions


class PoolTables:
    """The data from which the tables of all hash functions are computed.

    Where pools' members lie, and the neutral pool's sums. Kept, for 65,536 functions and m = 1024:
    128 KiB for each member of a pool of interest (16-bit positions; 171 MiB for six pools of 228),
    and for the neutral pool 16-bit counts where its objects weigh alike (128 MiB; 32-bit above
    65,535 objects), else 64-bit sums (512 MiB; 32-bit ones, each 6e-8 of itself off at most, where
    64-bit ones would take more than 640 MiB). Positions that would take more than 640 MiB are
    computed anew in each call, whose cost then grows with the pools of interest.
    """

    def __init__(
        self, hashes: HashFamily, pools: Pools, popularity: npt.NDArray[np.float64] | None
    ) -> None:
        """Tables for an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self.hashes, self.pools = hashes, pools
        self._members = np.concatenate(pools.members)
        self.column = pools.labels[self._members]
        dtype = np.uint16 if hashes.size <= 1 << 16 else np.uint32
        self.positions = Rows(hashes.count, len(self._members), dtype, self._fill_positions)
        self._weigh(popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> PoolTables:
        """The same for another adversary; members' positions are shared."""
        other = copy.copy(self)
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
            sums = np.float64 if 8 * count * size <= _MOST_KEPT_BYTES else np.float32
            self.neutral = Rows(count, size, sums, self._fill_neutral)

    @property
    def weights(self) -> Weights:
        """The summands of the loops."""
        return Weights(self.column, self.weight, self.scale)

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
    """One function's ``table`` (blocks of 8, m or more, 8) from its rows and the neutral pool's."""
    table[1:], table[:, neutral.size :] = 0.0, 0.0
    first = table[0]
    for p in range(neutral.size):
        first[p, 0] = scale * neutral[p]
        for i in range(1, LANES):
            first[p, i] = 0.0
    for z in range(positions.size):
        c = column[z]
        table[c >> 3, positions[z], c & 7] += weight[z]


class Part(NamedTuple):
    """Reports of some hash functions, and these functions' rows."""

    order: npt.NDArray[np.int64]
    """``order[starts[f]:starts[f + 1]]`` are the reports of the part's f-th function."""
    starts: npt.NDArray[np.int64]
    positions: npt.NDArray[Any]
    """``positions[at[f]]`` is its row of the members' positions."""
    at: npt.NDArray[np.int64]
    neutral: npt.NDArray[Any]
    """``neutral[neutral_at[f]]`` is its row of the neutral pool."""
    neutral_at: npt.NDArray[np.int64]


class Weights(NamedTuple):
    """The summands of members, (members,) each, and the factor of the neutral pool's rows."""

    column: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    scale: float


# hash functions at a time: bounds what is computed anew where rows are too many to keep
_FUNCTIONS = 1 << 12


def by_function(
    function: npt.NDArray[np.uint32],
    tables: PoolTables,
    work: Callable[[Part], None],
    *,
    threads: int,
) -> None:
    """Call ``work`` for parts of the reports, in ``threads`` threads.

    ``function`` (n,) are some of the family's, as the mechanism's ``check`` makes sure.
    """
    if not len(function):
        return
    short = tables.hashes.count <= 1 << 16
    order = np.argsort(function.astype(np.uint16) if short else function, kind="stable")
    distinct, starts = np.unique(function[order], return_index=True)
    starts = np.append(starts, len(order))
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(distinct), _FUNCTIONS):
            part = distinct[first : first + _FUNCTIONS].astype(np.int64)
            borders = starts[first : first + len(part) + 1]
            rows: tuple[Any, ...] = (*tables.positions.rows(part), *tables.neutral.rows(part))
            cuts = np.linspace(0, len(part), threads + 1).astype(int)
            tasks = [
                pool.submit(
                    work,
                    Part(order, borders[a : b + 1], rows[0], rows[1][a:b], rows[2], rows[3][a:b]),
                )
                for a, b in itertools.pairwise(cuts.tolist())
                if a < b
            ]
            for task in tasks:
                task.result()


class _TableEvidence:
    """Evidence in sketches for an adversary with ``popularity`` (universe,); None is uniform."""

    def __init__(
        self, mechanism: Any, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
    ) -> None:
        self._mechanism, self._tables = mechanism, PoolTables(mechanism.hashes, pools, popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> Self:
        """The same for another popularity, sharing what depends on pools alone."""
        other = copy.copy(self)
        other._tables = self._tables.against(popularity)
        return other


class HadamardEvidence(_TableEvidence):
    """E_i = 1 + tanh(ε/2)·y·Σ_{z∈P_i} w_z·H[l, h_j(z)].

    The sign y of coordinate l is kept with probability e^ε/(1 + e^ε). The sum is coordinate l of
    the Walsh–Hadamard transform of the function's popularity table, made once per call for each
    function that occurs: 10·1024 additions of eight pools at m = 1024, then one multiplication per
    observation. No sum is below 2q = 2/(1 + e^ε), whatever is rounded.
    """

    def __call__(self, reports: HadamardReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports; ``threads`` changes no number.

        Raises:
            UsageError: not reports of this mechanism.
        """
        tables = self._tables
        law = (math.tanh(self._mechanism.epsilon / 2), 2 * self._mechanism.flip)
        self._mechanism.check(reports)
        out = np.empty((len(reports), tables.pools.k + 1))

        def work(part: Part) -> None:
            _fill_transformed(reports.coordinate, reports.sign, part, tables.weights, law, out)

        by_function(reports.function, tables, work, threads=threads)
        return out


@jit
def _fill_transformed(coordinate, sign, part, weights, law, out):  # type: ignore[no-untyped-def]
    order, starts, positions, at, neutral, neutral_at = part
    column, weight, scale = weights
    gain, least = law
    width, m = out.shape[1], neutral.shape[1]
    blocks = (width + LANES - 1) // LANES
    table = np.empty((blocks, m, LANES))
    for f in range(at.size):
        fill_table(table, positions[at[f]], column, weight, neutral[neutral_at[f]], scale)
        for b in range(blocks):
            _transform(table[b])
        for r in order[starts[f] : starts[f + 1]]:
            for i in range(width):
                signed = sign[r] * table[i >> 3, coordinate[r], i & 7]
                out[r, i] = max(1.0 + gain * signed, least)


@jit
def _transform(table):  # type: ignore[no-untyped-def]
    """Walsh–Hadamard along the first axis, in place: Σ_p (−1)^popcount(l & p)·table[p]."""
    half = 1
    while half < table.shape[0]:
        for start in range(0, table.shape[0], 2 * half):
            for p in range(start, start + half):
                for i in range(LANES):
                    x, y = table[p, i], table[p + half, i]
                    table[p, i], table[p + half, i] = x + y, x - y
        half *= 2


class SketchEvidence(_TableEvidence):
    """E_i = 1 + (e^ε − 1)·Σ_pos bit[pos]·W_i[pos].

    W_i[pos] is the popularity within pool i of the objects hashed to pos. Equation 5: a report is
    e^ε times as likely where the object's own position is set as where it is not, the other
    positions being noise whatever the object. Cost of an observation: its set bits (119 of 1024 at
    ε = 4), and its share of its function's table; the universe does not matter.
    """

    def __call__(self, reports: SketchReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports; ``threads`` changes no number.

        Raises:
            UsageError: not reports of this mechanism.
        """
        tables = self._tables
        self._mechanism.check(reports)
        words = unpack_words(reports.bits)
        out = np.empty((len(words), tables.pools.k + 1))

        gain = math.expm1(self._mechanism.epsilon)

        def work(part: Part) -> None:
            _fill_bits(words, part, tables.weights, gain, out)

        by_function(reports.function, tables, work, threads=threads)
        return out


@intrinsic
def _lowest(context, word):  # type: ignore[no-untyped-def]
    """The position of the lowest set bit of a word that is not 0."""
    del context, word

    def generate(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], numba.core.cgutils.true_bit)

    return types.uint64(types.uint64), generate


_GATHERED = 32
_U = np.uint64
_contracted: Any = numba.njit(
    nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"contract"}
)


@_contracted
def _fill_bits(words, part, weights, gain, out):  # type: ignore[no-untyped-def]
    """Evidence of the reports of some functions, eight pools at once.

    Over the set bits alone, four at a time. Reports of one function lie far apart in memory; some
    at a time are gathered first, so that the waiting overlaps.
    """
    order, starts, positions, at, neutral, neutral_at = part
    column, weight, scale = weights
    width, m, length = out.shape[1], neutral.shape[1], words.shape[1]
    blocks = (width + LANES - 1) // LANES
    table = np.empty((blocks, m + 1, LANES))  # position m is empty: it fills up the last four
    ones = np.empty(64 * length + 3, np.uint32)  # unsigned: no look at whether an index is below 0
    near = np.empty((_GATHERED, length), np.uint64)
    sums = np.empty(LANES)
    for f in range(at.size):
        fill_table(table, positions[at[f]], column, weight, neutral[neutral_at[f]], scale)
        for first in range(starts[f], starts[f + 1], _GATHERED):
            here = min(_GATHERED, starts[f + 1] - first)
            for r in range(here):
                for w in range(length):
                    near[r, w] = words[order[first + r], w]
            for r in range(here):
                count = 0
                for w in range(length):
                    word = near[r, w]
                    while word != _U(0):
                        ones[count] = (w << 6) + np.int64(_lowest(word))  # type: ignore[call-arg]
                        count += 1
                        word &= word - _U(1)
                ones[count : count + 3] = m
                for b in range(blocks):
                    rows = table[b]
                    for i in range(LANES):
                        sums[i] = 0.0
                    for c in range(0, count, 4):
                        p0, p1, p2, p3 = ones[c], ones[c + 1], ones[c + 2], ones[c + 3]
                        for i in range(LANES):
                            sums[i] += (rows[p0, i] + rows[p1, i]) + (rows[p2, i] + rows[p3, i])
                    for i in range(min(LANES, width - b * LANES)):
                        out[order[first + r], b * LANES + i] = 1.0 + gain * sums[i]
