"""LAB SPECIMEN: Marsaglia's polar method as numpy's legacy generator has it. Never a default."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import jit

__all__ = ["Polar"]


class Polar(CpuSpecimen):
    """LAB SPECIMEN. Marsaglia's polar method: numpy's ``RandomState.normal``, bit for bit.

    The flaw: outputs 2i and 2i+1 of the flattened block are σ·(f·x₂) and σ·(f·x₁) with x = 2U − 1,
    U multiples of 2^−53 in [0, 1), r² = x₁² + x₂² inside the unit disc without its centre, f =
    √(−2·ln r²/r²). Both outputs of a pair give r² = exp(−(a² + b²)/2σ²), then x₁ and x₂, which must
    lie on the grid; at a wrong value they do not (Jin et al. 2022, arXiv 2112.05307). Each
    operation is rounded to float64, the logarithm is the C library's.

    Source: Marsaglia and Bray 1964; numpy's ``legacy_gauss``. Not claimed: that numpy built with
    fused multiply-add (some non-x86 builds) gives the same bits.
    """

    _name = "polar"

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        _legacy_gauss(out, self.sigma, stream.numpy())


@jit
def _legacy_gauss(out, sigma, rng):  # type: ignore[no-untyped-def]
    """Pairs as numpy's ``legacy_gauss`` makes them from the doubles of a numpy Generator."""
    for i in range(0, out.size, 2):
        while True:
            x1 = 2.0 * rng.random() - 1.0
            x2 = 2.0 * rng.random() - 1.0
            r2 = x1 * x1 + x2 * x2
            if 0.0 < r2 < 1.0:
                break
        f = math.sqrt(-2.0 * math.log(r2) / r2)
        out[i] = sigma * (f * x2)
        out[i + 1] = sigma * (f * x1)
