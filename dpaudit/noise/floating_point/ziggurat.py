"""LAB SPECIMEN: a ziggurat whose values have few bits. Never a default."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.noise.floating_point.common import CpuSpecimen
from dpaudit.numeric.kernels import _TAIL, _layers, _rare
from dpaudit.numeric.normal import check_sigma, check_whole
from dpaudit.numeric.random_words import jit, next_word, seed_words, start
from dpaudit.protocols import Stream

__all__ = ["Ziggurat"]


class Ziggurat(CpuSpecimen):
    """LAB SPECIMEN. Normals by ziggurat with 256 layers from words of ``bits`` bits.

    A value mostly takes one word. A word's low 8 bits are the layer, the next the sign, and the p =
    min(bits − 9, 52) above them the position: a value is ±σ·(k·w), k below 2^p, w its layer's width
    over 2^p. So ``bits=32`` leaves 23 bits, the resolution of a float32, in a float64, and
    ``bits=64`` is the sampler of numpy's ``Generator.normal`` and of our own ``gaussian``, up to
    the last bit of its tables. The tail (beyond 3.654σ, one value in 4000) takes two such words by
    Marsaglia's method.

    The flaw: 256 grids of 2^p magnitudes, centred at 0 and not at the value. At ``bits=32`` a value
    is excluded if no layer has release − value on its grid. At ``bits=64`` the 256 grids together
    are denser than the floats, except below about σ/128, where one value in 160 lies: a single
    output reveals next to nothing by support; only the naive addition is detected, by reach.

    Source: Marsaglia and Tsang 2000, in Doornik's arrangement (2005); tables from
    ``dpaudit.numeric.kernels``.
    """

    _name = "ziggurat"

    def __init__(self, *, sigma: float = 1.0, bits: int = 64) -> None:
        """Noise of nominal standard deviation ``sigma`` per coordinate.

        It comes from words of ``bits`` bits (24 to 64).

        Raises:
            UsageError: a sigma that is not a finite number above 0, other bits.
        """
        self.sigma, self.bits = check_sigma(sigma), check_whole("bits", bits, low=24, high=64)

    def _fill(self, out: npt.NDArray[Any], stream: Stream) -> None:
        tables = _tables(min(self.bits - 9, 52))
        _ziggurat(
            out, self.sigma, *tables, min(self.bits, 52), seed_words(stream.child("ziggurat"))
        )


@cache
def _tables(bits: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], np.uint64]:
    """Widths over 2^bits, limits below which a position is accepted at once, a position's mask."""
    width, limit, _ = _layers(bits)
    return width, limit.astype(np.int64), np.uint64(2**bits - 1)


_U = np.uint64


@jit
def _ziggurat(out, sigma, width, limit, mask, uniform_bits, seed):  # type: ignore[no-untyped-def]
    """Fill ``out`` from SFC64 under ``seed``; uniforms of the tail have ``uniform_bits`` bits."""
    a, b, c, n = start(seed, 0, 0)
    unit, shift = 2.0**-uniform_bits, _U(64 - uniform_bits)
    for i in range(out.size):
        while True:
            a, b, c, n, word = next_word(a, b, c, n)
            layer = np.int64(word & _U(0xFF))
            place = np.int64((word >> _U(9)) & mask)
            x = np.float64(place) * width[layer]
            if place < limit[layer]:
                break
            if layer != 0:
                ok, x, a, b, c, n = _rare(layer, x, a, b, c, n)
                if ok:
                    break
                continue
            while True:
                a, b, c, n, w1 = next_word(a, b, c, n)
                a, b, c, n, w2 = next_word(a, b, c, n)
                s = -math.log((np.float64(w1 >> shift) + 0.5) * unit) / _TAIL
                t = -math.log((np.float64(w2 >> shift) + 0.5) * unit)
                if t + t > s * s:
                    break
            x = _TAIL + s
            break
        out[i] = sigma * (-x if word & _U(0x100) else x)
