"""Sums on the lattice in one compiled pass over a chunk: query + noise, then + server 2's noise."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["add_query", "add_steps"]

_LARGEST = np.int64(2**63 - 1)

jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


@jit
def add_query(noise, values, per_step, out):  # type: ignore[no-untyped-def]
    """``out`` = nearest integers to ``values``·``per_step`` + ``noise``; returns the largest |sum|.

    ``per_step`` is a power of two: exact in float64. The largest |sum| is 2^63 − 1 for −2^63, which
    has none; only where it is below 2^31 does the int32 ``out`` hold the sums.
    """
    most = np.int64(0)
    for i in range(noise.size):
        total = np.int64(np.rint(np.float64(values[i]) * per_step)) + noise[i]
        size = abs(total)
        most = max(most, size if size >= 0 else _LARGEST)
        out[i] = np.int32(total)
    return most


@jit
def add_steps(noise, steps, step, out):  # type: ignore[no-untyped-def]
    """``out`` = ``step``·(``steps`` + ``noise``), exact in float64 below 2^53 steps.

    It is rounded if ``out`` is float32.
    """
    for i in range(noise.size):
        out[i] = np.float64(steps[i] + noise[i]) * step
