"""The easy pancakes, with numpy alone: wide peaks that change a variance, and few dimensions."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.keyless.candidates import SHORTEST, resonance

__all__ = ["SCANNED_DIM", "from_covariance", "from_scan"]

SCANNED_DIM = 3
_REACH = {2: 6.0, 3: 3.0}  # |u| up to here
_STEP = (
    0.12  # of the grid in u: the resonance falls off as exp(−2π²|Δu|²), and the nearest point is within 0.104 at d = 3
)
_CHUNK = 4096
_SCAN_ROWS = 400

Array = npt.NDArray[np.float64]


def from_covariance(x: Array) -> Array:
    """Vectors u (m, d) along the covariance's outermost eigenvectors, at the frequency that resonates most.

    A pancake's variance along w differs from 1 by about 4πγ²·exp(−πγ²), so this finds γ below about 1.5 from
    d·(2/deviation)² rows and nothing above 2, at any d.
    """
    n, d = x.shape
    _, vectors = np.linalg.eigh(x.T @ x / n)
    frequency = np.arange(SHORTEST, 4.0, 0.01)
    found = []
    for w in {0: vectors[:, 0], d - 1: vectors[:, -1]}.values():
        score = resonance((x @ w)[:, None], frequency[:, None])
        found.append(w * frequency[int(score.argmax())])
    return np.array(found)


def from_scan(x: Array) -> Array:
    """For d ≤ 3: the three best vectors u (3, d) of a grid over |u| ≤ 6 (d = 2) or 3 (d = 3), one of each ±u."""
    d = x.shape[1]
    reach = _REACH[d]
    axis = np.arange(-reach, reach + _STEP / 2, _STEP)
    half = axis[axis > -_STEP / 2]
    grid = np.array(list(itertools.product(half, *[axis] * (d - 1))))
    length = np.linalg.norm(grid, axis=1)
    grid = grid[(length >= SHORTEST) & (length <= reach)]
    rows = x[:_SCAN_ROWS]
    score = np.concatenate([resonance(rows, grid[i : i + _CHUNK]) for i in range(0, len(grid), _CHUNK)])
    return np.asarray(grid[np.argsort(score)[-3:][::-1]])
