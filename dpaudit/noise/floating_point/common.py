"""What the specimens share: a CPU block to fill, and no known ε."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.numeric.drawing import cpu_sample
from dpaudit.numeric.normal import check_sigma
from dpaudit.protocols import Host, Stream
from dpaudit.types import EpsilonBounds

__all__ = ["CpuSpecimen"]


class CpuSpecimen(ABC):
    """A CPU block that ``_fill`` writes, and no known ε. Gaussian unless ``claim`` says not."""

    dim = None
    _name: str
    _compute: type[np.floating[Any]] = np.float64

    def __init__(self, *, sigma: float = 1.0) -> None:
        """Noise of nominal standard deviation ``sigma`` per coordinate."""
        self.sigma = check_sigma(sigma)

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    @cpu_sample(only="this specimen replays a CPU sampler")
    def sample(self, n: int, d: int, *, stream: Stream) -> npt.NDArray[np.floating[Any]]:
        """``n`` vectors, shape (n, d), CPU only: computed as the class says, then cast."""
        out = np.empty((n * d + 1) // 2 * 2, self._compute)
        self._fill(out, stream)
        return out[: n * d].reshape(n, d)

    @abstractmethod
    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        """Write noise to ``out``, flat, row by row: n·d values or one more, so that pairs fit."""

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """No finite ε is known: the set of reachable outputs depends on the value."""
        del delta, host
        return EpsilonBounds(low=0.0, high=math.inf, says="unknown: porous floating-point support")
