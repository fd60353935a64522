"""From estimated frequencies, some below 0, to a popularity: projections onto the probability simplex."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["average_projections", "project"]


def project(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The point of the simplex nearest to ``values`` (n,) in Euclidean distance, exact up to rounding.

    max(v − θ, 0) with the one θ for which that adds up to 1, found by sorting (Duchi, Shalev-Shwartz, Singer and Chandra
    2008, Figure 1).

    Raises:
        UsageError: no values, or one that is not finite.

    >>> project(np.array([0.5, 0.7, -3.0])).round(3).tolist()
    [0.4, 0.6, 0.0]
    """
    values = _checked(values)
    values = values - values.max()  # the same projection, and the 1 of the sum is not lost beside huge values
    falling = np.sort(values)[::-1]
    thetas = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling > thetas)[-1]
    nearest: npt.NDArray[np.float64] = np.maximum(values - thetas[last], 0.0)
    nearest /= nearest.sum()
    return nearest


def average_projections(
    values: npt.NDArray[np.float64], *, steps: int = 1000, tolerance: float = 1e-6
) -> npt.NDArray[np.float64]:
    """A point of the simplex by averaged projections, as the authors of pool inference find theirs; not the nearest one.

    Each step is the mean of the projections onto {Σ = 1} and onto {all ≥ 0} (Bauschke and Borwein 1993, "On the
    convergence of von Neumann's alternating projection algorithm"), until a step's root mean square is at most
    ``tolerance``, or for ``steps``; what is left below 0 is then cut off and the rest scaled to 1.

    Raises:
        UsageError: no values, one that is not finite, or no step.
    """
    values = _checked(values).copy()
    if steps < 1:
        raise UsageError(f"steps={steps}: must be at least 1")
    for _ in range(steps):
        following = (values + (1 - values.sum()) / len(values) + np.maximum(values, 0.0)) / 2
        moved = float(np.sqrt(np.mean((following - values) ** 2)))
        values = following
        if moved <= tolerance:
            break
    values = np.maximum(values, 0.0)
    values /= values.sum()
    return values


def _checked(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise UsageError(f"values of shape {values.shape}: a projection needs one axis of finite numbers")
    return values
