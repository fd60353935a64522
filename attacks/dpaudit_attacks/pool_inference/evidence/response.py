"""Evidence in reports of k-ary randomised response."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.randomized_response import RandomizedResponse
from dpaudit.local.reports import CategoryReports
from dpaudit_attacks.pool_inference.pools import Pools

__all__ = ["ResponseEvidence"]


class ResponseEvidence:
    """E_i = 1 + (T/L − 1)·w_c where the category c lies in pool i, else 1: a truth is T/L = e^ε times as likely as a lie."""

    def __init__(
        self, mechanism: RandomizedResponse, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
    ) -> None:
        """For an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self._mechanism, self._pools = mechanism, pools
        self._weights = pools.weights(popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> ResponseEvidence:
        """The same for an adversary with another popularity."""
        return ResponseEvidence(self._mechanism, self._pools, popularity)

    def __call__(self, reports: CategoryReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports. A category outside the universe tells nothing: 1 for every pool.

        Raises:
            UsageError: a category below 0.
        """
        del threads
        category = np.asarray(reports.category)
        if len(category) and category.min() < 0:
            raise UsageError(f"category={category.min()}: categories are whole numbers ≥ 0")
        out = np.ones((len(category), self._pools.k + 1))
        known = np.flatnonzero(category < self._pools.universe)
        objects = category[known]
        gain = self._mechanism.truth / self._mechanism.lie - 1
        out[known, self._pools.labels[objects]] += gain * self._weights[objects]
        return out
