"""What many reports of one person add up to."""

from __future__ import annotations

import math

from dpaudit.accounting.sequences import Loss, compose

__all__ = ["composed_epsilon"]


def composed_epsilon(epsilon: float, *, reports: int, delta: float, delta_each: float = 0.0) -> float:
    """An ε at ``delta`` of so many reports, each (``epsilon``, ``delta_each``)-DP; infinite if one alone is.

    Raises:
        UsageError: a parameter out of range (see :func:`dpaudit.accounting.sequences.compose`).
    """
    if not math.isfinite(epsilon):
        return epsilon
    if epsilon == 0 and delta_each * reports <= delta:
        return 0.0
    return compose([Loss(epsilon, delta_each)] * reports, delta=delta)
