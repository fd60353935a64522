"""The honest Gaussian source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.accounting import gaussian_epsilon
from dpaudit.numeric.normal import check_sigma, standard_normal
from dpaudit.protocols import Array, DType, Host, Stream
from dpaudit.types import EpsilonBounds

if TYPE_CHECKING:
    import torch

__all__ = ["Gaussian"]


class Gaussian:
    """N(0, σ²I) drawn with floating-point arithmetic.

    Formal guarantee: none beyond the law in real arithmetic. Not claimed: safety of its low bits
    once it is *added* to a value (Mironov 2012), nor cryptographic unpredictability (see
    ``KeyedStream.numpy``).
    """

    dim = None

    def __init__(self, *, sigma: float = 1.0) -> None:
        """Noise of standard deviation ``sigma`` per coordinate."""
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
        """``n`` vectors of N(0, σ²I), shape (n, d)."""
        return standard_normal(n, d, sigma=self.sigma, stream=stream, dtype=dtype, device=device)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Exact (Balle and Wang 2018, Theorem 8), in real arithmetic."""
        value = gaussian_epsilon(delta, sigma=self.sigma, sensitivity=host.sensitivity)
        return EpsilonBounds(low=value, high=value, says="exact Gaussian profile")
