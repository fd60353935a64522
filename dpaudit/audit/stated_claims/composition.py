"""What several calls keep together, each of which keeps a claim."""

from __future__ import annotations

import math
from dataclasses import replace

from dpaudit.accounting import Loss, optimal_delta
from dpaudit.audit.stated_claims.claim import StatedClaim
from dpaudit.audit.stated_claims.parameters import Gaussian, Renyi, ZeroConcentrated
from dpaudit.audit.stated_claims.steps import Steps
from dpaudit.audit.stated_claims.tables import DeltaCurve
from dpaudit.errors import UsageError

__all__ = ["composed"]

_LARGEST_EPSILON = 500.0


def composed(
    stated: StatedClaim | None, epsilon: float, delta: float, mu: float | None, *, calls: int
) -> StatedClaim:
    """What ``calls`` calls keep together: of ``stated``, or else of ``mu``, or else of (ε, δ).

    Raises:
        UsageError: ``stated`` is a table.
    """
    if isinstance(stated, ZeroConcentrated):
        return ZeroConcentrated(calls * stated.rho)
    if isinstance(stated, Renyi):
        return Renyi(stated.order, calls * stated.divergence)
    if isinstance(stated, Steps):
        together = replace(stated.dpsgd, steps=calls * stated.dpsgd.steps)
        return Steps(together, stated.delta)
    if stated is not None:
        raise UsageError(
            f"calls={calls}: a table is not composed; claim ε, μ, ρ or Rényi DP of one call"
        )
    if mu is not None:
        return Gaussian(math.sqrt(calls) * mu)
    if epsilon == 0:
        return DeltaCurve(((0.0, -math.expm1(calls * math.log1p(-delta))),))
    losses = [Loss(epsilon, delta)] * calls
    corners = [0.0, *(i * epsilon for i in range(2 - calls % 2, calls, 2)), calls * epsilon]
    pairs = [(at, optimal_delta(at, losses=losses) * (1 + 1e-9)) for at in corners]
    if delta == 0:
        pairs[-1] = (calls * epsilon, 0.0)  # but for rounding
    kept = tuple((at, least) for at, least in pairs if at <= _LARGEST_EPSILON and least < 1)
    return DeltaCurve(kept)
