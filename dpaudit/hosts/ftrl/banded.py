"""Banded matrices C with the least error of prefix sums at equal privacy, by L-BFGS.

Where nobody takes part twice within ``bands`` steps, the columns of one person are orthogonal, and
the sensitivity is the columns' norm times the root of the number of participations. So both are
optimised for columns of norm at most 1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular, toeplitz
from scipy.optimize import minimize
from scipy.signal import lfilter

__all__ = ["banded_matrix", "root_coefficients", "toeplitz_coefficients", "toeplitz_matrix"]

Matrix = npt.NDArray[np.float64]

_STEPS = {"maxiter": 2_000, "maxfun": 4_000, "ftol": 1e-13, "gtol": 1e-9}


def root_coefficients(count: int) -> Matrix:
    """The first ``count`` of (1 − x)^(−1/2): the Toeplitz root of A (Fichtenberger et al. 2023).

    >>> root_coefficients(3)
    array([1.   , 0.5  , 0.375])
    """
    k = np.arange(1, count)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


@lru_cache(maxsize=32)
def _toeplitz(steps: int, bands: int) -> tuple[float, ...]:
    weights = np.arange(steps, 0, -1) / steps
    impulse = np.zeros(steps)
    impulse[0] = 1

    def loss(free: Matrix) -> tuple[float, Matrix]:
        """log(‖c‖² · mean squared error) and its gradient; c₀ = 1."""
        c = np.concatenate([[1.0], free])
        inverse = lfilter([1.0], c, impulse)
        noise = np.cumsum(inverse)  # the series of B, 1/((1 − x)·c(x))
        error, size = weights @ noise**2, c @ c
        # d noise = −(noise · inverse)·dc as series
        twice = np.convolve(noise, inverse)[:steps]
        back = np.correlate(2 * weights * noise, twice, "full")[steps - 1 :][:bands]
        slope = 2 * c / size - back / error
        return float(np.log(error * size)), slope[1:]

    if bands == 1:
        return (1.0,)
    start = root_coefficients(bands)[1:]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=_STEPS)
    c = np.concatenate([[1.0], found.x])
    return tuple((c / np.linalg.norm(c)).tolist())


def toeplitz_coefficients(steps: int, bands: int) -> Matrix:
    """The first column of the Toeplitz C with the least mean squared error, of norm 1."""
    return np.array(_toeplitz(steps, bands))


def toeplitz_matrix(steps: int, bands: int) -> Matrix:
    """C, shape (steps, steps), from :func:`toeplitz_coefficients`."""
    column = np.zeros(steps)
    column[:bands] = toeplitz_coefficients(steps, bands)
    return np.asarray(toeplitz(column, np.zeros(steps)))


@lru_cache(maxsize=8)
def banded_matrix(steps: int, bands: int) -> Matrix:
    """C, shape (steps, steps), lower triangular with columns of norm 1: least ‖A·C⁻¹‖².

    A local minimum: L-BFGS from the Toeplitz root, the gradient of ‖B‖² being −2·Bᵀ·B·C⁻ᵀ.
    """
    row, column = np.indices((steps, steps))
    inside = (row >= column) & (row < column + bands)
    ones = np.tril(np.ones((steps, steps)))

    def unit(free: Matrix) -> tuple[Matrix, Matrix]:
        raw = np.zeros((steps, steps))
        raw[inside] = free
        norms = np.linalg.norm(raw, axis=0)
        return raw / norms, norms

    def loss(free: Matrix) -> tuple[float, Matrix]:
        c, norms = unit(free)
        b = solve_triangular(c.T, ones.T, lower=False).T
        error = float(np.square(b).sum())
        slope = -2 * solve_triangular(c, (b.T @ b).T, lower=True).T / error
        slope -= c * (slope * c).sum(0)  # along the sphere of each column
        return float(np.log(error)), (slope / norms)[inside]

    start = toeplitz(root_coefficients(steps), np.zeros(steps))[inside]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=_STEPS)
    made = unit(found.x)[0]
    made.flags.writeable = False  # it is kept
    return made
