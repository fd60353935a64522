"""Two uniforms per value, from a generator of 32 bits: an outlier leaves few states to try.

Transforms that throw one of two values away cannot be inverted: Box and Muller's and Marsaglia's
polar method so used, and differences of two exponentials or geometric numbers. But the largest of
10^7 values needs uniforms so small, or a pair (x, y) so near to 0, that some thousands of states
give one; each is tried against the values after it. Of the polar method these are the states s with
s and its successor both near half the modulus: points of a lattice in a square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.claims import Claim
from dpaudit.protocols import Block
from dpaudit_attacks.congruential.held_out import NOTHING, HeldOut
from dpaudit_attacks.congruential.known import LinearGenerator, published_generators

__all__ = ["GENERATORS", "Peak", "replay_peak", "replay_polar_peak", "starts"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.uint64]
Magnitudes = Callable[[Floats, Floats], Floats]

_FOLLOWING = 256
_LARGEST_MODULUS = 1 << 32
_STATES = 1 << 15  # per generator: more are not tried
_PAIRS = 1 << 17  # the same for the polar method
_TOLERANCE = 2.0**-19  # times the magnitude, above 1
_NEAR = 1 << 12  # states that fit the peak
_FIRST = 4  # values after it that are compared first
_SHORT = 8  # one line of each generator
_ALIKE = 2.0**-16  # an honest magnitude is that near to a number at most so often


class Peak:
    """Keeps the largest magnitude, in units of the claimed scale, and up to 256 that follow it."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._most = 0.0
        self.values = np.empty(0)

    def add(self, block: Block) -> None:
        """Take in one block of process 0."""
        if max(block.z.max(), -block.z.min()) <= self._most:
            return
        z = np.abs(block.z.ravel())
        at = int(np.argmax(z))
        self._most = float(z[at])
        values = block.values.ravel()[at : at + 1 + _FOLLOWING]
        self.values = np.abs(values) if self._claim.discrete else np.abs(values) / self._claim.scale


@dataclass(frozen=True, slots=True)
class _Transform:
    """From states to magnitudes: of a uniform that is small at a peak, and another one."""

    generator: LinearGenerator
    name: str
    magnitudes: Magnitudes
    small_first: bool
    mirrored: bool

    def starts(self, small: Longs) -> Longs:
        """The states of the first of two uniforms, where these are the small ones'."""
        one = self.generator
        states = np.uint64(one.modulus) - small if self.mirrored else small
        if self.small_first:
            return np.asarray(states)
        back = pow(one.multiplier, -1, one.modulus)
        before = states + np.uint64(one.modulus - one.increment % one.modulus)
        return np.asarray(before % np.uint64(one.modulus) * np.uint64(back) % one.modulus)

    def values(self, states: Longs, count: int) -> Floats:
        """Magnitudes (count, n) of values from n states on."""
        one, sizes = self.generator, np.empty((count, len(states)))
        for i in range(count):
            first = states
            second = one.after(first)
            states = one.after(second)
            small, other = (first, second) if self.small_first else (second, first)
            u, v = np.maximum(small, 1) / one.modulus, np.maximum(other, 1) / one.modulus
            sizes[i] = self.magnitudes(1 - u, 1 - v) if self.mirrored else self.magnitudes(u, v)
        return sizes


