"""Evidence in objects in the clear."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.local.reports import CategoryReports
from dpaudit_attacks.pool_inference.pools import Pools

__all__ = ["IdentityEvidence"]


class IdentityEvidence:
    """1 for the object's pool, 0 for the others: its popularity is one factor for all pools (the paper's footnote 4)."""

    def __init__(self, mechanism: Any, pools: Pools, popularity: npt.NDArray[np.float64] | None = None) -> None:
        """The popularity changes nothing."""
        del mechanism, popularity
        self._pools = pools

    def against(self, popularity: npt.NDArray[np.float64] | None) -> IdentityEvidence:
        """The same: the popularity changes nothing."""
        del popularity
        return self

    def __call__(self, reports: CategoryReports, *, threads: int = 2) -> npt.NDArray[np.float64]:
        """Evidence (n, k + 1) of reports.

        Raises:
            UsageError: an object outside the universe.
        """
        del threads
        objects = np.asarray(reports.category)
        if len(objects) and (objects.min() < 0 or objects.max() >= self._pools.universe):
            raise UsageError(
                f"category={objects.min()} … {objects.max()}: the universe is 0 … {self._pools.universe - 1}"
            )
        out = np.zeros((len(objects), self._pools.k + 1))
        out[np.arange(len(objects)), self._pools.labels[objects]] = 1.0
        return out
