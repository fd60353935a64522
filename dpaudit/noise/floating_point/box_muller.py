"""LAB SPECIMENS: normals in pairs whose outputs tell their uniforms, and sums of four of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.numeric.normal import check_sigma
from dpaudit.numeric.random_words import jit
from dpaudit.protocols import NoiseSource, Stream

__all__ = ["BoxMullerF32", "BoxMullerF64", "FourSumGaussian", "Polar"]


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


_WIDTHS: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f64": np.float64}


class FourSumGaussian(CpuSpecimen):
    """LAB SPECIMEN. Half the sum of four Box-Muller normals, as in Opacus's ``secure_mode``.

    Four independent draws of the whole block, of standard deviation σ each, are added one after the
    other to zeros in ``dtype`` and halved; the base draws are those of ``box-muller-f32`` or
    ``box-muller-f64``.

    The flaw: it hides the sampler, not the addition. To solve for the uniforms of four normals
    costs too much (Holohan and Braghin 2021, arXiv 2107.10138, section 5.1: about 2^(3p) tries for
    p bits of a uniform), but the sum is still a float drawn around 0 that is then added to the
    value in floating point: reach needs no sampler and still excludes values. Draw f32 noise as
    float32 and add it to float32 values, as DP-SGD does; a float64 sum keeps all its bits, and then
    shows by release − value being a float32 or not.
    """

    _name = "four-sum-gaussian"

    def __init__(self, *, sigma: float = 1.0, dtype: str = "f32") -> None:
        """Noise of nominal standard deviation ``sigma`` per coordinate, in ``dtype`` f32 or f64.

        Raises:
            UsageError: a sigma that is not a finite number above 0, another dtype.
        """
        if dtype not in _WIDTHS:
            raise UsageError(f"dtype={dtype}: must be f32 or f64")
        self.sigma, self.dtype = check_sigma(sigma), dtype
        self._compute = _WIDTHS[dtype]
        base = BoxMullerF32 if dtype == "f32" else BoxMullerF64
        self._base: NoiseSource = base(sigma=self.sigma)

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        out[:] = 0
        for i in range(4):
            out += self._base.sample(
                1, out.size, stream=stream.child("four-sum", i), dtype=self._compute
            )[0]
        out /= 2
