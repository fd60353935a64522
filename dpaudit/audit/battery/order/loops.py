"""Compiled loops over values and events."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

from dpaudit.numeric.random_words import jit

__all__ = [
    "add_harmonic",
    "biased_pairs",
    "count_orders",
    "count_places",
    "events",
    "fold",
    "ones_of_pairs",
    "sums_of_eight",
    "use_once",
]


def _generate_ones(typing: Any, word: Any) -> Any:
    """Number of ones of a 64-bit word."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.ctpop(arguments[0])

    return types.uint64(word), generate


_ones: Any = intrinsic(_generate_ones)


@jit
def biased_pairs(shifted, least, first, second):  # type: ignore[no-untyped-def]
    """0 < a < b where the ones of shifted[0] ^ shifted[a] ^ shifted[b] lie ``least`` from half.

    They fill ``first`` and ``second``, as far as these go; returns their number.
    """
    lags, length = shifted.shape
    base = np.empty(length, np.uint64)
    half = np.int64(32 * length)
    count = 0
    for a in range(1, lags - 1):
        for i in range(length):
            base[i] = shifted[0, i] ^ shifted[a, i]
        for b in range(a + 1, lags):
            total = np.uint64(0)
            for i in range(length):
                total += _ones(base[i] ^ shifted[b, i])
            if abs(np.int64(total) - half) >= least:
                if count == len(first):
                    return count
                first[count], second[count] = a, b
                count += 1
    return count


@jit
def ones_of_pairs(shifted, first, second, ones):  # type: ignore[no-untyped-def]
    """Add to ``ones`` those of shifted[0] ^ shifted[a] ^ shifted[b], for each pair a, b.

    a from ``first``, b from ``second``.
    """
    for k in range(len(ones)):
        now, near, far = shifted[0], shifted[first[k]], shifted[second[k]]
        total = np.uint64(0)
        for i in range(len(now)):
            total += _ones(now[i] ^ near[i] ^ far[i])
        ones[k] += np.int64(total)


@jit
def sums_of_eight(z, sums, squares):  # type: ignore[no-untyped-def]
    """Σz and Σz² of each eight consecutive values, added to ``sums`` and ``squares``.

    In a fixed order, so that they are the same on every processor.
    """
    for i in range(len(sums)):
        a, b, c, d = z[8 * i], z[8 * i + 1], z[8 * i + 2], z[8 * i + 3]
        e, f, g, h = z[8 * i + 4], z[8 * i + 5], z[8 * i + 6], z[8 * i + 7]
        sums[i] += ((a + b) + (c + d)) + ((e + f) + (g + h))
        squares[i] += ((a * a + b * b) + (c * c + d * d)) + ((e * e + f * f) + (g * g + h * h))


@jit
def add_harmonic(f, first, multiple, total, number):  # type: ignore[no-untyped-def]
    """Add the power at a multiple of each of the fractional bins ``first`` to ``total``.

    |·|² of the matched combination of the two ordinates around it; ``number`` counts those in f.
    """
    for i in range(len(first)):
        at = multiple * first[i]
        if at < len(f) - 1:
            below = int(at)
            share = at - below
            x = (1 - share) * f[below] - share * f[below + 1]
            total[i] += (x.real**2 + x.imag**2) / ((1 - share) ** 2 + share**2)
            number[i] += 1


@jit
def events(z, limit, where):  # type: ignore[no-untyped-def]
    """Indices of values beyond ±limit into ``where``, which is as long; returns their number."""
    count = 0
    for i in range(len(z)):
        if abs(z[i]) > limit:
            where[count] = i
            count += 1
    return count


