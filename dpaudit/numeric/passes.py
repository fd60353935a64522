"""Compiled passes over large vectors: norms summed in float64, and rounding onto a lattice.

Both take blocks of ``BLOCK`` coordinates, on several threads; the numbers do not depend on how many
there are.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.numeric import BLOCK
from dpaudit.numeric.arrays import device_of, to_numpy
from dpaudit.numeric.kernels import spread, vector
from dpaudit.numeric.random_words import jit
from dpaudit.protocols import Array

__all__ = ["BEYOND_DTYPE", "BEYOND_LATTICE", "onto_lattice", "row_norms"]

BEYOND_LATTICE, BEYOND_DTYPE = 1, 2
_MOST = 2.0**52
_CHUNK = 1 << 22
_OVERFLOWS = {4: 2.0**128 - 2.0**103, 8: math.inf}  # rounds to infinity from there


@vector
def _squares(x, over):  # type: ignore[no-untyped-def]
    """Σ (x·over)², accumulated in float64."""
    total = 0.0
    for i in range(x.size):
        value = np.float64(x[i]) * over
        total += value * value
    return total


@jit
def _place(query, noise, out, to_steps, over, granularity, largest):  # type: ignore[no-untyped-def]
    """Write granularity·(rint(query·over) + rint(noise·to_steps)) to ``out``; errors as bits."""
    off_lattice, off_dtype = False, False
    for i in range(noise.size):
        steps = np.rint(np.float64(query[i]) * over)
        own = np.rint(np.float64(noise[i]) * to_steps)
        value = (steps + own) * granularity
        off_lattice |= not ((abs(steps) < _MOST) & (abs(own) < _MOST))
        off_dtype |= not (abs(value) < largest)
        out[i] = value
        out[i] += np.float32(0)  # −0.0, from a query just below 0, is 0
    return off_lattice * BEYOND_LATTICE + off_dtype * BEYOND_DTYPE


@cache
def _rows() -> tuple[Any, Any]:
    """The loops over blocks of rows, compiled for each pair of types when first used."""

    @jit
    def norms(out, rows, first, last, blocks, over):  # type: ignore[no-untyped-def]
        d = rows.shape[1]
        for job in range(first, last):
            row, block = job // blocks, job % blocks
            out[row, block] = _squares(rows[row, block * BLOCK : min(d, (block + 1) * BLOCK)], over)

    @jit
    def place(query, noise, out, jobs, to_steps, lattice, wrong):  # type: ignore[no-untyped-def]
        d = noise.shape[1]
        blocks, (over, granularity, largest) = (d + BLOCK - 1) // BLOCK, lattice
        for job in range(jobs[0], jobs[1]):
            row, block = job // blocks, job % blocks
            low, high = block * BLOCK, min(d, (block + 1) * BLOCK)
            own, to = noise[row, low:high], out[row, low:high]
            wrong[job] = _place(
                query[row, low:high], own, to, to_steps[row], over, granularity, largest
            )

    return norms, place


def _wide(rows: Array) -> npt.NDArray[Any]:
    """A matrix on the CPU as float32 or float64."""
    if device_of(rows) is not None and rows.dtype.itemsize < 4:
        rows = rows.float()  # numpy has no bfloat16
    values = to_numpy(rows)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)


def row_norms(rows: Array, *, unit: float = 1.0) -> npt.NDArray[np.float64]:
    """Euclidean norms of ``rows`` (n, d), shape (n,), summed in float64 without copying the rows.

    ``unit``, a power of two near the size of a value, keeps squares from overflow or underflow; it
    changes no other bit.
    """
    if (device := device_of(rows)) is not None and device.type != "cpu":
        import torch

        parts = [
            [torch.linalg.vector_norm(part.double() / unit) for part in row.split(_CHUNK)]
            for row in rows
        ]
        return (
            np.array([float(torch.linalg.vector_norm(torch.stack(norms))) for norms in parts])
            * unit
        )
    values = np.ascontiguousarray(_wide(rows))
    n, d = values.shape
    blocks = -(-d // BLOCK)
    out = np.empty((n, blocks))
    spread(
        lambda first, last: _rows()[0](out, values, first, last, blocks, 1 / unit),
        n * blocks,
        n * d,
    )
    norms: npt.NDArray[np.float64] = np.sqrt(out.sum(1)) * unit
    return norms


def onto_lattice(
    query: npt.NDArray[Any],
    noise: npt.NDArray[Any],
    *,
    factors: npt.NDArray[np.float64],
    granularity: float,
    out: npt.NDArray[Any] | None = None,
) -> int:
    """Write ``granularity``·(K + Z) to ``out``, or over ``noise`` (n, d).

    K = rint(query/granularity), Z = rint(factor·noise/granularity). All contiguous, float32 or
    float64 each, ``factors`` (n,) one per row; in float64 until it is stored. Returns 0, or the sum
    of ``BEYOND_LATTICE`` (a number of steps ≥ 2^52, or none) and ``BEYOND_DTYPE`` (a value that
    cannot be held).
    """
    n, d = noise.shape
    blocks = -(-d // BLOCK)
    wrong = np.zeros(n * blocks, np.int64)
    to = noise if out is None else out
    over = 1 / granularity
    lattice = over, granularity, _OVERFLOWS[to.itemsize]
    spread(
        lambda first, last: _rows()[1](
            query, noise, to, (first, last), factors * over, lattice, wrong
        ),
        n * blocks,
        n * d,
    )
    return int(np.bitwise_or.reduce(wrong))
