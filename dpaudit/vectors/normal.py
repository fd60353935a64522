"""Standard normals as tensors: one place that decides where the numbers come from."""

from __future__ import annotations

import math

import torch

from dpaudit.errors import UsageError
from dpaudit.interfaces import Stream
from dpaudit.vectors.kernels import fill_normal

__all__ = ["all_finite", "check_query", "check_shape", "check_sigma", "standard_normal"]


def check_sigma(sigma: float) -> float:
    """Return ``sigma`` as a float.

    Raises:
        UsageError: not a finite number above 0.
    """
    if isinstance(sigma, (str, bool)) or not (sigma > 0 and math.isfinite(sigma)):
        raise UsageError(f"sigma={sigma}: must be a finite number > 0")
    return float(sigma)


def check_shape(n: int, d: int) -> None:
    """Raise a UsageError unless n ≥ 1 and d ≥ 1."""
    for name, value in (("n", n), ("d", d)):
        if value < 1:
            raise UsageError(f"{name}={value}: must be at least 1")


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite: one pass, and a second only where the sum overflowed."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def check_query(query: torch.Tensor) -> tuple[int, int]:
    """Return the shape (n, d) of a query to be released.

    Raises:
        UsageError: another shape, an integer type, or a value that is not finite.
    """
    if query.ndim != 2:
        raise UsageError(
            f"query of shape {tuple(query.shape)}: give one row per release, shape (n, d)"
        )
    if not query.dtype.is_floating_point:
        raise UsageError(
            f"query of dtype {query.dtype}: floating-point noise needs a floating-point query; "
            "add .double()"
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
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> torch.Tensor:
    """``sigma`` times independent N(0, 1), shape (n, d).

    On the CPU our compiled ziggurat fills the tensor (``dpaudit.vectors.kernels``; torch's CPU
    generator keeps 32 bits of a seed, and its float32 normals come from 24-bit uniforms); on CUDA
    torch's Philox. Types narrower than float32 are drawn in float32 and rounded.
    """
    check_shape(n, d)
    dtype = dtype or torch.float64
    device = device or torch.device("cpu")
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    if device.type == "cpu":
        out = torch.empty((n, d), dtype=wide)
        fill_normal(out.numpy(), sigma=sigma, stream=stream)
    else:
        out = torch.randn((n, d), dtype=wide, device=device, generator=stream.torch(device))
        out *= sigma
    return out.to(dtype)
