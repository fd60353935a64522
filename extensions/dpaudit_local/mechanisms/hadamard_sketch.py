"""Apple's Hadamard Count Mean Sketch: one noisy bit, and sums of signs, transformed when asked.

The bit is an entry of the one-hot vector's Hadamard transform.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import below, inline, jit, next_word, seed_words, start
from dpaudit.protocols import Stream
from dpaudit_local.mechanisms.mean_sketches import MeanServer, MeanSketch, read_only
from dpaudit_local.mechanisms.reports import HadamardReports, check_indices

__all__ = ["HadamardServer", "HadamardSketch"]

_U = np.uint64


@inline
def _parity(x):  # type: ignore[no-untyped-def]
    """1 where the 32-bit ``x`` has an odd number of ones."""
    x ^= x >> np.uint32(16)
    x ^= x >> np.uint32(8)
    x ^= x >> np.uint32(4)
    x ^= x >> np.uint32(2)
    return (x ^ (x >> np.uint32(1))) & np.uint32(1)


@jit
def _draw(functions, coordinates, lies, count, m, threshold, seed):  # type: ignore[no-untyped-def]
    for i in range(functions.size):
        a, b, c, n = start(seed, i, 0)
        a, b, c, n, function = below(count, a, b, c, n)
        a, b, c, n, coordinate = below(m, a, b, c, n)
        a, b, c, n, word = next_word(a, b, c, n)
        functions[i], coordinates[i], lies[i] = function, coordinate, np.int8(word < threshold)


@jit
def _sign(signs, coordinates, positions):  # type: ignore[no-untyped-def]
    for i in range(signs.size):
        odd = np.int8(_parity(coordinates[i] & positions[i]))
        signs[i] = np.int8(1) - np.int8(2) * (odd ^ signs[i])


class HadamardSketch(MeanSketch):
    """Hadamard Count Mean Sketch: Algorithm A_client-HCMS of Apple's paper.

    "Learning with Privacy at Scale" (2017). A report is (j, l, s): j uniform among ``functions``
    hash functions, l uniform among the m rows of the Hadamard matrix H[l, p] = (−1)^(number of ones
    of l & p), and s = H[l, h_j(object)] with its sign flipped with probability q = 1 / (1 + e^ε). A
    device does O(1) work: the transform of a one-hot vector is a column of H.

    Formal guarantee: one report is ε-differentially private, locally, and no smaller ε holds (where
    two objects have different positions under some function): j and l do not depend on the object,
    and of s the two probabilities are q and 1 − q, (1 − q)/q = e^ε apart. q is a whole number of
    2^-64, rounded up; :attr:`epsilon` is ln((1 − q)/q) of that very q, never above what was asked
    for. j and l are exactly uniform. Not claimed: secrecy from someone who knows the stream (see
    :class:`~dpaudit_local.mechanisms.count_mean_sketch.CountMeanSketch`). And n of a person's
    reports together have nε.

    >>> from dpaudit.randomness import KeyedStream
    >>> sketch = HadamardSketch(epsilon=4.0, m=64, functions=8)
    >>> reports = sketch.privatize(np.array([3, 3, 5]), stream=KeyedStream.from_seed(1))
    >>> sorted(set(np.abs(reports.sign).tolist())), sketch.epsilon, round(sketch.flip, 4)
    ([1], 4.0, 0.018)
    """

    def _check_m(self) -> None:
        if self.m & (self.m - 1):
            raise UsageError(
                f"m={self.m}: must be a power of two, for the Hadamard matrix; "
                f"use {1 << self.m.bit_length()}"
            )

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> HadamardReports:
        """One report per object (n,).

        The same stream gives the same reports, and report i does not depend on n.

        Raises:
            UsageError: ``objects`` are not whole numbers that the hash family knows.
        """
        objects = self._objects(objects)
        functions = np.empty(objects.shape, np.uint32)
        coordinates = np.empty(objects.shape, np.uint32)
        signs = np.empty(objects.shape, np.int8)
        sizes = _U(self.functions), _U(self.m)
        _draw(functions, coordinates, signs, *sizes, _U(self.flip_words), seed_words(stream))
        _sign(signs, coordinates, self.hashes.each(objects, functions))
        return HadamardReports(functions, coordinates, signs)

    def check(self, reports: HadamardReports) -> None:
        """Whether these can be reports of this mechanism.

        Raises:
            UsageError: a shape, a type, a function, a row or a sign that this mechanism does not
                make.
        """
        n = len(reports.sign)
        check_indices("function", reports.function, n, self.functions)
        check_indices("coordinate", reports.coordinate, n, self.m)
        if (
            reports.sign.dtype != np.int8
            or reports.sign.ndim != 1
            or not (np.abs(reports.sign) == 1).all()
        ):
            raise UsageError("sign=…: needs 1 or −1 (int8) for each report")

    def log_likelihood(
        self, reports: HadamardReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), up to a constant.

        It is ε/2 where the sign is H[l, h_j(object)], else −ε/2.

        Raises:
            UsageError: not reports of this mechanism, or objects that the hash family does not
                know.
        """
        self.check(reports)
        rows = reports.coordinate.astype(np.uint32, copy=False)[:, None]
        odd = np.bitwise_count(self._places(reports.function, objects) & rows) & 1
        return np.where(odd == (reports.sign < 0)[:, None], self.epsilon / 2, -self.epsilon / 2)


