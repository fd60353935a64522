"""What the specimens share: option checks, a CPU block to fill, and no known ε."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import as_asked
from dpaudit.numeric.normal import check_shape, check_sigma
from dpaudit.protocols import Array, DType, Host, Stream
from dpaudit.types import EpsilonBounds

if TYPE_CHECKING:
    import torch

__all__ = ["CpuSpecimen", "check_bits"]


def check_bits(bits: int, *, low: int, high: int) -> int:
    """Return ``bits``.

    Raises:
        UsageError: not a whole number from ``low`` to ``high``.
    """
    if not isinstance(bits, int) or isinstance(bits, bool) or not low <= bits <= high:
        raise UsageError(f"bits={bits}: must be a whole number from {low} to {high}")
    return bits


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

    def sample(
        self,
        n: int,
        d: int,
        *,
        stream: Stream,
        dtype: DType | None = None,
        device: torch.device | None = None,
    ) -> Array:
        """``n`` vectors, shape (n, d), CPU only: computed as the class says, then cast.

        ``dtype`` is float64 by default.

        Raises:
            UsageError: n or d below 1, or another device.
        """
        check_shape(n, d)
        if device is not None and device.type != "cpu":
            raise UsageError(f"device={device}: {self._name} replays a CPU sampler; use device=cpu")
        out = np.empty((n * d + 1) // 2 * 2, self._compute)
        self._fill(out, stream)
        return as_asked(out[: n * d].reshape(n, d), dtype, device)

    @abstractmethod
    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        """Write noise to ``out``, flat, row by row: n·d values or one more, so that pairs fit."""

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """No finite ε is known: the set of reachable outputs depends on the value."""
        del delta, host
        return EpsilonBounds(low=0.0, high=math.inf, says="unknown: porous floating-point support")