def replay_peak(peak: Floats, claim: Claim, *, draws: int) -> Iterator[tuple[str, HeldOut]]:
    """For each generator what it is, and how many values after the peak its best state gives.

    Null: a state that is tried gives a run of magnitudes; an honest one is near any of them with
    probability at most 2^-16 (a discrete one: that of the likeliest). So p is the tail of the
    binomial, times the states tried, times the ``draws`` places that may have had the peak.
    """
    law = _law(claim)
    if law is None or len(peak) < 2:
        return
    share, ways = law
    chance = _likeliest(claim) if claim.discrete else _ALIKE
    for one in published_generators():
        if one.stride > 1 or not 0 < one.modulus <= _LARGEST_MODULUS or len(one.vector) > _SHORT:
            continue
        most = int(share(peak[0]) * one.modulus) + 1
        small = np.arange(1, most + 1 if most <= _STATES else 1, dtype=np.uint64)
        best, cause = NOTHING, ""
        all_ways = [
            _Transform(one, transform, magnitudes, first, mirrored)
            for transform, magnitudes in ways.items()
            for first in (True, False)
            for mirrored in (False, True)
        ]
        for way in all_ways:
            count = _hits(way, small, peak, claim)
            if count > best.hits:
                p = float(scipy.special.bdtrc(count - 1, len(peak) - 1, chance))
                p = min(1.0, p * len(small) * len(all_ways) * draws)
                best, cause = HeldOut(count, len(peak) - 1, 0.0, chance, p), way.name
        yield f"{one.name} and {cause}", best


def _hits(way: _Transform, small: Longs, peak: Floats, claim: Claim) -> int:
    """How many values after the peak the best of these states gives."""
    starts = way.starts(small)
    # u is x/m, (x + 1/2)/m or x/(m - 1), which matters where x is small
    slack = 1.0 if claim.discrete else 2.0 / small + _TOLERANCE * max(peak[0], 1.0)
    near = starts[np.abs(way.values(starts, 1)[0] - peak[0]) <= slack][:_NEAR]
    fine = 0.5 if claim.discrete else None
    return _count_following(near, way.values, peak, slack=fine)


def _count_following(
    near: Longs,
    values: Callable[[Longs, int], Floats],
    peak: Floats,
    *,
    slack: float | None = None,
) -> int:
    """How many magnitudes after the peak follow from the first of these states that gives a few.

    ``values`` gives magnitudes from states on. Alike is what differs by at most ``slack``, by
    default the tolerance.
    """

    def alike(states: Longs, count: int) -> npt.NDArray[np.bool_]:
        expected = peak[1:count, None]
        most = _TOLERANCE * np.maximum(expected, 1.0) if slack is None else slack
        return np.asarray(np.abs(values(states, count)[1:] - expected) <= most)

    fits = near[alike(near, min(len(peak), 1 + _FIRST)).all(axis=0)]
    return int(alike(fits[:1], len(peak)).sum()) if len(fits) else 0


def _law(claim: Claim) -> tuple[Callable[[float], float], dict[str, Magnitudes]] | None:
    """How small a uniform must be for a magnitude, and the transforms."""
    if claim.family == "gaussian":
        return lambda x: math.exp(-x * x / 2), {
            "Box-Muller, cosine only": lambda u, v: np.abs(_length(u) * np.cos(2 * np.pi * v)),
            "Box-Muller, sine only": lambda u, v: np.abs(_length(u) * np.sin(2 * np.pi * v)),
        }
    if claim.family == "laplace":
        transform = "two exponentials' difference"
        return lambda x: math.exp(-x), {transform: lambda u, v: np.abs(np.log(u) - np.log(v))}
    if claim.family == "discrete-laplace":
        b = claim.scale
        return lambda k: math.exp((1 - k) / b), {
            "two geometric numbers' difference": lambda u, v: np.abs(
                np.floor(-b * np.log(u)) - np.floor(-b * np.log(v))
            )
        }
    return None


def _length(u: Floats) -> Floats:
    return np.asarray(np.sqrt(-2 * np.log(u)))


def _likeliest(claim: Claim) -> float:
    """P(|X| = 1) or P(X = 0) of a discrete Laplace law."""
    q = math.exp(-1 / claim.scale)
    return (1 - q) / (1 + q) * max(1.0, 2 * q)