@jit
def _transform(values):  # type: ignore[no-untyped-def]
    """H·values of ``values`` (m,) in place, exactly; H[l, p] = (−1)^(ones of l & p)."""
    half = 1
    while half < values.size:
        for first in range(0, values.size, 2 * half):
            for i in range(first, first + half):
                x, y = values[i], values[i + half]
                values[i], values[i + half] = x + y, x - y
        half *= 2


@jit
def _add_signs(sums, functions, coordinates, signs):  # type: ignore[no-untyped-def]
    for i in range(signs.size):
        sums[functions[i], coordinates[i]] += signs[i]


class HadamardServer(MeanServer[HadamardSketch]):
    """Algorithms Sketch-HCMS and A_server of Apple's paper, in whole numbers.

    "Learning with Privacy at Scale" (2017). The state is the sum of the signs of each hash function
    and row, (k, m), and how many reports each function had, (k,): exact, of the smallest signed
    type that can hold the busiest function's reports. With c = (e^ε + 1) / (e^ε − 1) the estimate
    is m/(m − 1)·(c·S − n/m), S = Σ_j (H·sums[j])[h_j(x)].
    """

    _signed = True

    @property
    def sums(self) -> npt.NDArray[np.signedinteger]:
        """The sum of the signs of each function and row, (k, m); read only."""
        return read_only(self._sums)

    def add(self, reports: HadamardReports) -> None:
        """Take in reports (n).

        Raises:
            UsageError: they are not reports of this mechanism; nothing was added then.
        """
        self.mechanism.check(reports)
        self._count_visits(np.bincount(reports.function, minlength=self.mechanism.functions))
        _add_signs(self._sums, reports.function, reports.coordinate, reports.sign)

    def _row(self, function: int) -> npt.NDArray[np.int64]:
        row: npt.NDArray[np.int64] = self._sums[function].astype(np.int64)
        _transform(row)
        return row

    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of the reports were of each of ``objects`` (n,); may be negative.

        Unbiased over devices and hash families. One transform per hash function that has reports,
        and about 2 ns per object and function.

        Raises:
            UsageError: objects that the hash family does not know.
        """
        m, n = self.mechanism.m, self.reports
        return np.asarray(m / (m - 1) * (self._c * self._total(objects) - n / m), np.float64)

    def _variances(self) -> tuple[float, float]:
        """A report gives ±c: its variance is c² less its mean squared."""
        c = self._c
        return c * c - 1, c * c - 1 / self.mechanism.m
