"""Evidence for any mechanism, by its likelihood of every object of the universe."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.interfaces import LocalMechanism
from dpaudit_attacks.pool_inference.pools import Pools

__all__ = ["UniverseEvidence", "likelihoods"]

_CELLS = 1 << 22  # report-object pairs at a time: 32 MiB


class UniverseEvidence:
    """E_i = Σ_{z∈P_i} w_z·P(report | z), each report's largest likelihood scaled to 1, from ``log_likelihood``.

    Slow: each observation costs as much as the universe is large. It serves mechanisms without an evidence of their own.
    """

    def __init__(
        self, mechanism: LocalMechanism, pools: Pools, popularity: npt.NDArray[np.float64] | None = None
    ) -> None:
        """For an adversary who holds ``popularity`` (universe,), or None for uniform."""
        self._mechanism, self._pools, self._weights = mechanism, pools, pools.weights(popularity)

    def against(self, popularity: npt.NDArray[np.float64] | None) -> UniverseEvidence:
        """The same for an adversary with another popularity."""
        return UniverseEvidence(self._mechanism, self._pools, popularity)

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
        raise UsageError("reports: one cannot come from any object of the universe")
    law: npt.NDArray[np.float64] = np.exp(logs - top)
    return law
