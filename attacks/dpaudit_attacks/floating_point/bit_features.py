"""Sign, exponent and trailing zeros of releases at two neighbours; the sampler may be unknown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_attacks.floating_point._support import Array, finite_array, parse_number

__all__ = ["BitFeatures"]

Codes = npt.NDArray[np.int64]
_WORD = 19
"""Bits of one code: 1 of sign, 12 of exponent, 6 of trailing zeros."""


class BitFeatures:
    """Learns how often each pattern of bits comes from each neighbour; scores releases by it.

    The pattern of a number is its sign, its binary exponent and the trailing zeros of its 53-bit
    significand (0 has one of its own, with its sign). A release's is that of y and of fl(y − v) for
    both neighbours v, jointly: noise that was drawn around zero and then added leaves bits that are
    too coarse near 0 for one neighbour and too fine for the other.

    Formal guarantee: none is needed. Whatever the map, the numbers that it gives for OTHER releases
    than those it was learned from are post-processing, so an ε lower bound from them is valid.
    Not claimed: that it finds what replaying a sampler finds; that it sees anything in ziggurat
    noise beyond the law. Source: Mironov 2012 (which floats occur at all); the learned table is
    ours.

    Raises:
        UsageError: smoothing not a finite number > 0.
    """

    games = ("learning",)
    harm = "last-bits"

    timed = False

    def __init__(self, *, smoothing: float = 0.5) -> None:
        """Add ``smoothing`` to every count: patterns seen once or never then say little."""
        if not (parse_number("smoothing", smoothing) > 0 and math.isfinite(smoothing)):
            raise UsageError(f"smoothing={smoothing}: must be a finite number > 0")
        self.smoothing = smoothing

    def learn(
        self,
        first: npt.NDArray[np.float64],
        second: npt.NDArray[np.float64],
        *,
        neighbours: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    ) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
        """The sum over coordinates of log P(pattern | second) / P(pattern | first).

        Returned as a map from releases (t, k) to scores (t,). ``first`` and ``second`` (t, k) were
        released at the two ``neighbours``, query results (m,). With m = 1 its value is taken off
        every coordinate; with m neither 1 nor k, off none.

        Raises:
            UsageError: shapes that do not fit, no release, or numbers that are not finite.
        """
        x0, x1 = finite_array("first", first, axes=2), finite_array("second", second, axes=2)
        k = x0.shape[1]
        if x1.shape[1] != k or not len(x0) or not len(x1) or not k:
            raise UsageError(
                f"releases of shapes {x0.shape} and {x1.shape}: "
                "need rows on both sides, of equal length"
            )
        values = [finite_array("neighbours", v, axes=1) for v in neighbours]
        if len({len(v) for v in values}) != 1:
            raise UsageError(
                f"neighbours of {len(values[0])} and {len(values[1])} values: "
                "must be of equal length"
            )
        taken = (
            np.stack([np.broadcast_to(v, k) for v in values])
            if len(values[0]) in (1, k)
            else np.empty((0, k))
        )
        return _Table(
            taken=taken,
            columns=[
                _weigh(_code(x0[:, j], taken[:, j]), _code(x1[:, j], taken[:, j]), self.smoothing)
                for j in range(k)
            ],
        )


@dataclass(frozen=True)
class _Table:
    """By coordinate: known codes, ascending, their log-ratios, and that of an unknown code."""

    taken: Array
    columns: list[tuple[Codes, Array, float]]

    def __call__(self, releases: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        x = finite_array("releases", releases, axes=2)
        if x.shape[1] != len(self.columns):
            raise UsageError(
                f"releases of {x.shape[1]} coordinates: learned from {len(self.columns)}; "
                "give as many"
            )
        total = np.zeros(len(x))
        for j, (known, ratio, unknown) in enumerate(self.columns):
            code = _code(x[:, j], self.taken[:, j])
            place = np.minimum(np.searchsorted(known, code), len(known) - 1)
            total += np.where(known[place] == code, ratio[place], unknown)
        return total


def _weigh(first: Codes, second: Codes, smoothing: float) -> tuple[Codes, Array, float]:
    known, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    cells = len(known) + 1
    shares = []
    for part in (place[: len(first)], place[len(first) :]):
        counts = np.append(np.bincount(part, minlength=len(known)), 0) + smoothing
        shares.append(np.log(counts / (len(part) + smoothing * cells)))
    ratio = shares[1] - shares[0]
    return known, ratio[:-1], float(ratio[-1])


def _code(x: Array, taken: Array) -> Codes:
    """The patterns of x and of x less each of the values ``taken``, in one integer each."""
    code = _pattern(x)
    for value in taken:
        with np.errstate(over="ignore"):
            code = (code << _WORD) | _pattern(x - value)
    return code


def _pattern(x: Array) -> Codes:
    largest = np.finfo(np.float64).max  # differences may overflow
    mantissa, exponent = np.frexp(np.clip(x, -largest, largest))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    zeros = np.where(whole == 0, 63, np.frexp((whole & -whole).astype(np.float64))[1] - 1)
    return (
        (np.signbit(x).astype(np.int64) << 18) | ((exponent.astype(np.int64) + 2000) << 6) | zeros
    )
