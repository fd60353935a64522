"""Skellam noise, the difference of two Poisson numbers, drawn from a CSPRNG by inversion."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream

__all__ = ["LARGEST_SKELLAM_SCALE", "draw_skellam"]

LARGEST_SKELLAM_SCALE = 2.0**14
"""Standard deviation, at most; the tables have about 27 rows per unit of it."""

_BITS = 256  # of the weights
_EXACT = 192  # of the distribution function
_GUIDE = 14
_CHUNK = 1 << 16

_U = np.uint64
jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


@jit
def _invert(words, tops, guide, shift, sign, out):  # type: ignore[no-untyped-def]
    """Add sign·(place of each word in ``tops``) to ``out`` up to the first word at a border.

    Returns how many were added.
    """
    for i in range(out.size):
        u = words[i]
        bucket = u >> shift
        low, high = guide[bucket], guide[bucket + _U(1)]
        while low < high:
            middle = (low + high) >> 1
            if tops[middle] < u:
                low = middle + 1
            else:
                high = middle
        if tops[low] == u:
            return i
        out[i] += sign * low
    return out.size


class _Poisson:
    """P(X ≤ k) from its first row on, as integers over 2^192 and, rounded down, over 2^``bits``.

    Weights are relative to the mode's, in 256-bit fixed point: λ/(k+1) or k/λ times the last one,
    never above 1, so errors do not grow. With the tails below 2^-256 the total error is below
    (rows + 2)²·2^-256 in total variation.
    """

    def __init__(self, mean: Fraction, bits: int) -> None:
        mode = int(mean)
        top, bottom = mean.numerator, mean.denominator
        up, weight, k = [], 1 << _BITS, mode
        while weight:
            up.append(weight)
            k += 1
            weight = weight * top // (bottom * k)
        down, weight, k = [], 1 << _BITS, mode
        while k > 0 and (weight := weight * bottom * k // top):
            down.append(weight)
            k -= 1
        weights = down[::-1] + up
        total, below = sum(weights), 0
        self.borders: list[int] = []
        for weight in weights:
            below += weight
            self.borders.append((below << _EXACT) // total)
        self.bits, most = bits, (1 << bits) - 1
        self.tops = np.array(
            [min(b >> (_EXACT - bits), most) << (64 - bits) for b in self.borders], dtype=np.uint64
        )
        self.mask = _U(most << (64 - bits))
        edges = np.arange(1 << _GUIDE, dtype=np.uint64) << _U(64 - _GUIDE)
        at = np.searchsorted(self.tops, edges)
        self.guide = np.append(at, len(self.tops) - 1).astype(np.int64)

    def add(self, out: npt.NDArray[np.int64], sign: int, stream: Stream) -> None:
        """Add ``sign`` times X, counted from the first row, to each value of ``out``."""
        words = np.frombuffer(stream.bytes(8 * len(out)), dtype="<u8") & self.mask
        at = 0
        while at < len(out):
            at += _invert(words[at:], self.tops, self.guide, _U(64 - _GUIDE), sign, out[at:])
            if at < len(out):  # these bits do not decide; 192 do
                exact = int(words[at]) >> (64 - self.bits) << (_EXACT - self.bits)
                exact |= int.from_bytes(stream.bytes(_EXACT // 8), "little") >> self.bits
                out[at] += sign * min(bisect_right(self.borders, exact), len(self.borders) - 1)
                at += 1


@lru_cache(maxsize=8)
def _table(scale: float, bits: int) -> _Poisson:
    return _Poisson(Fraction(scale) ** 2 / 2, bits)


def draw_skellam(n: int, *, scale: float, stream: Stream, bits: int = 64) -> npt.NDArray[np.int64]:
    """``n`` independent Skellam numbers of mean 0 and variance ``scale``², shape (n,).

    Each is X − Y, X and Y Poisson of mean scale²/2, by inversion of 64 uniform bits each, or of 192
    if these fall on a border (``bits`` replaces the 64; it changes speed and numbers, not the law,
    and tests use few). Guarantee: given uniform bytes, each number's law is within 2^-188 of
    Skellam's in total variation (the tables have 192 bits); no floating point is involved. Not
    claimed: constant time; the look-up's time varies slightly with the number.

    Raises:
        UsageError: scale not a number > 0, or above 2^14.
    """
    if not 0 < scale <= LARGEST_SKELLAM_SCALE:
        raise UsageError(
            f"scale={scale}: Skellam noise takes 0 < scale ≤ {LARGEST_SKELLAM_SCALE:g} steps; "
            "take a coarser granularity"
        )
    table = _table(scale, bits)
    out = np.zeros(n, dtype=np.int64)
    for at in range(0, n, _CHUNK):
        part = out[at : at + _CHUNK]
        table.add(part, 1, stream)
        table.add(part, -1, stream)
    return out
