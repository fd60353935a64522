"""The common part of both mean sketches: hash functions and a coin, exact sums, standard errors."""

from __future__ import annotations

import abc
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import jit
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.coins import LARGEST_EPSILON, WORDS, epsilon_of_words, lying_words
from dpaudit_local.mechanisms.hashing import HashFamily, RandomHashes
from dpaudit_local.mechanisms.reports import check_objects, privacy_number

__all__ = ["MeanServer", "MeanSketch", "read_only", "smallest_type"]


class MeanSketch(abc.ABC):
    """A public family of hash functions, and bits that are flipped with probability q.

    ``differing`` is the largest number of bits in which the reports of two objects differ before
    the flips, so that ε = differing·ln((1 − q)/q).
    """

    differing = 1

    def __init__(
        self,
        epsilon: float = 4.0,
        *,
        m: int | None = None,
        functions: int | None = None,
        hashes: HashFamily | None = None,
        seed: int = 0,
    ) -> None:
        """Use your own ``hashes``, or ``functions`` (65,536) random ones of ``seed``.

        They lead to ``m`` (1,024) positions.

        Raises:
            UsageError: ε not above 0 or beyond 32·``differing``; an ``m`` that the sketch refuses
                (a Count Mean Sketch takes multiples of 8, a Hadamard one powers of two);
                ``hashes`` that are not a family; ``m`` or ``functions`` that are not theirs.
        """
        epsilon = privacy_number("epsilon", epsilon, self.differing * LARGEST_EPSILON)
        self.flip_words = lying_words(epsilon / self.differing, 2)
        if hashes is None:
            stream = KeyedStream.from_seed(seed).child("hashes", "random")
            count, size = 65536 if functions is None else functions, 1024 if m is None else m
            hashes = RandomHashes(count, size, stream=stream)
        elif not isinstance(hashes, HashFamily):
            raise UsageError(f"hashes={hashes}: must be a family of hash functions; leave it out")
        for name, value, has in (("functions", functions, hashes.count), ("m", m, hashes.size)):
            if value is not None and value != has:
                raise UsageError(f"{name}={value}: the hashes given have {has}; leave it out")
        self.hashes: HashFamily = hashes
        self._check_m()

    @abc.abstractmethod
    def _check_m(self) -> None:
        """Refuse a number of positions that the sketch cannot have."""

    @property
    def m(self) -> int:
        """The number of positions."""
        return self.hashes.size

    @property
    def functions(self) -> int:
        """The number of hash functions."""
        return self.hashes.count

    @property
    def flip(self) -> float:
        """The probability q of a flip: a multiple of 2^-64, rounded to a double."""
        return self.flip_words / WORDS

    @property
    def epsilon(self) -> float:
        """The exact ε of one report, differing·ln((1 − q)/q)."""
        return self.differing * epsilon_of_words(self.flip_words, 2)

    @staticmethod
    def _objects(objects: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return check_objects(objects, 1 << 63).astype(np.int64, copy=False)

    def _places(
        self, functions: npt.NDArray[np.unsignedinteger[Any]], objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint32]:
        """The position of each object (u,) under each of ``functions`` (n,): shape (n, u)."""
        objects = self._objects(objects)
        out = np.empty((len(functions), len(objects)), np.uint32)
        for row, function in enumerate(functions.tolist()):
            out[row] = self.hashes.positions(objects, function)
        return out


Sketch = TypeVar("Sketch", bound=MeanSketch)

_OBJECTS = 1 << 14  # positions that stay in cache


@jit
def _gather(total, row, positions):  # type: ignore[no-untyped-def]
    for i in range(positions.size):
        total[i] += np.int64(row[positions[i]])


def smallest_type(largest: int, *, signed: bool = False) -> np.dtype[Any]:
    """The smallest type of 16, 32 or 64 bits for 0 … ``largest``, or ±``largest`` if ``signed``."""
    for bits in (16, 32):
        if largest < 1 << (bits - signed):
            return np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    return np.dtype("i8" if signed else "u8")


def read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same memory, not to be written through."""
    view = values.view()
    view.flags.writeable = False
    return view


class MeanServer(abc.ABC, Generic[Sketch]):
    """The state of both servers: sums by hash function and position, reports by hash function.

    Sums are exact, of the smallest type that can hold the busiest function's reports. Reports are
    added as they come and forgotten; the order does not matter.

    Errors of estimates, for true counts f of n reports: report i adds m/(m − 1)·(X_i − 1/m) to the
    estimate of x, and X_i has mean 1 and variance ``own`` where i's object is x; else it has the
    mean 1 or 0, as j collides (probability 1/m) or not, and the variance ``others`` besides. Two
    reports depend on each other only through a shared function (1 / k): not if their objects
    differ, as three positions of a function are independent, but two reports of one object y ≠ x
    collide with x together. So, if f has all frequent objects,

        Var = (m/(m − 1))²·[f(x)·own + (n − f(x))·(others + (1 − 1/m)/m) + (1 − 1/m)/(k·m)·Σ_{y≠x}
        f(y)·(f(y) − 1)]

    over the devices' randomness and that of a three-wise independent family, as random functions
    are. Derived here: Pan 2024 (arXiv 2406.03785) finds errors in the expectation and variance of
    Apple's paper ("Learning with Privacy at Scale", 2017). Not claimed: the error under one given
    family, whose collisions (the last term) are the same at every collection.
    """

    _signed = False

    def __init__(self, mechanism: Sketch) -> None:
        """A server with no reports yet, for devices with this ``mechanism``."""
        shape = mechanism.functions, mechanism.m
        self.mechanism = mechanism
        self._sums: npt.NDArray[Any] = np.zeros(shape, smallest_type(0, signed=self._signed))
        self._visits = np.zeros(mechanism.functions, np.int64)

    @property
    def reports(self) -> int:
        """How many reports were added."""
        return int(self._visits.sum())

    @property
    def visits(self) -> npt.NDArray[np.int64]:
        """How many reports each function had, (k,); read only."""
        return read_only(self._visits)

    def _count_visits(self, visits: npt.NDArray[np.int64]) -> None:
        """Count reports by function (k,), and widen the sums if theirs may not fit."""
        self._visits += visits
        dtype = smallest_type(int(self._visits.max()), signed=self._signed)
        if dtype.itemsize > self._sums.itemsize:
            self._sums = self._sums.astype(dtype)

    @property
    def _c(self) -> float:
        """1 / (1 − 2q), by which a report's noisy bit is debiased."""
        return 1 / (1 - 2 * self.mechanism.flip)

    def _row(self, function: int) -> npt.NDArray[Any]:
        """The summands of an estimate for one function, (m,)."""
        return np.asarray(self._sums[function])

    def _total(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """S of each object (u,): Σ of row(j)[h_j(object)] over functions j that have reports."""
        objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
        total = np.zeros(objects.shape, np.int64)
        parts = [slice(first, first + _OBJECTS) for first in range(0, len(objects), _OBJECTS)]
        for function in np.flatnonzero(self._visits).tolist():
            values = self._row(function)
            for part in parts:
                places = self.mechanism.hashes.positions(objects[part], function)
                _gather(total[part], values, places)
        return total

    @abc.abstractmethod
    def _variances(self) -> tuple[float, float]:
        """``own`` and ``others`` of :meth:`standard_error`."""

    def standard_error(self, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Standard deviations (u,) of the estimates of objects with true ``counts`` (u,).

        The argument holds counts, not objects. Where the truth is unknown, put in estimates clipped
        to 0 … n; leave out no frequent object.

        Raises:
            UsageError: ``counts`` are negative, above n, or no (u,) array of finite numbers.
        """
        f, n = np.asarray(counts, np.float64), self.reports
        (own, others), m, k = self._variances(), self.mechanism.m, self.mechanism.functions
        if f.ndim != 1 or not ((f >= 0) & (f <= n)).all():
            raise UsageError(
                f"counts=…: needs true counts (u,), not objects, in 0 … {n}; "
                "clip estimates to that first"
            )
        pairs = f * np.maximum(f - 1, 0)
        collide = (1 - 1 / m) / m
        variance = f * own + (n - f) * (others + collide) + collide / k * (pairs.sum() - pairs)
        return np.asarray(m / (m - 1) * np.sqrt(variance))
