"""Uniforms that are a sum or difference of two earlier ones, modulo 1: lagged recurrences.

Lagged Fibonacci generators, subtract-with-borrow, glibc's ``random``, Knuth's ``ran_array``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit_attacks.congruential.held_out import HeldOut, held_out
from dpaudit_attacks.congruential.uniforms import Sequence

__all__ = ["CANDIDATES", "Lags", "counted", "found"]

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

LONGEST = 8_000
CANDIDATES = 4
"""At most so many of a sequence are counted on held-out values."""
_ERROR = 2.0**-10  # of a sum of six uniforms: each is right to 13 bits
_CHECKS = 12
_MOST = 1 << 20  # pairs that agree with the first two places; honest noise has 8,000^2·2^-9
_HELD_OUT = 2_000
_FORMS = ((-1, -1), (-1, 1), (1, 1))


@dataclass(frozen=True, slots=True)
class Lags:
    """u_t + Σ sign·u_(t − lag) is constant modulo 1, where t has this parity (None: any)."""

    lags: tuple[int, int]
    signs: tuple[int, int]
    parity: int | None = None

    @property
    def says(self) -> str:
        """The recurrence, without its constant."""
        terms = zip(self.lags, self.signs, strict=True)
        right = " ".join(f"{'-' if sign > 0 else '+'} u(t - {lag})" for lag, sign in terms)
        return f"u(t) = {right.removeprefix('+ ')} modulo 1"


def found(sequence: Sequence) -> Iterator[Lags]:
    """Candidates among all pairs of lags up to 8,000, or as many as the first half has.

    From 14 places of the first half. The differences w_i = u_(t − i) − u_(t' − i) between two of
    them fulfil w_0 + σ·w_r + σ'·w_s = 0: two of a sorted list that add up to a number.
    """
    u = sequence.u
    half = len(u) // 2
    longest = min(LONGEST, half - 4 * _CHECKS - 4)
    if longest < 2:
        return
    count = 0
    for parity in range(sequence.step):
        places = np.arange(half - 1, half - 4 * _CHECKS, -1)
        places = places[places % sequence.step == parity][: _CHECKS + 2]
        back = np.arange(longest + 1)
        known = u[places[:, None] - back]
        apart = known[1:] - known[0]
        for signs in _FORMS:
            for r, s in _pairs(apart, signs).tolist():
                if count == CANDIDATES:
                    return
                count += 1
                yield Lags((r, s), signs, parity if sequence.step > 1 else None)


def _pairs(apart: Floats, signs: tuple[int, int]) -> Places:
    """Lags (n, 2) that every row of differences agrees with.

    None where values are so often alike that all would do.
    """
    one, two = signs
    first = apart[0]
    values = first[1:] % 1.0
    order = np.argsort(values)
    ordered = values[order]
    ordered = np.concatenate([ordered - 1, ordered, ordered + 1])
    wanted = (-two * (first[0] + one * first[1:])) % 1.0
    low = np.searchsorted(ordered, wanted - _ERROR)
    many = np.searchsorted(ordered, wanted + _ERROR) - low
    if many.sum() > _MOST:
        return np.empty((0, 2), np.int64)
    r = np.repeat(np.arange(len(values)), many)
    nth = np.arange(len(r)) - np.repeat(np.cumsum(many) - many, many)
    s = order[(np.repeat(low, many) + nth) % len(order)]
    keep = r < s if one == two else r != s
    r, s = r[keep] + 1, s[keep] + 1
    for row in apart[1:]:
        rest = row[0] + one * row[r] + two * row[s]
        keep = np.abs(rest - np.rint(rest)) <= _ERROR
        r, s = r[keep], s[keep]
    return np.stack([r, s], axis=1)


def counted(sequence: Sequence, lags: Lags) -> HeldOut:
    """Values of the second half that the recurrence predicts."""
    u = sequence.u
    half, (r, s), (one, two) = len(u) // 2, lags.lags, lags.signs
    t = np.arange(max(r, s), len(u))
    if lags.parity is not None:
        t = t[t % 2 == lags.parity]
    rest = u[t] + one * u[t - r] + two * u[t - s]
    return held_out(rest[t < half], rest[t >= half][:_HELD_OUT])
