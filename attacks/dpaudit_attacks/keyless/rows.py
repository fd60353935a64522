"""Which rows of the stream the search keeps, dimension by dimension, in bounded memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.keyless.lattice import SHORTEST_ROW

__all__ = ["HELD", "Rows"]

HELD = 512  # rows that confirm: 4·exp(−512·R²/4) is below 1e-13 from R = 0.5 on
_CHECKED = 512  # rows that rank candidates
_SPARE = 64
_SEEN = 1 << 20  # rows looked at for small norms

Array = npt.NDArray[np.float64]


class Rows:
    """Normalised rows of one dimension d: which part a row plays depends on its place in the stream, not on its values.

    In turns of four: one held out, one that ranks candidates, two to search in, until the first two are full. Of those to
    search in, the 4d + 64 of least norm (2 at least) are kept. Held-out rows are thus
    independent of all others that are kept.
    """

    def __init__(self, d: int) -> None:
        """Start empty."""
        self.d = d
        self.seen = 0
        self.held: Array = np.empty((0, d))
        self.check: Array = np.empty((0, d))
        self.pool: Array = np.empty((0, d))
        self._most = 4 * d + _SPARE
        self._limit = math.inf  # the largest squared norm in a full pool

    def add(self, z: Array) -> None:
        """Take in rows z (n, d)."""
        if self.seen >= _SEEN:
            return
        if len(self.held) < HELD or len(self.check) < _CHECKED:
            turn = (self.seen + np.arange(len(z))) % 4
            held, check = np.flatnonzero(turn == 0), np.flatnonzero(turn == 1)
            held, check = held[: HELD - len(self.held)], check[: _CHECKED - len(self.check)]
            self.held = np.concatenate([self.held, z[held]])
            self.check = np.concatenate([self.check, z[check]])
            free = np.ones(len(z), bool)
            free[held] = free[check] = False
            rest = z[free]
        else:
            rest = z
        self.seen += len(z)
        norm = np.einsum("ij,ij->i", rest, rest)
        small = (norm < self._limit) & (norm >= SHORTEST_ROW**2)
        if small.any():
            self.pool = np.concatenate([self.pool, rest[small]])
            if len(self.pool) > self._most:
                norm = np.einsum("ij,ij->i", self.pool, self.pool)
                keep = np.sort(np.argpartition(norm, self._most)[: self._most])
                self.pool = self.pool[keep]
                self._limit = float(norm[keep].max())

    @property
    def shrink(self) -> float:
        """Root mean square length of the pool's rows, in units of √d."""
        return math.sqrt(float(np.square(self.pool).mean())) if len(self.pool) else 1.0

    @property
    def enough(self) -> bool:
        """Whether a lattice can be built and a candidate confirmed."""
        enough = max(128, 2 * self.d)
        return len(self.pool) >= self.d + 8 and len(self.held) >= 128 and len(self.check) >= enough
