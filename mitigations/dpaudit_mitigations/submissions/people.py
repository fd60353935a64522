"""What the policies share: the check of submitted objects, and the ε of many reports together."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.sequences import Loss, compose
from dpaudit.errors import UsageError

__all__ = ["check_people", "composed_epsilon"]


def check_people(objects: npt.NDArray[np.integer]) -> tuple[int, int]:
    """Return (users, objects per user).

    Raises:
        UsageError: not a table (users, n) of whole numbers from 0 to 2^63 − 1 with at least one
            user and one object.
    """
    if objects.ndim != 2 or 0 in objects.shape:
        raise UsageError(
            f"objects of shape {objects.shape}: must be (users, submissions), not empty"
        )
    if (
        not np.issubdtype(objects.dtype, np.integer)
        or int(objects.min()) < 0
        or int(objects.max()) >= 1 << 63
    ):
        raise UsageError(f"objects of {objects.dtype}: must be whole numbers from 0 to 2^63 − 1")
    return objects.shape[0], objects.shape[1]


def composed_epsilon(
    epsilon: float, *, reports: int, delta: float, delta_each: float = 0.0
) -> float:
    """An ε at ``delta`` of ``reports``, each (``epsilon``, ``delta_each``)-DP, or infinite.

    Raises:
        UsageError: a parameter out of range (see :func:`dpaudit.accounting.sequences.compose`).
    """
    if not math.isfinite(epsilon):
        return epsilon
    if epsilon == 0 and delta_each * reports <= delta:
        return 0.0
    return compose([Loss(epsilon, delta_each)] * reports, delta=delta)
