"""What one submission says of each pool, one mechanism a file.

``evidence_for`` finds the right one by the mechanism's type, or falls back to the whole universe's
likelihoods, slow but for any ``LocalMechanism``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import LocalMechanism
from dpaudit_local.count_mean_sketch import CountMeanSketch
from dpaudit_local.count_median_sketch import CountMedianSketch
from dpaudit_local.hadamard_sketch import HadamardSketch
from dpaudit_local.identity import Identity
from dpaudit_local.pool_inference.evidence.objects import (
    IdentityEvidence,
    RapporEvidence,
    ResponseEvidence,
    UniverseEvidence,
)
from dpaudit_local.pool_inference.evidence.sketches import HadamardEvidence, SketchEvidence
from dpaudit_local.pool_inference.pools import Pools
from dpaudit_local.randomized_response import RandomizedResponse
from dpaudit_local.rappor import Rappor

__all__ = ["EVIDENCE", "PoolEvidence", "evidence_for"]


class PoolEvidence(Protocol):
    """Maps reports to what they say of pools."""

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
