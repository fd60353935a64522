"""Standard normals: one place that decides where the numbers come from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import cast_to, drawing_dtype, is_floating, library, torch_dtype
from dpaudit.numeric.kernels import fill_normal
from dpaudit.protocols import Array, DType, Stream

if TYPE_CHECKING:
    import torch

__all__ = [
    "all_finite",
    "check_query",
    "check_shape",
    "check_sigma",
    "check_whole",
    "standard_normal",
]


def check_sigma(sigma: float) -> float:
    """Return ``sigma`` as a float.

    Raises:
        UsageError: not a finite number above 0.
    """
    if isinstance(sigma, (str, bool)) or not (sigma > 0 and math.isfinite(sigma)):
        raise UsageError(f"sigma={sigma}: must be a finite number > 0")
    return float(sigma)


def check_whole(name: str, value: int, *, low: int, high: int | None = None) -> int:
    """Return ``value``, the option ``name``.

    Raises:
        UsageError: not a whole number from ``low`` to ``high``, both included.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < low
        or (high is not None and value > high)
    ):
        rule = f"≥ {low}" if high is None else f"from {low} to {high}"
        raise UsageError(f"{name}={value}: must be a whole number {rule}")
    return value


def check_shape(n: int, d: int) -> None:
    """Raise a UsageError unless n ≥ 1 and d ≥ 1."""
    for name, value in (("n", n), ("d", d)):
        if value < 1:
            raise UsageError(f"{name}={value}: must be at least 1")


def all_finite(values: Array) -> bool:
    """Whether no value is NaN or infinite: one pass, and a second only where the sum overflowed."""
    xp = library(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(xp.isfinite(values.sum())) or bool(xp.isfinite(values).all())


def check_query(query: Array) -> tuple[int, int]:
    """Return the shape (n, d) of a query to be released.

    Raises:
        UsageError: another shape, an integer type, or a value that is not finite.
    """
    if query.ndim != 2:
        raise UsageError(
            f"query of shape {tuple(query.shape)}: give one row per release, shape (n, d)"
        )
    if not is_floating(query.dtype):
        raise UsageError(
            f"query of dtype {query.dtype}: floating-point noise needs a floating-point query; "
            "make it float64"
        )
    if not all_finite(query):
        raise UsageError("query: contains NaN or infinity; noise cannot protect that")
    n, d = query.shape
    return n, d


def standard_normal(
    n: int,
    d: int,
    *,
    stream: Stream,
    sigma: float = 1.0,
    dtype: DType | None = None,
    device: torch.device | None = None,
) -> Array:
    """``sigma`` times independent N(0, 1), shape (n, d).

    A float64 array, unless a torch dtype or a device asks for a tensor. On the CPU our compiled
    ziggurat fills it (``dpaudit.numeric.kernels``; torch's CPU generator keeps 32 bits of a seed,
    and its float32 normals come from 24-bit uniforms); on CUDA torch's Philox. Types narrower than
    float32 are drawn in float32 and rounded.
    """
    check_shape(n, d)
    if device is not None and device.type != "cpu":
        import torch

        exact = torch_dtype(dtype)
        wide = exact if exact in (torch.float32, torch.float64) else torch.float32
        noise = torch.randn((n, d), dtype=wide, device=device, generator=stream.torch(device))
        noise *= sigma
        return noise.to(exact)
    out = np.empty((n, d), drawing_dtype(dtype))
    fill_normal(out, sigma=sigma, stream=stream)
    return cast_to(out, dtype, device)
