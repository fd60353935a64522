"""The Count Mean Sketch server's state after any number of submissions, drawn at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import jit
from dpaudit_local.count_mean_server import CountMeanServer
from dpaudit_local.count_mean_sketch import CountMeanSketch
from dpaudit_local.sketch_sums import smallest_type

__all__ = ["sample_sketch"]

# reports per function from which on drawing counts is cheaper than drawing each report's function
_MANY = 8
_DRAWN = 1 << 20  # reports whose functions are drawn at a time
_CELLS = 1 << 20  # cells whose bits are drawn at a time


@jit
def _scatter(cells, functions, positions):  # type: ignore[no-untyped-def]
    for i in range(functions.size):
        cells[functions[i], positions[i]] += 1


@jit
def _add_column(cells, positions, added):  # type: ignore[no-untyped-def]
    for function in range(cells.shape[0]):
        cells[function, positions[function]] += added[function]


@jit
def _owners(out, ends, first):  # type: ignore[no-untyped-def]
    """The object of each report from number ``first`` on; object x's end before number ends[x]."""
    x = np.searchsorted(ends, first, side="right")
    for i in range(out.size):
        while ends[x] <= first + i:
            x += 1
        out[i] = x


def _occupied(
    mechanism: CountMeanSketch, counts: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.unsignedinteger]:
    """How many reports have each hash function and the one-hot position, (k, m)."""
    k, hashes = mechanism.functions, mechanism.hashes
    cells: npt.NDArray[np.unsignedinteger] = np.zeros(
        (k, mechanism.m), "u4" if counts.sum() < 1 << 32 else "u8"
    )
    every, even = np.arange(k, dtype=np.uint32), np.full(k, 1 / k)
    many = counts >= _MANY * k
    for x in np.flatnonzero(many).tolist():
        _add_column(cells, hashes.each(np.full(k, x), every), rng.multinomial(counts[x], even))
    few = np.where(many, 0, counts)
    ends = np.cumsum(few)
    for first in range(0, int(ends[-1]) if ends.size else 0, _DRAWN):
        objects = np.empty(min(_DRAWN, int(ends[-1]) - first), np.int64)
        _owners(objects, ends, first)
        functions = rng.integers(0, k, objects.size, dtype=np.uint32)
        _scatter(cells, functions, hashes.each(objects, functions))
    return cells


def sample_sketch(
    mechanism: CountMeanSketch, counts: npt.NDArray[np.int64], *, stream: Stream
) -> CountMeanServer:
    """A server as if devices had submitted ``counts[x]`` reports of each object x (u,).

    The cost stays bounded as the number of reports Z grows.

    Formal guarantee: the server's state has the law of
    ``CountMeanServer.add(mechanism.privatize(objects))`` for such ``objects``. Each report's
    function is uniform, so object x's reports are multinomial over the functions; given how many C
    of a function's n_j reports have their one-hot bit at a position, that position's bits are
    independent of all others, and the number set is Binomial(C, 1 − q) + Binomial(n_j − C, q).
    Exact but for numpy's multinomial and binomial, which reject or invert in double precision (and
    end an inversion some ten standard deviations out, beyond which about 1e-13 lies), and q rounded
    to a double (relative 2^-53).

    At most min(Z, 8·u·k) report functions are drawn and then k multinomial counts an object, and
    2·k·m binomials always.

    Raises:
        UsageError: ``counts`` are negative, no whole numbers, or of more objects than the hash
            family knows.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise UsageError("counts=…: needs a whole number from 0 for each object, (u,)")
    rng, q = stream.child("sketch").numpy(), mechanism.flip
    cells = _occupied(mechanism, counts.astype(np.int64, copy=False), rng)
    visits = cells.sum(axis=1, dtype=np.int64)
    ones: npt.NDArray[np.unsignedinteger] = np.empty(cells.shape, smallest_type(int(visits.max())))
    step = max(1, _CELLS // mechanism.m)
    for first in range(0, mechanism.functions, step):
        rows = slice(first, first + step)
        own = cells[rows].astype(np.int64)
        ones[rows] = own - rng.binomial(own, q) + rng.binomial(visits[rows, None] - own, q)
    return CountMeanServer.of_counts(mechanism, ones, visits)
