"""Apple's Hadamard Count Mean Sketch, the server's side: sums of signs, transformed when asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.vectors.random_words import jit
from dpaudit_local.hadamard_sketch import HadamardSketch
from dpaudit_local.reports import HadamardReports
from dpaudit_local.sketch_sums import MeanServer, read_only

__all__ = ["HadamardServer"]


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
def _add(sums, functions, coordinates, signs):  # type: ignore[no-untyped-def]
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
        self._take_in(np.bincount(reports.function, minlength=self.mechanism.functions))
        _add(self._sums, reports.function, reports.coordinate, reports.sign)

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
