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

_STEPS = 5000
_STARTS = 5
_TOLERANCE = 1e-6


def nonnegative_lasso(
    matrix: Any,
    target: npt.NDArray[np.float64],
    penalty: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """β ≥ 0 that minimises ½‖target − matrix·β‖² + Σ penalty·β (Tibshirani 1996, without negative coefficients).

    ``matrix`` (n, c) sparse, no column of it zero; ``target`` (n,); ``penalty`` (c,) ≥ 0. Where β ≥ 0 the penalty is
    linear, so this is a smooth convex problem in a box: scipy's L-BFGS-B on columns scaled to length 1, started again
    where it stops short of the optimality conditions (gradient 0 where β > 0 and ≥ 0 elsewhere, to 1e-6 of its size at 0).

    Raises:
        DpauditError: the conditions did not hold after five starts of 5,000 steps.
    """
    length = scipy.sparse.linalg.norm(matrix, axis=0)
    scaled_matrix = matrix @ scipy.sparse.diags(1 / length)
    cost = penalty / length

    def objective(beta: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        left = scaled_matrix @ beta - target
        return float(left @ left / 2 + cost @ beta), scaled_matrix.T @ left + cost

    beta = np.zeros(len(length))
    tolerance = _TOLERANCE * max(float(np.abs(scaled_matrix.T @ target).max()), float(cost.max()))
    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-15, "gtol": tolerance / 2, "maxcor": 30}
    for _ in range(_STARTS):
        bounds = scipy.optimize.Bounds(0.0, np.inf)
        beta = scipy.optimize.minimize(objective, beta, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        gradient = objective(beta)[1]
        if np.where(beta > 0, np.abs(gradient), -gradient).max(initial=0.0) <= tolerance:
            return np.asarray(beta / length)
    raise DpauditError(f"non-negative lasso of {len(length)} columns: not converged; fewer candidates, or more reports")
