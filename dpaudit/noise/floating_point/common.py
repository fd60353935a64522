"""What the specimens share: option checks, a CPU block to fill, and what is known of their ε (nothing)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.errors import UsageError
from dpaudit.interfaces import Host
from dpaudit.noise.normal import check_shape
from dpaudit.types import EpsilonBounds

__all__ = ["check_bits", "filled", "unknown_epsilon"]


def check_bits(bits: int, *, low: int, high: int) -> int:
    """Return ``bits``.

    Raises:
        UsageError: not a whole number from ``low`` to ``high``.
    """
    if not isinstance(bits, int) or isinstance(bits, bool) or not low <= bits <= high:
        raise UsageError(f"bits={bits}: must be a whole number from {low} to {high}")
    return bits


def filled(
    fill: Callable[[npt.NDArray[Any]], None],
    n: int,
    d: int,
    *,
    name: str,
    dtype: torch.dtype | None,
    device: torch.device | None,
    compute: type[np.floating[Any]] = np.float64,
) -> torch.Tensor:
    """What ``fill`` writes, shape (n, d), row by row, cast to ``dtype`` (float64 by default).

    ``fill`` gets a flat array of type ``compute`` and even length, n·d or one more, so that pairs always fit.

    Raises:
        UsageError: n or d below 1, or a device other than the CPU (``name`` is the source's, for the message).
    """
    check_shape(n, d)
    if device is not None and device.type != "cpu":
        raise UsageError(f"device={device}: {name} replays a CPU sampler; use device=cpu")
    out = np.empty((n * d + 1) // 2 * 2, compute)
    fill(out)
    return torch.from_numpy(out[: n * d].reshape(n, d)).to(dtype or torch.float64)


def unknown_epsilon(source: object, delta: float, *, host: Host) -> EpsilonBounds:
    """Nothing is proven: the set of reachable outputs depends on the value, so no finite ε is known."""
    del source, delta, host
    return EpsilonBounds(low=0.0, high=math.inf, says="unknown: porous floating-point support")
