"""Apple's Count Mean Sketch, the server's side: exact counts of bits, debiased when asked."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.vectors.random_words import jit
from dpaudit_local.count_mean_sketch import CountMeanSketch
from dpaudit_local.reports import SketchReports
from dpaudit_local.sketch_sums import MeanServer, read_only

__all__ = ["CountMeanServer"]

_U = np.uint64


@jit
def _add(ones, functions, words):  # type: ignore[no-untyped-def]
    m = ones.shape[1]
    for i in range(functions.size):
        row = ones[functions[i]]
        for w in range(m >> 6):
            word, first = words[i, w], w << 6
            for b in range(64):
                row[first + b] += (word >> _U(b)) & _U(1)
        for p in range(m & ~63, m):
            row[p] += (words[i, p >> 6] >> _U(p & 63)) & _U(1)


class CountMeanServer(MeanServer[CountMeanSketch]):
    """Algorithms Sketch-CMS and A_server of Apple's paper, in whole numbers.

    "Learning with Privacy at Scale" (2017). The state is how many reports each hash function had,
    (k,), and how many of them had each bit set, (k, m): exact, and of the smallest unsigned type
    that can hold the busiest function's reports (k = 65,536 and m = 1,024: 128 MiB up to about 4e9
    reports, then 256 MiB). Reports are added as they come and forgotten; the order does not matter.

    Apple's sketch matrix is M[j, l] = k·(c·(ones − n_j / 2) + n_j / 2) with c = (e^(ε/2) + 1) /
    (e^(ε/2) − 1) in these terms, so its estimate m/(m − 1)·(Σ_j M[j, h_j(x)] / k − n/m) needs only
    S = Σ_j ones[j, h_j(x)]: m/(m − 1)·(c·S − (c − 1)·n/2 − n/m).
    """

    @classmethod
    def of_counts(
        cls,
        mechanism: CountMeanSketch,
        ones: npt.NDArray[np.unsignedinteger],
        visits: npt.NDArray[np.int64],
    ) -> Self:
        """A server with that state (kept, not copied): set bits (k, m) and reports (k,).

        Raises:
            UsageError: shapes that are not the mechanism's, or more set bits than reports.
        """
        shape = (mechanism.functions, mechanism.m)
        if ones.shape != shape or visits.shape != shape[:1]:
            raise UsageError(
                f"ones={ones.shape}, visits={visits.shape}: need {shape} and {shape[:1]}"
            )
        if (ones.max(axis=1) > visits).any():
            raise UsageError("ones=…: a function has more set bits than reports")
        server = cls.__new__(cls)
        server.mechanism, server._sums, server._visits = mechanism, ones, visits
        return server

    @property
    def ones(self) -> npt.NDArray[np.unsignedinteger]:
        """How many reports of each function had each bit set, (k, m); read only."""
        return read_only(self._sums)

    def add(self, reports: SketchReports) -> None:
        """Take in reports (n).

        Raises:
            UsageError: they are not reports of this mechanism; nothing was added then.
        """
        self.mechanism.check(reports)
        short = -reports.bits.shape[1] % 8
        bits = np.ascontiguousarray(
            np.pad(reports.bits, ((0, 0), (0, short))) if short else reports.bits
        )
        self._take_in(np.bincount(reports.function, minlength=self.mechanism.functions))
        _add(self._sums, reports.function, bits.view("<u8").astype(np.uint64, copy=False))

    def estimate(self, objects: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of the reports were of each of ``objects`` (n,); may be negative.

        Unbiased over devices and hash families. About 2 ns per object and hash function that has
        reports: 250,000 objects and 65,536 functions take half a minute.

        Raises:
            UsageError: objects that the hash family does not know.
        """
        m, n, c = self.mechanism.m, self.reports, self._c
        total = self._total(objects)
        return np.asarray(m / (m - 1) * (c * (total - n / 2) + n / 2 - n / m), np.float64)

    def _variances(self) -> tuple[float, float]:
        """Both q(1 − q)/(1 − 2q)² = (c² − 1)/4, the variance of a debiased bit."""
        c = self._c
        noise = (c * c - 1) / 4
        return noise, noise
