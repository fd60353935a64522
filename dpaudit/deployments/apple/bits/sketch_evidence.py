"""Sketch vectors taken in as they come: counts of ones, and the first few whole for the checks."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpaudit.deployments.apple.bits.sketch_checks import (
    Check,
    check_copies,
    check_neighbours,
    check_positions,
    check_spread,
)
from dpaudit.deployments.apple.bits.sketch_estimates import coin_interval
from dpaudit.types import Interval

__all__ = ["CHECKS", "MOST_BITS", "MOST_VECTORS", "Estimated", "SketchEvidence"]

CHECKS = 4
"""How many checks share a key's α."""
MOST_BITS = 2**20
MOST_VECTORS = 512
"""The checks of neighbours and copies look at the first so many vectors, of so many bits in all."""
_CHUNK = 2**20


class Estimated(NamedTuple):
    """The coin of one sketch of each record: its bias (None: none fits), how many vectors it rests on, and the checks."""

    flip: Interval | None
    vectors: int
    checks: tuple[Check, ...]


class SketchEvidence:
    """The vectors of one sketch of every record of a key; memory is m bytes, 4 a vector, and 128 KiB for the checks."""

    def __init__(self, m: int) -> None:
        """For vectors of ``m`` bits, a multiple of 8."""
        self.m = m
        self.vectors = 0
        self._places = np.zeros(8, dtype=np.int64)
        self._inside = np.zeros(m // 8, dtype=np.int64)
        self._each = array("i")
        self._kept: list[npt.NDArray[np.uint8]] = []
        self._room = max(2, min(MOST_VECTORS, MOST_BITS // m))

    def add(self, packed: npt.NDArray[np.uint8]) -> None:
        """Take in vectors (n, m/8), bit i in byte i // 8 at 1 << i % 8."""
        step = max(1, _CHUNK // packed.shape[1])
        for start in range(0, len(packed), step):
            bits = np.unpackbits(packed[start : start + step], axis=1, bitorder="little")
            bytewise = bits.reshape(len(bits), -1, 8)
            self._places += bytewise.sum((0, 1), dtype=np.int64)
            self._inside += bytewise.sum((0, 2), dtype=np.int64)
            self._each.frombytes(bits.sum(1, dtype=np.intc).tobytes())
            if self._room:
                some = packed[start : start + min(step, self._room)].copy()
                self._kept.append(some)
                self._room -= len(some)
            self.vectors += len(bits)

    def estimate(self, *, interval_alpha: float, check_alpha: float) -> Estimated | None:
        """The coin's bias and the checks; None without vectors.

        The interval misses the bias with probability ≤ ``interval_alpha``. Each check's p-value is valid (of
        ``check_spread`` approximately) whatever the bias: it uses an interval of its own at a tenth of ``check_alpha``.
        """
        if not self.vectors:
            return None
        ones = int(self._places.sum())
        flip = coin_interval(ones, self.vectors, self.m, confidence=1 - interval_alpha)
        wide = coin_interval(ones, self.vectors, self.m, confidence=1 - check_alpha / 10)
        if flip is None or wide is None:
            return Estimated(None, self.vectors, ())
        kept = np.unpackbits(np.concatenate(self._kept), axis=1, bitorder="little").astype(np.bool_)
        checks = (
            check_positions(self._places, self._inside, self.vectors, wide),
            check_spread(np.frombuffer(self._each, dtype=np.intc).astype(np.int64), self.m, wide),
            check_neighbours(kept),
            check_copies(kept, wide),
        )
        return Estimated(flip, self.vectors, tuple(c for c in checks if c is not None))
