"""LAB SPECIMENS: right normals, spoiled by their naive addition. Never a default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.numeric.normal import check_sigma
from dpaudit.numeric.random_words import inline, jit, next_word, seed_words, start
from dpaudit.protocols import Stream

__all__ = ["FineLatticeGaussian", "IdealAddedGaussian", "fill_ideal_normal"]


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


class FineLatticeGaussian(CpuSpecimen):
    """LAB SPECIMEN. Normals cut to multiples of g, too fine a lattice for a sum to keep.

    They are cut towards zero. A lattice protects if every value, every noise and every sum is a
    multiple of g *and a float*: then value + noise is exact, and all values on the lattice reach
    the same releases. Here g ≤ ulp(σ), so a noise above 2^53·g (at most 2σ) is no longer any
    multiple of g: it is rounded to its own, coarser ulp, and value + noise is rounded again.

    Why this fails reach: take v = 1, v′ = 0 and a release y = −1.5 + ulp. From v′ the noise was y
    itself, an odd multiple of its ulp. From v it would have to be y − 1 ≈ −2.5, in the next binade,
    where floats have twice that spacing: y − 1 is not a float, the noises next to it round to the
    neighbours of y, and y excludes v. It happens wherever the noise needed is larger than the
    release and off the lattice's exact range, as with noise on no lattice at all.
    """

    _name = "fine-lattice-gaussian"

    def __init__(self, *, sigma: float = 1.0, granularity: float | None = None) -> None:
        """Noise of nominal standard deviation ``sigma`` on multiples of ``granularity``.

        The default granularity is 2^−8 of ulp(σ).

        Raises:
            UsageError: a sigma that is not a finite number above 0; a granularity that is not a
                power of two, or is coarser than ulp(σ) (2^−52·σ to 2^−53·σ), or below 2^−100·σ.
        """
        self.sigma = check_sigma(sigma)
        ulp = math.ulp(self.sigma)
        g = ulp / 256 if granularity is None else granularity
        if (
            isinstance(g, (str, bool))
            or not (g > 0 and math.isfinite(g))
            or math.frexp(g)[0] != 0.5
        ):
            raise UsageError(
                f"granularity={g}: must be a power of two > 0, e.g. granularity={ulp / 256!r}"
            )
        if g > ulp:
            raise UsageError(
                f"granularity={g}: above ulp(sigma)={ulp!r} most sums are exact, "
                "which is not this flaw; "
                "give a smaller one, or use secure-gaussian"
            )
        if g < self.sigma * 2.0**-100:
            raise UsageError(
                f"granularity={g}: below 2^-100·sigma is not a lattice; use ideal-added-gaussian"
            )
        self.granularity = float(g)

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        fill_ideal_normal(out, sigma=self.sigma, stream=stream)
        out /= self.granularity
        np.trunc(out, out=out)  # rint would round a second time, with ties to even multiples
        out *= self.granularity
