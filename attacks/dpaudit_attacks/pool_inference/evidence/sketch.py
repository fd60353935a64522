"""Evidence in reports of a Count Mean Sketch."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.reports import SketchReports
from dpaudit_attacks.pool_inference.evidence.grouping import by_function
from dpaudit_attacks.pool_inference.pools import Pools
from dpaudit_attacks.pool_inference.tables import LANES, PoolTables, fill_table

__all__ = ["SketchEvidence"]


class SketchEvidence:
    """E_i = 1 + (e^ε − 1)·Σ_pos bit[pos]·W_i[pos], with W_i[pos] the popularity within pool i of the objects hashed to pos.

    Equation 5: a report is e^ε times as likely where the object's own position is set as where it is not, the other
    positions being noise whatever the object. Cost of an observation: its set bits (119 of 1024 at ε = 4), and its share
    of its function's table; the universe does not matter (``tables``).
    """

    def __init__(
        self, mechanism: CountMeanSketch, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
    ) -> None:
        """For an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self._mechanism, self._gain = mechanism, math.expm1(mechanism.epsilon)
        self._tables = PoolTables(mechanism.hashes, pools, popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> SketchEvidence:
        """The same for an adversary with another popularity; what depends on pools alone is shared."""
        other = object.__new__(SketchEvidence)
        other._mechanism, other._gain, other._tables = self._mechanism, self._gain, self._tables.against(popularity)
        return other

    def __call__(self, reports: SketchReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports; ``threads`` changes no number.

        Raises:
            UsageError: not reports of this mechanism.
        """
        tables = self._tables
        self._mechanism.check(reports)
        words = _words(reports.bits)
        out = np.empty((len(words), tables.pools.k + 1))

        def work(order: Any, starts: Any, positions: Any, at: Any, neutral: Any, neutral_at: Any) -> None:
            rows = (positions, at, tables.column, tables.weight, neutral, neutral_at, tables.scale)
            _fill(words, order, starts, *rows, self._gain, out)

        by_function(reports.function, tables, work, threads=threads)
        return out


def _words(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Packed bits as 64-bit words, bit i at 1 << i % 64."""
    spare = -bits.shape[1] % 8
    full = np.pad(bits, ((0, 0), (0, spare))) if spare else np.ascontiguousarray(bits)
    return full.view("<u8")


@intrinsic
def _lowest(context, word):  # type: ignore[no-untyped-def]
    """The position of the lowest set bit of a word that is not 0."""
    del context, word

    def generate(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], numba.core.cgutils.true_bit)

    return types.uint64(types.uint64), generate


_GATHERED = 32
_U = np.uint64
_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"contract"})


@_jit
def _fill(words, order, starts, positions, at, column, weight, neutral, neutral_at, scale, gain, out):  # type: ignore[no-untyped-def]
    """Evidence of the reports of some functions: eight pools at once, over the set bits alone, four at a time.

    Reports of one function lie far apart in memory; some at a time are gathered first, so that the waiting overlaps.
    """
    width, m, length = out.shape[1], neutral.shape[1], words.shape[1]
    blocks = (width + LANES - 1) // LANES
    table = np.empty((blocks, m + 1, LANES))  # position m has nobody: it fills up the last four
    found = np.empty(64 * length + 3, np.uint32)  # unsigned: no look at whether an index is below 0
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
                        found[count] = (w << 6) + np.int64(_lowest(word))  # type: ignore[call-arg]
                        count += 1
                        word &= word - _U(1)
                found[count : count + 3] = m
                for b in range(blocks):
                    rows = table[b]
                    for i in range(LANES):
                        sums[i] = 0.0
                    for c in range(0, count, 4):
                        p0, p1, p2, p3 = found[c], found[c + 1], found[c + 2], found[c + 3]
                        for i in range(LANES):
                            sums[i] += (rows[p0, i] + rows[p1, i]) + (rows[p2, i] + rows[p3, i])
                    for i in range(min(LANES, width - b * LANES)):
                        out[order[first + r], b * LANES + i] = 1.0 + gain * sums[i]
