"""A bet on more or less variance along one direction."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.audit.betting.location_scale import log_mean, log_scale_mixture
from dpaudit.interfaces import Block

__all__ = ["DirectionBet"]

_LARGEST = 256


class DirectionBet:
    """Along the directions in which the rows so far varied most and least, the next block varies unlike N(0, 1).

    The direction is fixed before the block is seen, so the projections are N(0, 1) under the claim and the exact scale
    mixture of them is a martingale. Rows of the first dimension drawn in 2 … 256 only.
    """

    looks_at = "variance along one direction"

    def __init__(self) -> None:
        self._d = 0
        self._moments: npt.NDArray[np.float64] | None = None
        self._n = 0
        self._square = [0.0, 0.0]

    def update(self, block: Block) -> None:
        rows, d = block.z.shape
        if not self._d and 2 <= d <= _LARGEST:
            self._d = d
        if d != self._d:
            return
        if self._moments is None:
            self._moments = np.zeros((d, d))
        else:
            _, vectors = np.linalg.eigh(self._moments)
            for i, w in enumerate((vectors[:, 0], vectors[:, -1])):
                x = block.z @ w
                self._square[i] += float(x @ x)
            self._n += rows
        self._moments += block.z.T @ block.z

    @property
    def log_capital(self) -> float:
        return log_mean([log_scale_mixture(self._n, square) for square in self._square])

    @property
    def effect(self) -> str:
        low, high = (math.sqrt(square / max(self._n, 1)) for square in self._square)
        return f"scale {low:.4f} and {high:.4f} × claimed along the least and most varied direction of {self._d}"
