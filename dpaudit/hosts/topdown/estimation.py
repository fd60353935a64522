"""Non-negative least squares for all children of one parent, consistent with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Answers", "estimate"]

_RELAXED = 1.6
_TOLERANCE = 1e-6
_MOST = 20_000
_BALANCED = 100  # iterations after which the penalty is looked at again

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Noisy answers ``values`` (n, c) of a query, its ``matrix`` (cells, c), and 1/variance."""

    matrix: Floats
    values: Floats
    weight: float


def estimate(
    answers: Sequence[Answers], *, parent: Floats | None = None, totals: Floats | None = None
) -> Floats:
    """Counts x (n, cells) ≥ 0 that minimise Σ weight·(x·matrix − values)².

    The children's sum is ``parent`` (cells,) and each one's total is in ``totals`` (n,), where
    given; the totals must then add up to the parent's. Both hold to rounding, and the objective is
    within about 1e-6 counts of its least per cell.

    All n children have one Hessian, the constraints tie them by one sum, and only x ≥ 0 is left:
    operator splitting (ADMM; Boyd et al. 2011, the method of OSQP) takes one product with a
    (cells, cells) matrix per iteration, and projects onto both kinds of constraints in closed form.

    Raises:
        RuntimeError: no convergence in 20,000 iterations.
    """
    unit = max(one.weight for one in answers)
    hessian = sum((one.weight / unit) * one.matrix @ one.matrix.T for one in answers)
    linear = sum((one.weight / unit) * one.values @ one.matrix.T for one in answers)
    hessian, linear = np.asarray(hessian), np.asarray(linear)
    values, vectors = np.linalg.eigh(hessian)
    penalty = float(np.sqrt(max(values[0], 1e-3) * values[-1]))
    z = np.maximum(linear / values[-1], 0.0)
    dual = np.zeros_like(z)
    for step in range(_MOST):
        if step % _BALANCED == 0:
            inverse = (vectors / (values + penalty)) @ vectors.T
            along = inverse.sum(0)
        x = _consistent((linear + penalty * (z - dual)) @ inverse, along, parent, totals)
        mixed = _RELAXED * x + (1 - _RELAXED) * z
        before, z = z, np.maximum(mixed + dual, 0.0)
        dual += mixed - z
        apart, moved = float(np.abs(x - z).max()), float(np.abs(z - before).max())
        if max(apart, moved) < _TOLERANCE:
            return _consistent(z, np.ones_like(along), parent, totals)
        if step % _BALANCED == _BALANCED - 1 and not 0.1 < apart / (moved + 1e-300) < 10:
            factor = 2.0 if apart > moved else 0.5
            penalty, dual = penalty * factor, dual / factor
    raise RuntimeError(f"no convergence of least squares: {apart:.1e} apart, {moved:.1e} moved")


def _consistent(y: Floats, along: Floats, parent: Floats | None, totals: Floats | None) -> Floats:
    """The nearest values with the right sums, in the metric whose inverse has row sums ``along``.

    The first shift is the same for all children; the second one's is 0 in sum, as the totals add up
    to the parent's.
    """
    if parent is not None:
        y = y + (parent - y.sum(0)) / len(y)
    if totals is not None:
        y = y + np.outer((totals - y.sum(1)) / along.sum(), along)
    return y
