"""LAB SPECIMEN: discrete Laplace noise trial by trial, so that a call's time reveals its size."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.claims import Claim
from dpaudit.noise.geometric import check_scale
from dpaudit.numeric.drawing import cpu_sample
from dpaudit.protocols import Host, Stream
from dpaudit.randomness import KeyedStream
from dpaudit.types import EpsilonBounds

__all__ = ["SequentialLaplace", "release"]


class SequentialLaplace:
    """LAB SPECIMEN. Noise P(k) ∝ exp(−|k|/scale) by counting Bernoulli trials until a failure.

    The flaw: a value k takes |k| + 1 trials, so the seconds of a call reveal |k| (Jin et al. 2022,
    arXiv 2112.05307: up to 99.65 % of neighbours told apart by the time of a private sum). The law
    itself is right.

    Formal guarantee: the law, up to 2^-53 relative per trial. Not claimed: anything towards someone
    who has a clock.
    """

    dim = None

    def __init__(self, *, scale: float = 10.0) -> None:
        """Noise of scale ``scale`` in whole units; a value takes about ``scale`` trials of 1 µs."""
        self.scale = check_scale(scale)
        ratio = math.exp(-1 / self.scale)
        self._first = round(2 * ratio / (1 + ratio) * 2.0**64)  # P(k ≠ 0)
        self._later = round(ratio * 2.0**64)

    @property
    def claim(self) -> str:
        return f"discrete-laplace:scale={self.scale!r}"

    @property
    def sigma(self) -> float:
        return Claim.parse(self.claim).standard_deviation

    @cpu_sample(only="sequential-laplace shows a flaw of the CPU's time")
    def sample(self, n: int, d: int, *, stream: Stream) -> npt.NDArray[np.float64]:
        """``n`` vectors of whole numbers, shape (n, d); CPU only, as its time is the point."""
        values = np.array([self._one(stream) for _ in range(n * d)], dtype=np.float64)
        return values.reshape(n, d)

    def _one(self, stream: Stream) -> int:
        size, limit = 0, self._first
        while int.from_bytes(stream.bytes(8), "little") < limit:
            size, limit = size + 1, self._later
        return -size if stream.bytes(1)[0] & 1 else size

    def epsilon(self, delta: float, *, host: Host) -> EpsilonBounds:
        """Nothing is proven: the clock reveals more than the releases, which are right."""
        del delta, host
        return EpsilonBounds(
            low=0.0, high=math.inf, says="unknown: a call's seconds tell the size of its noise"
        )


def release(value: float, n: int) -> npt.NDArray[np.float64]:
    """LAB SPECIMEN. ``n`` releases of a whole number ``value``, shape (n,).

    Scale 10, and the operating system's randomness. A whole mechanism, for ``dpaudit mechanism
    python:dpaudit.noise.sequential:release``: ε = 1/10 for values 1 apart, by the releases alone.
    """
    noise = SequentialLaplace().sample(n, 1, stream=KeyedStream.fresh())
    return np.asarray(noise.ravel() + value)
