"""LAB SPECIMENS: Gaussian samplers with floating-point flaws, kept for audits and attacks to find. Never a default."""

from __future__ import annotations

import math

import numpy as np
import torch

from dpaudit.errors import UsageError
from dpaudit.interfaces import Host, Stream
from dpaudit.noise.normal import check_shape, check_sigma
from dpaudit.types import EpsilonBounds

__all__ = ["BoxMullerF32"]


class BoxMullerF32:
    """LAB SPECIMEN. Box-Muller in float32 from two 24-bit uniforms a pair of outputs, as common libraries do.

    The flaw: a pair of outputs takes at most 2^48 values, no magnitude exceeds √(−2·ln 2^−24) ≈ 5.77σ, and whoever sees
    both outputs of a pair can solve for the uniforms (Jin et al. 2022, arXiv 2112.05307). Outputs 2i and 2i+1 of the
    flattened block are a pair.
    """

    dim = None

    def __init__(self, *, sigma: float = 1.0) -> None:
        """Noise of nominal standard deviation ``sigma`` a coordinate."""
        self.sigma = check_sigma(sigma)

    @property
    def claim(self) -> str:
        return f"gaussian:sigma={self.sigma!r}"

    def sample(
        self, n: int, d: int, *, stream: Stream, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> torch.Tensor:
        """``n`` vectors, shape (n, d); CPU only, computed in float32 and then cast to ``dtype`` (float64 by default).

        Raises:
            UsageError: another device.
        """
        check_shape(n, d)
        if device is not None and device.type != "cpu":
            raise UsageError(f"device={device}: box-muller-f32 replays a CPU sampler; use device=cpu")
        pairs = (n * d + 1) // 2
        bits = stream.numpy().integers(1, 2**24 + 1, size=(2, pairs), dtype=np.uint32)
        u1, u2 = bits.astype(np.float32) * np.float32(2.0**-24)  # multiples of 2^-24 in (0, 1]
        radius = np.sqrt(np.float32(-2) * np.log(u1)) * np.float32(self.sigma)
        angle = np.float32(2 * math.pi) * u2
        out = np.empty(2 * pairs, np.float32)
        out[0::2] = radius * np.cos(angle)
        out[1::2] = radius * np.sin(angle)
        return torch.from_numpy(out[: n * d].reshape(n, d)).to(dtype or torch.float64)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Nothing is proven: the set of reachable outputs depends on the value, so no finite ε is known."""
        del delta, host
        return EpsilonBounds(low=0.0, high=math.inf, says="unknown: porous floating-point support")
