"""Least squares with an L1 penalty and no negative coefficients, to choose few columns out of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg

from dpaudit.errors import DpauditError

__all__ = ["nonnegative_lasso"]

_TOLERANCE = 1e-9
_BATCH = 100


def nonnegative_lasso(
    matrix: Any,
    target: npt.NDArray[np.float64],
    penalty: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """β ≥ 0 that minimises ½‖target − matrix·β‖² + Σ penalty·β (Tibshirani 1996, without negative coefficients).

    ``matrix`` (n, c) sparse, no column of it zero; ``target`` (n,); ``penalty`` (c,) ≥ 0. The dual is the projection of
    ``target`` onto a polyhedron, which is one non-negative least squares problem (Lawson and Hanson 1974, chapter 23):
    with h = matrixᵀ·target − penalty and y ≥ 0 that minimises ‖matrix·y‖² + (1 − h·y)², β = y/(1 − h·y). scipy's
    ``nnls`` solves it on a working set of columns, which grows by those that break the conditions of optimality.

    Guarantee: on columns scaled to length 1 and a target of length 1, the gradient is ≥ −1e-9 everywhere and ≤ 1e-9
    where β > 0. At most n coefficients are above 0; of equal columns, one. Not claimed: which one.

    Raises:
        DpauditError: scipy's solver stopped, or the conditions do not hold on the working set.
    """
    length = scipy.sparse.linalg.norm(matrix, axis=0)
    scaled = (matrix @ scipy.sparse.diags(1 / length)).tocsc()
    size = float(np.linalg.norm(target)) or 1.0
    goal = target / size
    cost = penalty / length / size
    beta = np.zeros(len(length))
    working = np.zeros(0, dtype=np.int64)
    while True:
        gradient = scaled.T @ (scaled @ beta - goal) + cost
        broken = np.setdiff1d(np.flatnonzero(gradient < -_TOLERANCE), working)
        if not len(broken):
            break
        working = np.append(working, broken[np.argsort(gradient[broken], kind="stable")[:_BATCH]])
        beta[working] = _solve(scaled[:, working], goal, cost[working])
    if not np.where(beta > 0, np.abs(gradient), -gradient).max(initial=0.0) <= _TOLERANCE:
        raise DpauditError(
            f"non-negative lasso of {len(length)} columns: not converged; fewer candidates, or more reports"
        )
    return np.asarray(beta * size / length)


def _solve(matrix: Any, goal: npt.NDArray[np.float64], cost: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same problem on few columns; ``goal`` at most 1 long, so that 1 − h·y ≥ 1/2."""
    pull = matrix.T @ goal - cost
    rows = np.vstack([np.linalg.qr(matrix.toarray(), mode="r"), pull])
    aim = np.zeros(len(rows))
    aim[-1] = 1.0
    try:
        y, _ = scipy.optimize.nnls(rows, aim)
    except RuntimeError as error:
        raise DpauditError(
            f"non-negative lasso of {len(cost)} columns: {error}; fewer candidates, or more reports"
        ) from error
    return np.asarray(y / (1 - pull @ y))
