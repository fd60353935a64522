"""The check that every policy starts with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["check_people"]


def check_people(objects: npt.NDArray[np.integer]) -> tuple[int, int]:
    """How many users, and how many objects of each.

    Raises:
        UsageError: not a table (users, n) of whole numbers from 0 to 2^63 − 1 with at least one user and one object.
    """
    if objects.ndim != 2 or 0 in objects.shape:
        raise UsageError(f"objects of shape {objects.shape}: one row a user, one column a submission, neither empty")
    if not np.issubdtype(objects.dtype, np.integer) or int(objects.min()) < 0 or int(objects.max()) >= 1 << 63:
        raise UsageError(f"objects of type {objects.dtype}: objects are whole numbers from 0 to 2^63 − 1")
    return objects.shape[0], objects.shape[1]
