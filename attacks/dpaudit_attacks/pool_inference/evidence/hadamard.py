"""Evidence in reports of a Hadamard Count Mean Sketch."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.reports import HadamardReports
from dpaudit_attacks.pool_inference.evidence.grouping import by_function
from dpaudit_attacks.pool_inference.pools import Pools
from dpaudit_attacks.pool_inference.tables import LANES, PoolTables, fill_table

__all__ = ["HadamardEvidence"]


class HadamardEvidence:
    """E_i = 1 + tanh(ε/2)·y·Σ_{z∈P_i} w_z·H[l, h_j(z)]: the sign y of coordinate l is kept with probability e^ε/(1 + e^ε).

    The sum is coordinate l of the Walsh–Hadamard transform of the function's popularity table, made once a call for each
    function that occurs: 10·1024 additions of eight pools at m = 1024, then one multiplication an observation. No sum is
    below 2q = 2/(1 + e^ε), whatever is rounded.
    """

    def __init__(
        self, mechanism: HadamardSketch, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
    ) -> None:
        """For an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self._mechanism, self._gain = mechanism, math.tanh(mechanism.epsilon / 2)
        self._tables = PoolTables(mechanism.hashes, pools, popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> HadamardEvidence:
        """The same for an adversary with another popularity; what depends on pools alone is shared."""
        other = object.__new__(HadamardEvidence)
        other._mechanism, other._gain, other._tables = self._mechanism, self._gain, self._tables.against(popularity)
        return other

    def __call__(self, reports: HadamardReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports; ``threads`` changes no number.

        Raises:
            UsageError: not reports of this mechanism.
        """
        tables = self._tables
        self._mechanism.check(reports)
        out = np.empty((len(reports), tables.pools.k + 1))

        def work(order: Any, starts: Any, positions: Any, at: Any, neutral: Any, neutral_at: Any) -> None:
            rows = (positions, at, tables.column, tables.weight, neutral, neutral_at, tables.scale)
            _fill(reports.coordinate, reports.sign, order, starts, *rows, self._gain, 2 * self._mechanism.flip, out)

        by_function(reports.function, tables, work, threads=threads)
        return out


_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


@_jit
def _fill(coordinate, sign, order, starts, positions, at, column, weight, neutral, neutral_at, scale, gain, least, out):  # type: ignore[no-untyped-def]
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


@_jit
def _transform(table):  # type: ignore[no-untyped-def]
    """The Walsh–Hadamard transform along the first axis, in place: Σ_p (−1)^popcount(l & p)·table[p]."""
    half = 1
    while half < table.shape[0]:
        for start in range(0, table.shape[0], 2 * half):
            for p in range(start, start + half):
                for i in range(LANES):
                    x, y = table[p, i], table[p + half, i]
                    table[p, i], table[p + half, i] = x + y, x - y
        half *= 2