def _generators() -> tuple[LinearGenerator, ...]:
    """The published ones up to 32 bits, each once, and four more."""
    names = {
        (one.modulus, one.multiplier, one.increment): one.name
        for one in published_generators()
        if 0 < one.modulus <= _LARGEST_MODULUS
    }
    names |= {
        (1 << 32, 1664525, 0): "the transputer's generator",
        (1 << 32, 1812433253, 0): "Borosh and Niederreiter's generator",
        (1 << 32, 1566083941, 0): "Waterman's generator",
        (2147483399, 40692, 0): "L'Ecuyer's generator (multiplier 40692)",
    }
    none = np.empty(0, np.int64)
    return tuple(LinearGenerator(name, *numbers, 1, none) for numbers, name in names.items())


GENERATORS = _generators()
"""Those that are tried for the polar method."""


def replay_polar_peak(peak: Floats, *, draws: int) -> Iterator[tuple[str, HeldOut]]:
    """For each generator what it is, and how many values after the peak its best state gives.

    ``peak``: magnitudes of scale 1, the largest of ``draws`` values first and then those after it.

    Null: as of :func:`replay_peak`, 2^-16 for each magnitude, times the pairs tried, times two
    (either of a pair's values may be the one that is kept), times the places seen.
    """
    if len(peak) < 2:
        return
    half = math.exp(-0.25 * peak[0] ** 2)  # |y| √(−2 ln r²)/r is no larger than √(−2 ln r²)
    for one in GENERATORS:
        begins = starts(one, half)
        best = max((_polar_hits(one, begins, peak, coordinate=k) for k in (0, 1)), default=0)
        counts = NOTHING
        if best:
            p = float(scipy.special.bdtrc(best - 1, len(peak) - 1, _ALIKE))
            p = min(1.0, p * 2 * len(begins) * draws)
            counts = HeldOut(best, len(peak) - 1, 0.0, _ALIKE, p)
        yield f"{one.name} and one value of the polar method", counts


def starts(one: LinearGenerator, half: float) -> Longs:
    """The states s for which s and its successor lie within half·m/2 + 2 of m/2, m the modulus.

    Points (s, multiplier·s) of a lattice of determinant m in a square; none if there are above
    2^17. By a reduced basis (Lagrange and Gauss): row after row of the lattice.
    """
    m, reach = one.modulus, half * one.modulus / 2 + 2
    if (2 * reach) ** 2 / m > _PAIRS:
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


def _polar_hits(one: LinearGenerator, begins: Longs, peak: Floats, *, coordinate: int) -> int:
    """How many values after the peak the best of these states gives."""
    pair = np.stack([begins, one.after(begins)]) * (2 / one.modulus) - 1
    radius = np.hypot(*pair)
    with np.errstate(all="ignore"):
        size = np.abs(pair[coordinate]) * np.sqrt(-4 * np.log(radius)) / radius
        # u is x/m, (x + 1/2)/m or x/(m - 1): x and y may be off by 2/m
        slack = _TOLERANCE * max(peak[0], 1.0) + 4 * peak[0] / (radius * one.modulus)
        near = begins[np.abs(size - peak[0]) <= slack]
    return _count_following(
        near, lambda states, count: _polar_magnitudes(one, states, count, coordinate), peak
    )


def _polar_magnitudes(one: LinearGenerator, states: Longs, count: int, coordinate: int) -> Floats:
    """Magnitudes (count, n) that n states give; not a number where too many pairs are rejected."""
    magnitudes, at = np.full((count, len(states)), np.nan), np.zeros(len(states), np.int64)
    for _ in range(2 * count + 40):
        if (at >= count).all():
            break
        second = one.after(states)
        pair = np.stack([states, second]) * (2 / one.modulus) - 1
        states, square = one.after(second), (pair * pair).sum(axis=0)
        inside = np.flatnonzero((square < 1) & (square > 0) & (at < count))
        r2 = square[inside]
        magnitudes[at[inside], inside] = np.abs(pair[coordinate, inside]) * np.sqrt(
            -2 * np.log(r2) / r2
        )
        at[inside] += 1
    return magnitudes
