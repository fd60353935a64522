"""Discrete Laplace noise by inversion of one uniform: a call's time does not follow the noise."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.accounting.discrete import discrete_laplace_bounds
from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.numeric.drawing import cpu_sample
from dpaudit.protocols import Host, Stream
from dpaudit.randomness import KeyedStream
from dpaudit.types import EpsilonBounds

__all__ = ["GeometricInversion", "check_scale", "release"]

_LARGEST = 1e5


def check_scale(scale: float) -> float:
    """Return the ``scale`` of a discrete Laplace law as a float.

    Raises:
        UsageError: not a number with 0 < scale ≤ 1e5.
    """
    if isinstance(scale, (str, bool)) or not 0 < scale <= _LARGEST:
        raise UsageError(f"scale={scale}: must be a number > 0 and at most {_LARGEST:g}")
    return float(scale)


class GeometricInversion:
    """Discrete Laplace noise, P(k) ∝ exp(−|k|/scale), one word of the stream per value.

    |k| is the largest m with V < 2·a^m/(1 + a), or 0, for a uniform V and a = exp(−1/scale):
    P(|k| ≥ m) = 2·a^m/(1 + a). Every value takes 8 bytes of ChaCha20, one logarithm and no branch,
    whatever it is.

    Formal guarantee: P(|k| ≥ m) is right up to 2^-52 and a relative error of about 1e-14 (the
    logarithm's rounding), independently from value to value. Not claimed: an exact law (no |k|
    above 37·scale is ever drawn, so its ε is good for δ of max(1, scale)·1e-13 and more;
    ``discrete-laplace`` is exact), or constant time to the last cycle, which a floating-point
    logarithm does not promise.

    Source: the inversion of Ghosh, Roughgarden and Sundararajan's geometric mechanism (2009, arXiv
    0811.2841); ours in detail.
    """

    dim = None

    def __init__(self, *, scale: float = 10.0) -> None:
        """Noise of scale ``scale``, in whole units of the query."""
        self.scale = check_scale(scale)

    @property
    def claim(self) -> str:
        return f"discrete-laplace:scale={self.scale!r}"

    @property
    def sigma(self) -> float:
        return Claim.parse(self.claim).standard_deviation

    def integers(self, n: int, *, stream: Stream) -> npt.NDArray[np.int64]:
        """``n`` values, shape (n,)."""
        words = np.frombuffer(stream.bytes(8 * n), dtype="<u8")
        uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        ratio = math.exp(-1 / self.scale)
        size = np.ceil(-self.scale * np.log(uniform * ((1 + ratio) / 2))).astype(np.int64) - 1
        sign = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
        return size * sign

    @cpu_sample(exact=True)
    def sample(self, n: int, d: int, *, stream: Stream) -> npt.NDArray[np.float64]:
        """``n`` vectors of whole numbers, shape (n, d), drawn on the CPU.

        Whole numbers that ``dtype`` lacks are rounded; values beyond its range are refused.
        """
        return self.integers(n * d, stream=stream).reshape(n, d).astype(np.float64)

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """The exact law's for whole-number queries, by ``discrete_laplace_bounds``."""
        return discrete_laplace_bounds(
            delta, scale=self.scale, sensitivity=host.sensitivity, dim=host.dim
        )


def release(value: float, n: int) -> npt.NDArray[np.float64]:
    """``n`` releases of a whole number ``value``, shape (n,), with scale 10 and system randomness.

    A whole mechanism, for ``dpaudit mechanism python:dpaudit.noise.geometric:release``: the control
    of :func:`dpaudit.noise.sequential.release`, with ε = 1/10 for values 1 apart.
    """
    return GeometricInversion().integers(n, stream=KeyedStream.fresh()).astype(np.float64) + value
