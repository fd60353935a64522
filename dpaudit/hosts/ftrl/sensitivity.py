"""How far one person can move C·X: L2 sensitivity under (k, b) min-separation participation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["Sensitivity", "sensitivity"]

Matrix = npt.NDArray[np.float64]

_ZERO = 1e-12


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The sensitivity for contributions of norm at most 1, or a bound from above."""

    value: float
    exact: bool


def sensitivity(strategy: Matrix, *, participations: int = 1, separation: int = 1) -> Sensitivity:
    """The largest ‖C·U‖ over U with at most k rows of norm ≤ 1, at least b steps apart.

    ``participations`` is k and ``separation`` b; neighbours are a person's updates or zeros.

    Formal guarantee: never below the sensitivity, for updates of any dimension, also where a
    person's later updates depend on earlier releases (Denisov et al. 2022: CᵀC without negative
    entries, or one participation). Exact for k = 1, and where columns of C that are b steps apart
    or more are orthogonal, as in a matrix of at most b bands or one restarted every b steps or
    fewer: then it is the root of the largest Σ‖c_j‖² over allowed steps (Choquette-Choo et al.
    2023, Theorem 2). Elsewhere the bound Σ_i max Σ_j |CᵀC|_ij, both over allowed steps.

    Raises:
        UsageError: k or b below 1.
    """
    for name, value in (("participations", participations), ("separation", separation)):
        if value < 1:
            raise UsageError(f"{name}={value}: must be a whole number ≥ 1")
    gram = np.abs(strategy.T @ strategy)
    steps = len(gram)
    apart = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))) >= separation
    limit = _ZERO * float(gram.max())
    if participations == 1 or not (gram[apart] > limit).any():
        square = _most(np.diag(gram)[None], participations, separation)[0]
        return Sensitivity(float(np.sqrt(square)), exact=True)
    rows = _most(gram, participations, separation)
    return Sensitivity(
        float(np.sqrt(_most(rows[None], participations, separation)[0])), exact=False
    )


def _most(gains: Matrix, count: int, separation: int) -> Matrix:
    """The largest sum of at most ``count`` entries of each row (r, n) that far apart, shape (r,).

    After each entry: the best of the first so many columns with one participation less.
    """
    best = np.zeros((len(gains), gains.shape[1] + 1))
    for _ in range(min(count, -(-gains.shape[1] // separation))):
        earlier = best
        best = np.zeros_like(earlier)
        for j in range(gains.shape[1]):
            taken = earlier[:, max(0, j + 1 - separation)] + gains[:, j]
            best[:, j + 1] = np.maximum(best[:, j], taken)
    found: Matrix = best[:, -1]
    return found
