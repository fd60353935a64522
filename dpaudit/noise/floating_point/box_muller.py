"""LAB SPECIMENS: Box-Muller, whose pairs of outputs reveal their uniforms. Never a default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import jit

__all__ = ["BoxMullerF32", "BoxMullerF64"]


class BoxMullerF32(CpuSpecimen):
    """LAB SPECIMEN. Box-Muller in float32 from two 24-bit uniforms per pair, as in libraries.

    The flaw: a pair of outputs takes at most 2^48 values, no magnitude exceeds √(−2·ln 2^−24) ≈
    5.77σ, and anyone who sees both outputs of a pair can solve for the uniforms (Jin et al. 2022,
    arXiv 2112.05307). Outputs 2i and 2i+1 of the flattened block are a pair: r·cos(2π·u₂) and
    r·sin(2π·u₂) with r = √(−2·ln u₁)·σ, u₁ and u₂ multiples of 2^−24 in (0, 1], every step rounded
    to float32 by numpy's own functions.
    """

    _name = "box-muller-f32"
    _compute = np.float32

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        bits = stream.numpy().integers(1, 2**24 + 1, size=(2, out.size // 2), dtype=np.uint32)
        u1, u2 = bits.astype(np.float32) * np.float32(2.0**-24)
        radius = np.sqrt(np.float32(-2) * np.log(u1)) * np.float32(self.sigma)
        angle = np.float32(2 * math.pi) * u2
        out[0::2] = radius * np.cos(angle)
        out[1::2] = radius * np.sin(angle)


class BoxMullerF64(CpuSpecimen):
    """LAB SPECIMEN. Box-Muller in float64: Python's ``random.gauss``, bit for bit.

    The flaw: as :class:`BoxMullerF32`'s, with 2^106 values per pair from two 53-bit uniforms.
    Outputs 2i and 2i+1 of the flattened block are a pair: with U then V the next multiples of 2^−53
    in [0, 1), they are cos(2π·U)·r·σ and sin(2π·U)·r·σ with r = √(−2·ln(1 − V)), each operation
    rounded to float64 and log, cos and sin the C library's (numpy's vectorised logarithm differs in
    the last bit now and then). Nothing exceeds √(−2·ln 2^−53) ≈ 8.57σ.
    """

    _name = "box-muller-f64"

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        _gauss(out, self.sigma, stream.numpy())


@jit
def _gauss(out, sigma, rng):  # type: ignore[no-untyped-def]
    """Pairs as CPython's ``Random.gauss`` makes them from the doubles of a numpy Generator."""
    for i in range(0, out.size, 2):
        angle = rng.random() * math.tau
        radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
        out[i] = math.cos(angle) * radius * sigma
        out[i + 1] = math.sin(angle) * radius * sigma
