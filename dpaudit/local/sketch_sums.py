"""What the servers of both mean sketches share: sums over hash functions at objects' positions, and estimates' errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.hashing import HashFamily
from dpaudit.local.inputs import check_objects
from dpaudit.vectors.random_words import jit

__all__ = ["at_positions", "read_only", "sketch_error", "smallest_type", "widened"]

_OBJECTS = 1 << 14  # so many positions stay in cache


@jit
def _gather(total, row, positions):  # type: ignore[no-untyped-def]
    for i in range(positions.size):
        total[i] += np.int64(row[positions[i]])


def at_positions(
    row: Callable[[int], npt.NDArray[Any]],
    *,
    functions: npt.NDArray[np.int64],
    objects: npt.NDArray[np.int64],
    hashes: HashFamily,
) -> npt.NDArray[np.int64]:
    """Σ over ``functions`` j of row(j)[h_j(object)], for each object (n,); rows are of whole numbers, (m,)."""
    objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
    total = np.zeros(objects.shape, np.int64)
    parts = [slice(first, first + _OBJECTS) for first in range(0, len(objects), _OBJECTS)]
    for function in functions.tolist():
        values = row(function)
        for part in parts:
            _gather(total[part], values, hashes.positions(objects[part], function))
    return total


def smallest_type(largest: int, *, signed: bool = False) -> np.dtype[Any]:
    """The smallest type of 16, 32 or 64 bits for whole numbers up to ``largest`` (and down to its negative if ``signed``)."""
    for bits in (16, 32):
        if largest < 1 << (bits - signed):
            return np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    return np.dtype("i8" if signed else "u8")


def widened(values: npt.NDArray[Any], largest: int, *, signed: bool = False) -> npt.NDArray[Any]:
    """``values``, or a copy of a larger type if theirs cannot hold ``largest``; never a smaller one."""
    wanted = smallest_type(largest, signed=signed)
    return values.astype(wanted) if wanted.itemsize > values.itemsize else values


def read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same memory, not to be written through."""
    view = values.view()
    view.flags.writeable = False
    return view


def sketch_error(
    counts: npt.NDArray[Any], n: int, hashes: HashFamily, *, own: float, others: float
) -> npt.NDArray[np.float64]:
    """Standard deviations of a mean sketch's estimates of objects of which ``counts`` (u,) of ``n`` reports were sent.

    Report i adds m/(m − 1)·(X_i − 1/m) to the estimate of x, and X_i has mean 1 and variance
    ``own`` where i's object is x; else it has the mean 1 or 0, as j collides (probability 1/m) or
    not, and the variance ``others`` besides. Two reports depend on each other only through a shared
    function (1 / k): not if their objects differ, as three positions of a function are independent,
    but two reports of one object y ≠ x collide with x together. So, if f has all frequent objects,

        Var = (m/(m − 1))²·[f(x)·own + (n − f(x))·(others + (1 − 1/m)/m) + (1 − 1/m)/(k·m)·Σ_{y≠x}
        f(y)·(f(y) − 1)]

    over the devices' randomness and that of a three-wise independent family. Derived here: Pan 2024
    (arXiv 2406.03785) finds errors in the expectation and variance of Apple's paper ("Learning with
    Privacy at Scale", 2017). Not claimed: the error under one given family, whose collisions (the
    last term) are the same at every collection.

    Raises:
        UsageError: ``counts`` are negative, above ``n``, or no (u,) array of finite numbers.
    """
    f = np.asarray(counts, np.float64)
    if f.ndim != 1 or not ((f >= 0) & (f <= n)).all():
        raise UsageError(
            f"counts=…: needs true counts (u,), not objects, in 0 … {n}; clip estimates to that first"
        )
    m, k = hashes.size, hashes.count
    pairs = f * np.maximum(f - 1, 0)
    collide = (1 - 1 / m) / m
    variance = f * own + (n - f) * (others + collide) + collide / k * (pairs.sum() - pairs)
    return np.asarray(m / (m - 1) * np.sqrt(variance))
