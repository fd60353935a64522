"""Controlled rounding: each cell to a neighbouring integer, with all sums kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

__all__ = ["controlled_rounding"]

_SLACK = 1e-5

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def controlled_rounding(
    values: Floats, *, parts: Sequence[Counts] = (), parent: Counts | None = None
) -> Counts:
    """Integers next to ``values`` (n, cells) at the least distance Σ|integer − value|.

    All columns together add up to ``parent`` (cells,), where given. For each of ``parts`` (cells,),
    whose groups are nested in one another, every row's sum over a group is rounded down or up too;
    where it is an integer, it is kept. Values must be ≥ 0 and fit the sums to within 1e-5.

    The constraints are two nested families of sets (groups within a row; columns), so their matrix
    is totally unimodular (Edmonds 1970; Cox 1987 for tables): the linear programme has integral
    vertices, and HiGHS' integer solver ends at its root.

    Raises:
        RuntimeError: the values do not fit the sums.
    """
    n, cells = values.shape
    floor = np.floor(values + _SLACK)
    rest = np.clip(values - floor, 0.0, 1.0)
    blocks, low, high = [], [], []
    for part in parts:
        groups = sparse.csr_array((np.ones(cells), (part, np.arange(cells))))
        sums, floors = values @ groups.T, floor @ groups.T
        blocks.append(sparse.kron(sparse.eye_array(n), groups))
        low.append((np.floor(sums + _SLACK) - floors).ravel())
        high.append((np.ceil(sums - _SLACK) - floors).ravel())
    if parent is not None:
        blocks.append(sparse.kron(np.ones((1, n)), sparse.eye_array(cells)))
        low.append(parent - floor.sum(0))
        high.append(parent - floor.sum(0))
    if not blocks:
        return np.rint(values).astype(np.int64)
    found = milp(
        (1 - 2 * rest).ravel(),
        integrality=np.ones(n * cells),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(
            sparse.vstack(blocks), np.concatenate(low), np.concatenate(high)
        ),
    )
    if found.x is None:
        raise RuntimeError(f"no controlled rounding: {found.message}")
    return np.asarray(floor + np.rint(found.x).reshape(n, cells), dtype=np.int64)
