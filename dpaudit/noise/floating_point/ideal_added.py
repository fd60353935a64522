"""LAB SPECIMEN: correctly rounded normals, spoiled by their naive addition. Never a default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import inline, jit, next_word, seed_words, start

__all__ = ["IdealAddedGaussian", "fill_ideal_normal"]


class IdealAddedGaussian(CpuSpecimen):
    """LAB SPECIMEN. Real N(0, σ²) numbers, each rounded once to float64: no grid.

    The flaw: only in what follows. Noise is rounded on the grid of *its own* magnitude, then added
    to a value and rounded again: releases finer than the ulp of release − value cannot come from
    that value (Mironov 2012; Haney et al. 2022), so reach excludes values although nothing is wrong
    with the sampler.

    How close to ideal: see :func:`fill_ideal_normal`; total variation below 2^−49 per value from
    the correctly rounded N(0, σ²). Not claimed: cryptographic unpredictability, or ideal rounding
    of results that are subnormal.
    """

    _name = "ideal-added-gaussian"

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        fill_ideal_normal(out, sigma=self.sigma, stream=stream)


def fill_ideal_normal(out: npt.NDArray[np.float64], *, sigma: float, stream: Stream) -> None:
    """Fill ``out`` (n,) with real N(0, σ²) numbers, each rounded to the nearest float64.

    A magnitude in units of σ is k + F: k = 0, 1, … with P(k) ∝ exp(−k²/2), F uniform in [0, 1) with
    106 bits, accepted with probability exp(−F·(2k + F)/2), which makes the density of k + F exactly
    normal (in the manner of Karney 2016, arXiv 1303.6257). σ·(k + F) is then carried to about 106
    bits and rounded once. So every float64 from 2^−53·σ up gets its share to 53 bits, and
    magnitudes below have probability under 2^−53 in all.

    Off the ideal, each in total variation: P(k), by 2^−56; the acceptance, decided with 53 bits and
    a double-precision exponential, by 2^−50; magnitudes above 10σ, never drawn, 2^−75; the final
    rounding, wrong for one value in 2^50.
    """
    mantissa, exponent = math.frexp(sigma)
    _ideal(
        out, 2 * mantissa, math.ldexp(1.0, exponent - 1), seed_words(stream.child("ideal-normal"))
    )


_WEIGHTS = [math.exp(-k * k / 2) for k in range(40)]
_AT_LEAST = np.array(
    [int(2**64 * (math.fsum(_WEIGHTS[k:]) / math.fsum(_WEIGHTS))) for k in range(1, 11)], np.uint64
)
_U = np.uint64


@inline
def _rounded(k, high, low, mantissa):  # type: ignore[no-untyped-def]
    """(k + high + low)·mantissa, rounded once but for 2^-105 of it.

    high in [0, 1), low in [0, 2^-53), mantissa in [1, 2).
    """
    first = k + high
    rest = (high - (first - k)) + low
    s = first + rest
    rest -= s - first  # now s + rest is k + high + low, and rest below half an ulp of s
    p = s * mantissa
    t = 134217729.0 * s  # Dekker 1971: halves of 26 bits, so that p + error is s·mantissa exactly
    s1 = t - (t - s)
    s2 = s - s1
    t = 134217729.0 * mantissa
    m1 = t - (t - mantissa)
    m2 = mantissa - m1
    error = ((s1 * m1 - p) + s1 * m2 + s2 * m1) + s2 * m2
    return p + (error + rest * mantissa)


@jit
def _ideal(out, mantissa, power, seed):  # type: ignore[no-untyped-def]
    a, b, c, n = start(seed, 0, 0)
    for i in range(out.size):
        while True:
            a, b, c, n, word = next_word(a, b, c, n)
            k = 0
            while word < _AT_LEAST[k]:
                k += 1
            a, b, c, n, w1 = next_word(a, b, c, n)
            a, b, c, n, w2 = next_word(a, b, c, n)
            a, b, c, n, w3 = next_word(a, b, c, n)
            high = np.float64(w1 >> _U(11)) * 2.0**-53
            if np.float64(w3 >> _U(11)) * 2.0**-53 < math.exp(-0.5 * high * (2.0 * k + high)):
                break
        low = np.float64(((w1 & _U(0x7FF)) << _U(42)) | (w2 >> _U(22))) * 2.0**-106
        x = _rounded(np.float64(k), high, low, mantissa) * power
        out[i] = -x if w2 & _U(1) else x
