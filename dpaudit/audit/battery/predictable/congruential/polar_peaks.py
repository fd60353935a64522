"""The polar method with one of its values thrown away, from a generator of 32 bits.

The largest of 10^7 values needs a pair (x, y) so near to 0 that some thousands of states give one:
the states s with s and its successor both near half the modulus. These are points of a lattice in a
square, and each is tried against the values after the largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.audit.battery.predictable.congruential.held_out import NOTHING, HeldOut
from dpaudit.audit.battery.predictable.congruential.known import known

__all__ = ["GENERATORS", "Generator", "replayed_polar", "starts"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.uint64]

_ALIKE = 2.0**-16  # an honest magnitude lies within the tolerance of a number at most so often
_TOLERANCE = 2.0**-19  # times the magnitude, above 1
_MOST = 1 << 17  # pairs of a generator: where more would have to be tried, none is
_FIRST = 4  # values after the largest that are compared first
_LARGEST_MODULUS = 1 << 32


@dataclass(frozen=True, slots=True)
class Generator:
    """x ← (multiplier·x + increment) mod modulus, at most 2^32."""

    name: str
    modulus: int
    multiplier: int
    increment: int

    def after(self, states: Longs) -> Longs:
        """The next states."""
        following = states * np.uint64(self.multiplier) + np.uint64(self.increment)
        return np.asarray(following % np.uint64(self.modulus))


def _generators() -> tuple[Generator, ...]:
    found = {
        (one.modulus, one.multiplier, one.increment): one.name
        for one in known()
        if 0 < one.modulus <= _LARGEST_MODULUS
    }
    found |= {
        (1 << 32, 1664525, 0): "the transputer's generator",
        (1 << 32, 1812433253, 0): "Borosh and Niederreiter's generator",
        (1 << 32, 1566083941, 0): "Waterman's generator",
        (2147483399, 40692, 0): "L'Ecuyer's generator (multiplier 40692)",
    }
    return tuple(Generator(name, *numbers) for numbers, name in found.items())


GENERATORS = _generators()


def replayed_polar(peak: Floats, *, seen: int) -> Iterator[tuple[str, HeldOut]]:
    """For each generator what it is, and how many values after the peak its best state gives.

    ``peak``: magnitudes of scale 1, the largest of ``seen`` values first and then those after it.

    Null: as of :func:`.peaks.replayed`, 2^-16 for each magnitude, times the pairs tried, times two
    (either of a pair's values may be the one that is kept), times the places seen.
    """
    if len(peak) < 2:
        return
    half = math.exp(-0.25 * peak[0] ** 2)  # |y| √(−2 ln r²)/r is no larger than √(−2 ln r²)
    for one in GENERATORS:
        begins = starts(one, half)
        best = max((_hits(one, begins, peak, kept=k) for k in (0, 1)), default=0)
        counts = NOTHING
        if best:
            p = float(scipy.special.bdtrc(best - 1, len(peak) - 1, _ALIKE))
            p = min(1.0, p * 2 * len(begins) * seen)
            counts = HeldOut(best, len(peak) - 1, 0.0, _ALIKE, p)
        yield f"{one.name} and one value of the polar method", counts


def starts(one: Generator, half: float) -> Longs:
    """The states s for which s and its successor lie within half·m/2 + 2 of m/2, m the modulus.

    Points (s, multiplier·s) of a lattice of determinant m in a square; none if there are above
    2^17. By a reduced basis (Lagrange and Gauss): row after row of the lattice.
    """
    m, reach = one.modulus, half * one.modulus / 2 + 2
    if (2 * reach) ** 2 / m > _MOST:
        return np.empty(0, np.uint64)
    (ax, ay), (bx, by) = _reduced((1, one.multiplier % m), (0, m))
    at_x, at_y = m / 2, m / 2 - one.increment
    # j·b + i·a: i and j as real numbers are linear in the point
    determinant = ax * by - ay * bx
    middle = (ax * at_y - ay * at_x) / determinant
    spread = reach * (abs(ax) + abs(ay)) / abs(determinant) + 1
    j = np.arange(math.floor(middle - spread), math.ceil(middle + spread) + 1, dtype=np.float64)
    low, high = np.full(len(j), -np.inf), np.full(len(j), np.inf)
    for a, b, at in ((ax, bx, at_x), (ay, by, at_y)):
        if a:
            ends = np.sort([(at - reach - b * j) / a, (at + reach - b * j) / a], axis=0)
            low, high = np.maximum(low, ends[0]), np.minimum(high, ends[1])
    count = np.maximum(np.floor(high) - np.ceil(low) + 3, 0).astype(np.int64)
    row = np.repeat(np.arange(len(j)), count)
    i = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + np.ceil(low)[row] - 1
    s = (i * ax + j[row] * bx).astype(np.int64)
    s = s[np.abs(s - at_x) <= reach].astype(np.uint64)
    return np.asarray(s[np.abs(one.after(s) - m / 2) <= reach])


def _reduced(a: tuple[int, int], b: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """A shortest basis of the lattice of two vectors in the plane."""
    while True:
        if a[0] ** 2 + a[1] ** 2 > b[0] ** 2 + b[1] ** 2:
            a, b = b, a
        square = a[0] ** 2 + a[1] ** 2
        times = (2 * (a[0] * b[0] + a[1] * b[1]) + square) // (2 * square)
        if not times:
            return a, b
        b = b[0] - times * a[0], b[1] - times * a[1]


def _hits(one: Generator, begins: Longs, peak: Floats, *, kept: int) -> int:
    """How many values after the peak the best of these states gives."""
    pair = np.stack([begins, one.after(begins)]) * (2 / one.modulus) - 1
    radius = np.hypot(*pair)
    with np.errstate(all="ignore"):
        size = np.abs(pair[kept]) * np.sqrt(-4 * np.log(radius)) / radius
        # u is x/m, (x + 1/2)/m or x/(m - 1): x and y may be off by 2/m
        slack = _TOLERANCE * max(peak[0], 1.0) + 4 * peak[0] / (radius * one.modulus)
        near = begins[np.abs(size - peak[0]) <= slack]
    few = min(len(peak), 1 + _FIRST)
    alike = _alike(_values(one, near, few, kept), peak[:few])[1:].all(axis=0)
    if not alike.any():
        return 0
    return int(_alike(_values(one, near[alike][:1], len(peak), kept), peak)[1:].sum())


def _alike(values: Floats, wanted: Floats) -> npt.NDArray[np.bool_]:
    slack = _TOLERANCE * np.maximum(wanted, 1.0)[:, None]
    return np.asarray(np.abs(values - wanted[:, None]) <= slack)


def _values(one: Generator, states: Longs, count: int, kept: int) -> Floats:
    """Magnitudes (count, n) that n states give; not a number where too many pairs are rejected."""
    found, at = np.full((count, len(states)), np.nan), np.zeros(len(states), np.int64)
    for _ in range(2 * count + 40):
        second = one.after(states)
        pair = np.stack([states, second]) * (2 / one.modulus) - 1
        states, square = one.after(second), (pair * pair).sum(axis=0)
        inside = np.flatnonzero((square < 1) & (square > 0) & (at < count))
        r2 = square[inside]
        found[at[inside], inside] = np.abs(pair[kept, inside]) * np.sqrt(-2 * np.log(r2) / r2)
        at[inside] += 1
    return found