@jit
def count_places(z, largest, smallest):  # type: ignore[no-untyped-def]
    """Count in which of eight places the largest and the smallest of each eight values stand."""
    for start in range(0, len(z) // 8 * 8, 8):
        high = low = z[start]
        top = bottom = 0
        for j in range(1, 8):
            value = z[start + j]
            top = j if value > high else top
            high = max(value, high)
            bottom = j if value < low else bottom
            low = min(value, low)
        largest[top] += 1
        smallest[bottom] += 1


@jit
def count_orders(z, counts):  # type: ignore[no-untyped-def]
    """Count, by the bits a < b, b < c, a < c, the orders of each three values."""
    for start in range(0, len(z) // 3 * 3, 3):
        a, b, c = z[start], z[start + 1], z[start + 2]
        counts[4 * (a < b) + 2 * (b < c) + (a < c)] += 1


@jit
def _look(above, below, extremes):  # type: ignore[no-untyped-def]
    most = up = down = np.int32(0)
    fewest = above[0] + below[0]
    for i in range(len(above)):  # without a branch, so that eight are done at once
        both = above[i] + below[i]
        most, fewest = max(most, both), min(fewest, both)
        up, down = max(up, above[i]), max(down, below[i])
    extremes[0], extremes[1], extremes[2], extremes[3] = most, fewest, up, down


@jit
def _advance(quotient, residue, period):  # type: ignore[no-untyped-def]
    """From places modulo ``period`` − 1 to places modulo ``period``; quotients below periods."""
    # in 16 bits at each step, so that 32 are done at once
    for i in range(len(residue)):
        rest = np.int16(residue[i] - quotient[i])
        less = np.int16(rest >> np.int16(15))  # −1 or 0
        residue[i] = np.int16(rest + np.int16(less & period))
        quotient[i] = np.int16(quotient[i] + less)


@jit
def _fold(above, below, longest, extremes):  # type: ignore[no-untyped-def]
    half = longest // 2
    counts = np.zeros((2, longest), np.int32)
    folded = np.zeros((2, half + 1), np.int32)
    for period in range(half + 1, longest + 1):
        counts[:, :period] = 0
        for side, (quotient, residue) in enumerate((below, above)):
            if period > half + 1:
                _advance(quotient, residue, np.int16(period))
            count, at = counts[side], residue.view(np.uint16)
            for i in range(len(at)):
                count[at[i]] += 1
        _look(counts[1, :period], counts[0, :period], extremes[period])
        # of each shorter period just one multiple lies in (half, 2·half]
        for times in range(2, period // (period - half) + 1):
            short = period // times
            if short * times != period:
                continue
            folded[:, :short] = 0
            for side in range(2):
                for start in range(0, period, short):
                    for i in range(short):
                        folded[side, i] += counts[side, start + i]
            _look(folded[1, :short], folded[0, :short], extremes[short])


def fold(
    above: npt.NDArray[np.int64], below: npt.NDArray[np.int64], *, longest: int
) -> npt.NDArray[np.int64]:
    """Per period up to ``longest``: most and fewest events of a residue, most above, most below.

    ``above`` and ``below`` are events' positions, below (longest/2)². The result has shape
    (longest + 1, 4); rows 0 and 1 hold nothing.
    """
    if any((where >= (longest // 2) ** 2).any() for where in (above, below)):
        raise ValueError(f"longest={longest}: positions must lie below (longest/2)²")
    extremes = np.zeros((longest + 1, 4), np.int64)
    first = longest // 2 + 1
    sides = [tuple(x.astype(np.int16) for x in np.divmod(where, first)) for where in (above, below)]
    _fold(sides[0], sides[1], longest, extremes)
    return extremes


def use_once() -> None:
    """Call each loop on a few values: numba imports much of itself, and compiles, on first use."""
    z = np.zeros(64)
    counts = np.zeros((2, 8), np.int64)
    where = np.arange(64)
    shifted = np.zeros((4, 2), np.uint64)
    events(z, 1.0, where.copy())
    count_places(z, counts[0], counts[1])
    count_orders(z, counts[0])
    sums_of_eight(z, np.zeros(8), np.zeros(8))
    add_harmonic(np.zeros(8, np.complex128), z, 1, z.copy(), z.copy())
    biased_pairs(shifted, 0, where[:3], where[3:6])
    ones_of_pairs(shifted, where[:1], where[:1], where[1:2])
    fold(where, where, longest=64)
