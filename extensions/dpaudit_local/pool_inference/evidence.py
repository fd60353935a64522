"""The evidence of one submission for each pool.

``evidence_for`` finds the evidence of a mechanism by its type: of objects in the clear, randomised
response and RAPPOR here, of sketches in ``sketch_evidence``. It falls back to the whole universe's
likelihoods, slow but for any ``LocalMechanism``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch, CountMedianSketch
from dpaudit_local.mechanisms.hadamard_sketch import HadamardSketch
from dpaudit_local.mechanisms.randomized_response import Identity, RandomizedResponse
from dpaudit_local.mechanisms.rappor import Rappor
from dpaudit_local.mechanisms.reports import BloomReports, CategoryReports
from dpaudit_local.pool_inference.settings import Pools
from dpaudit_local.pool_inference.sketch_evidence import HadamardEvidence, SketchEvidence

__all__ = ["EVIDENCE", "PoolEvidence", "UniverseEvidence", "evidence_for", "likelihoods"]


class _WeightedEvidence:
    """Evidence in reports for an adversary with ``popularity`` (universe,); None is uniform."""

    def __init__(
        self, mechanism: Any, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
    ) -> None:
        self._mechanism, self._pools, self._weights = mechanism, pools, pools.weights(popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> Self:
        """The same for an adversary with another popularity."""
        return type(self)(self._mechanism, self._pools, popularity)


class IdentityEvidence(_WeightedEvidence):
    """1 for the object's pool, else 0: its popularity is one factor for all (footnote 4)."""

    def __call__(self, reports: CategoryReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports.

        Raises:
            UsageError: an object outside the universe.
        """
        del threads
        objects = np.asarray(reports.category)
        if len(objects) and (objects.min() < 0 or objects.max() >= self._pools.universe):
            raise UsageError(
                f"category={objects.min()} … {objects.max()}: "
                f"the universe is 0 … {self._pools.universe - 1}"
            )
        out = np.zeros((len(objects), self._pools.k + 1))
        out[np.arange(len(objects)), self._pools.labels[objects]] = 1.0
        return out


class ResponseEvidence(_WeightedEvidence):
    """E_i = 1 + (T/L − 1)·w_c where category c lies in pool i, else 1; T/L = e^ε."""

    def __call__(self, reports: CategoryReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports.

        A category outside the universe carries no information: 1 for every pool.

        Raises:
            UsageError: a category below 0.
        """
        del threads
        category = np.asarray(reports.category)
        if len(category) and category.min() < 0:
            raise UsageError(f"category={category.min()}: categories are whole numbers ≥ 0")
        out = np.ones((len(category), self._pools.k + 1))
        rows = np.flatnonzero(category < self._pools.universe)
        objects = category[rows]
        gain = self._mechanism.truth / self._mechanism.lie - 1
        out[rows, self._pools.labels[objects]] += gain * self._weights[objects]
        return out


_CELLS = 1 << 22  # report-object pairs at a time: 32 MiB


class UniverseEvidence(_WeightedEvidence):
    """E_i = Σ_{z∈P_i} w_z·P(report | z), from ``log_likelihood``.

    Each report's largest likelihood is scaled to 1. Slow: each observation costs as much as the
    universe is large. It serves mechanisms without an evidence of their own.
    """

    def __call__(self, reports: Any, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports.

        Raises:
            UsageError: a report that no object of the universe can have led to.
        """
        del threads
        spread = np.zeros((self._pools.universe, self._pools.k + 1))
        spread[np.arange(self._pools.universe), self._pools.labels] = self._weights
        out = np.empty((len(reports), spread.shape[1]))
        step = max(1, _CELLS // self._pools.universe)
        for start in range(0, len(reports), step):
            rows = slice(start, start + step)
            out[rows] = likelihoods(self._mechanism, reports[rows], self._pools.universe) @ spread
        return out


def likelihoods(mechanism: LocalMechanism, reports: Any, universe: int) -> npt.NDArray[np.float64]:
    """P(report | object), (n, universe), each report's largest scaled to 1.

    Raises:
        UsageError: a report that no object of the universe can have led to.
    """
    logs = mechanism.log_likelihood(reports, np.arange(universe))
    top = logs.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        raise UsageError("reports: one is impossible for every object of the universe")
    law: npt.NDArray[np.float64] = np.exp(logs - top)
    return law


class RapporEvidence(_WeightedEvidence):
    """E_i = Σ_{z∈P_i} w_z·Π_{b∈B_z} r(bit b).

    B_z is the Bloom filter of z in the report's cohort. r(1) = q*/p*, r(0) = (1 − q*)/(1 − p*):
    what a bit of the object's own filter says against a bit outside it. Reports are taken as
    independent given the objects. Cost: each observation goes through all objects of the universe
    (a few nanoseconds each), so a large universe is slow here, unlike for sketches.
    """

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
            filters = np.sort(
                law.positions(np.arange(self._pools.universe), c).astype(np.int64), axis=1
            )
            repeated = np.zeros(filters.shape, bool)
            repeated[:, 1:] = filters[:, 1:] == filters[:, :-1]
            filters[repeated] = law.bits  # two hash functions on one bit set it once
            _fill_filters(
                bits,
                np.flatnonzero(cohort == c),
                filters,
                self._pools.labels,
                self._weights,
                ratios,
                law.bits,
                out,
            )
        return out


_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


@_jit
def _fill_filters(  # type: ignore[no-untyped-def]
    bits, rows, filters, labels, weights, ratios, size, out
):
    ratio = np.ones(size + 1)
    for r in rows:
        for b in range(size):
            ratio[b] = ratios[(bits[r, b >> 3] >> (b & 7)) & 1]
        for z in range(filters.shape[0]):
            likelihood = weights[z]
            for h in range(filters.shape[1]):
                likelihood *= ratio[filters[z, h]]
            out[r, labels[z]] += likelihood


class PoolEvidence(Protocol):
    """Maps reports to their evidence for each pool."""

    def __call__(self, reports: Any, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Σ_{z∈P_i} p̂(z)/p̂(P_i)·P(report | z) for each report and pool, shape (n, k + 1), neutral
        first, up to a constant of each report.
        """

    def against(self, popularity: npt.NDArray[np.float64] | None) -> PoolEvidence:
        """The same for another popularity (None: uniform), sharing what does not depend on it."""


EVIDENCE: dict[type, Callable[..., PoolEvidence]] = {
    CountMeanSketch: SketchEvidence,
    CountMedianSketch: SketchEvidence,
    HadamardSketch: HadamardEvidence,
    Identity: IdentityEvidence,
    RandomizedResponse: ResponseEvidence,
    Rappor: RapporEvidence,
}
"""Mechanisms with an evidence of their own, by exact type: a subclass may have another law."""


def evidence_for(
    mechanism: LocalMechanism, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
) -> PoolEvidence:
    """The evidence in ``mechanism``'s reports for one adversary.

    The adversary holds ``popularity`` (universe,), or None for uniform.

    Raises:
        UsageError: no local mechanism, or a popularity that is none.
    """
    if not isinstance(mechanism, LocalMechanism):
        raise UsageError(f"mechanism={mechanism!r}: not a local mechanism")
    return EVIDENCE.get(type(mechanism), UniverseEvidence)(mechanism, pools, popularity)
