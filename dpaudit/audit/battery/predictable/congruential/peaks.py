"""Two uniforms per value, from a generator of 32 bits: an outlier leaves few states to try.

Box and Muller's transform with one of its values thrown away, and differences of two exponentials
or geometric numbers, cannot be inverted. But the largest of 10^7 values needs a uniform so small
that some thousands of states give one; each is tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.audit.battery.predictable.congruential.held_out import NOTHING, HeldOut
from dpaudit.audit.battery.predictable.congruential.known import Known, known
from dpaudit.claims import Claim
from dpaudit.protocols import Block

__all__ = ["Peak", "replayed"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.uint64]
Magnitudes = Callable[[Floats, Floats], Floats]

_FOLLOWING = 256
_LARGEST_MODULUS = 1 << 32
_STATES = 1 << 15  # per generator: more are not tried
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
class _Way:
    """From states to magnitudes: of a uniform that is small at a peak, and another one."""

    generator: Known
    says: str
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
        one, found = self.generator, np.empty((count, len(states)))
        for i in range(count):
            first = states
            second = self._next(first)
            states = self._next(second)
            small, other = (first, second) if self.small_first else (second, first)
            u, v = np.maximum(small, 1) / one.modulus, np.maximum(other, 1) / one.modulus
            found[i] = self.magnitudes(1 - u, 1 - v) if self.mirrored else self.magnitudes(u, v)
        return found

    def _next(self, states: Longs) -> Longs:
        one = self.generator
        following = states * np.uint64(one.multiplier) + np.uint64(one.increment)
        return np.asarray(following % np.uint64(one.modulus))


def replayed(peak: Floats, claim: Claim, *, seen: int) -> Iterator[tuple[str, HeldOut]]:
    """For each generator what it is, and how many values after the peak its best state gives.

    Null: a state that is tried gives a run of magnitudes; an honest one is near any of them with
    probability at most 2^-16 (a discrete one: that of the likeliest). So p is the tail of the
    binomial, times the states tried, times the ``seen`` places that may have had the peak.
    """
    law = _law(claim)
    if law is None or len(peak) < 2:
        return
    share, ways = law
    chance = _likeliest(claim) if claim.discrete else _ALIKE
    for one in known():
        if one.stride > 1 or not 0 < one.modulus <= _LARGEST_MODULUS or len(one.vector) > _SHORT:
            continue
        most = int(share(peak[0]) * one.modulus) + 1
        small = np.arange(1, most + 1 if most <= _STATES else 1, dtype=np.uint64)
        best, cause = NOTHING, ""
        all_ways = [
            _Way(one, says, magnitudes, first, mirrored)
            for says, magnitudes in ways.items()
            for first in (True, False)
            for mirrored in (False, True)
        ]
        for way in all_ways:
            found = _best(way, small, peak, claim)
            if found > best.hits:
                p = float(scipy.special.bdtrc(found - 1, len(peak) - 1, chance))
                p = min(1.0, p * len(small) * len(all_ways) * seen)
                best, cause = HeldOut(found, len(peak) - 1, 0.0, chance, p), way.says
        yield f"{one.name} and {cause}", best


def _best(way: _Way, small: Longs, peak: Floats, claim: Claim) -> int:
    """How many values after the peak the best of these states gives."""
    starts = way.starts(small)
    # u is x/m, (x + 1/2)/m or x/(m - 1), which matters where x is small
    slack = 1.0 if claim.discrete else 2.0 / small + _TOLERANCE * max(peak[0], 1.0)
    near = starts[np.abs(way.values(starts, 1)[0] - peak[0]) <= slack][:_NEAR]
    if not len(near):
        return 0
    few = min(len(peak), 1 + _FIRST)
    alike = _alike(way.values(near, few)[1:], peak[1:few], claim).all(axis=0)
    if not alike.any():
        return 0
    values = way.values(near[alike][:1], len(peak))[1:]
    return int(_alike(values, peak[1:], claim).sum())


def _alike(values: Floats, wanted: Floats, claim: Claim) -> npt.NDArray[np.bool_]:
    slack = 0.5 if claim.discrete else _TOLERANCE * np.maximum(wanted, 1.0)[:, None]
    return np.asarray(np.abs(values - wanted[:, None]) <= slack)


def _law(claim: Claim) -> tuple[Callable[[float], float], dict[str, Magnitudes]] | None:
    """How small a uniform must be for a magnitude, and the transforms."""
    if claim.family == "gaussian":
        return lambda x: math.exp(-x * x / 2), {
            "Box-Muller, cosine only": lambda u, v: np.abs(_length(u) * np.cos(2 * np.pi * v)),
            "Box-Muller, sine only": lambda u, v: np.abs(_length(u) * np.sin(2 * np.pi * v)),
        }
    if claim.family == "laplace":
        says = "two exponentials' difference"
        return lambda x: math.exp(-x), {says: lambda u, v: np.abs(np.log(u) - np.log(v))}
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
