"""Apple's Hadamard Count Mean Sketch, the server's side: sums of signs, transformed back when something is asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.inputs import check_merge
from dpaudit.local.reports import HadamardReports
from dpaudit.local.sketch_sums import at_positions, read_only, sketch_error, widened
from dpaudit.vectors.random_words import jit

__all__ = ["HadamardServer", "walsh_hadamard"]


@jit
def _transform(values):  # type: ignore[no-untyped-def]
    half = 1
    while half < values.size:
        for first in range(0, values.size, 2 * half):
            for i in range(first, first + half):
                x, y = values[i], values[i + half]
                values[i], values[i + half] = x + y, x - y
        half *= 2


@jit
def _add(sums, functions, coordinates, signs):  # type: ignore[no-untyped-def]
    for i in range(signs.size):
        sums[functions[i], coordinates[i]] += signs[i]


def walsh_hadamard(values: npt.NDArray[np.int64]) -> None:
    """Replace ``values`` (m,) by H·values in place, H[l, p] = (−1)^(ones of l & p): m·log2 m additions, exact.

    Raises:
        UsageError: m is no power of two.

    >>> v = np.array([1, 0, 0, 2])
    >>> walsh_hadamard(v)
    >>> v.tolist()
    [3, -1, -1, 3]
    """
    if values.ndim != 1 or values.size < 1 or values.size & (values.size - 1):
        raise UsageError(
            f"values={values.shape}: the transform needs one axis whose length is a power of two"
        )
    _transform(values)


class HadamardServer:
    """Apple, "Learning with Privacy at Scale" (2017), Algorithms Sketch-HCMS and A_server, in whole numbers.

    The state is the sum of the signs of each hash function and row, (k, m), and how many reports
    each function had, (k,): exact, of the smallest signed type that can hold the busiest function's
    reports. With c = (e^ε + 1) / (e^ε − 1) the estimate is m/(m − 1)·(c·S − n/m), S = Σ_j
    (H·sums[j])[h_j(x)].
    """

    def __init__(self, mechanism: HadamardSketch) -> None:
        """A server with no reports yet, for devices with this ``mechanism``."""
        self.mechanism = mechanism
        self._sums: npt.NDArray[np.signedinteger] = np.zeros(
            (mechanism.functions, mechanism.m), np.int16
        )
        self._visits = np.zeros(mechanism.functions, np.int64)

    @property
    def reports(self) -> int:
        """How many reports were added."""
        return int(self._visits.sum())

    @property
    def sums(self) -> npt.NDArray[np.signedinteger]:
        """The sum of the signs of each function and row, (k, m); read only."""
        return read_only(self._sums)

    @property
    def visits(self) -> npt.NDArray[np.int64]:
        """How many reports each function had, (k,); read only."""
        return read_only(self._visits)

    def _take_in(self, visits: npt.NDArray[np.int64]) -> None:
        self._visits += visits
        self._sums = widened(self._sums, int(self._visits.max()), signed=True)

    def add(self, reports: HadamardReports) -> None:
        """Take in reports (n).

        Raises:
            UsageError: they are not reports of this mechanism; nothing was added then.
        """
        self.mechanism.check(reports)
        self._take_in(np.bincount(reports.function, minlength=self.mechanism.functions))
        _add(self._sums, reports.function, reports.coordinate, reports.sign)

    def merge(self, other: HadamardServer) -> None:
        """Take in all that another server of an equal mechanism has; the other stays as it is.

        Raises:
            UsageError: its mechanism differs, or it is this server.
        """
        check_merge(self, other)
        self._take_in(other._visits)
        self._sums += other._sums.astype(self._sums.dtype, copy=False)

    def _row(self, function: int) -> npt.NDArray[np.int64]:
        row: npt.NDArray[np.int64] = self._sums[function].astype(np.int64)
        _transform(row)
        return row

    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of the reports were of each of ``objects`` (n,): unbiased over devices and families, may be negative.

        One transform a hash function that has reports, and about 2 ns an object and function.

        Raises:
            UsageError: objects that the hash family does not know.
        """
        m, n = self.mechanism.m, self.reports
        c = 1 / (1 - 2 * self.mechanism.flip)
        heard = np.flatnonzero(self._visits)
        total = at_positions(
            self._row, functions=heard, objects=objects, hashes=self.mechanism.hashes
        )
        return np.asarray(m / (m - 1) * (c * total - n / m), np.float64)

    def standard_error(self, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Standard deviations (u,) of the estimates of objects whose true counts are ``counts`` (u,): counts, not objects.

        Put in estimates, clipped to 0 … n, where nobody knows the truth; leave out no frequent
        object. :func:`~dpaudit.local.sketch_sums.sketch_error`: a report gives ±c, so its variance
        is c² less its mean squared.
        """
        c = 1 / (1 - 2 * self.mechanism.flip)
        others = c * c - 1 / self.mechanism.m
        return sketch_error(
            counts, self.reports, self.mechanism.hashes, own=c * c - 1, others=others
        )
