"""Evidence in RAPPOR's reports."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.local.rappor import Rappor
from dpaudit.local.reports import BloomReports
from dpaudit_attacks.pool_inference.pools import Pools

__all__ = ["RapporEvidence"]


class RapporEvidence:
    """E_i = Σ_{z∈P_i} w_z·Π_{b∈B_z} r(bit b), with B_z the Bloom filter of z in the report's cohort.

    r(1) = q*/p*, r(0) = (1 − q*)/(1 − p*): what a bit of the object's own filter says against a bit outside it. Reports are
    taken as independent given the objects. Cost: each observation goes through all objects of the universe (a few
    nanoseconds each), so a large universe is slow here, unlike for sketches.
    """

    def __init__(self, mechanism: Rappor, pools: Pools, popularity: npt.NDArray[np.float64] | None = None) -> None:
        """For an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self._mechanism, self._pools, self._weights = mechanism, pools, pools.weights(popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> RapporEvidence:
        """The same for an adversary with another popularity."""
        return RapporEvidence(self._mechanism, self._pools, popularity)

    def __call__(self, reports: BloomReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports.

        Raises:
            UsageError: cohorts or bits that the mechanism does not have.
        """
        del threads
        law = self._mechanism
        cohort, bits = law.check_reports(reports)
        ratios = np.array([(1 - law.q_star) / (1 - law.p_star), law.q_star / law.p_star])
        out = np.zeros((len(cohort), self._pools.k + 1))
        for c in np.unique(cohort).tolist():
            filters = np.sort(law.positions(np.arange(self._pools.universe), c).astype(np.int64), axis=1)
            repeated = np.zeros(filters.shape, bool)
            repeated[:, 1:] = filters[:, 1:] == filters[:, :-1]
            filters[repeated] = law.bits  # two hash functions on one bit set it once
            _fill(bits, np.flatnonzero(cohort == c), filters, self._pools.labels, self._weights, ratios, law.bits, out)
        return out


_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


@_jit
def _fill(bits, rows, filters, labels, weights, ratios, size, out):  # type: ignore[no-untyped-def]
    ratio = np.ones(size + 1)
    for r in rows:
        for b in range(size):
            ratio[b] = ratios[(bits[r, b >> 3] >> (b & 7)) & 1]
        for z in range(filters.shape[0]):
            likelihood = weights[z]
            for h in range(filters.shape[1]):
                likelihood *= ratio[filters[z, h]]
            out[r, labels[z]] += likelihood
