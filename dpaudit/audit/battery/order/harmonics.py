"""Smooth periods: sums of the power at a frequency and its multiples."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.order.part import Part
from dpaudit.audit.battery.order.periods import LONGEST

__all__ = ["Harmonics"]

_FOLD = 8  # neighbours are added: frequencies up to 1/16 remain
_KEPT = 1 << 21  # sums
_CALL = 1 << 15  # sums of the positions of a call
_LONG_CALL = 1 << 12  # values
_FEWEST = 1 << 11  # sums, for the central limit theorem of squares
_LEAST_BIN = 4  # below this a frequency's neighbours are not its own
_ORDERS = tuple(2**k for k in range(1, 8))  # numbers of harmonics that are added
_QUARTER = 4  # long periods are tried at every quarter of a bin
_KINDS = ("values", "squares")
Array = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]


def _sums(z: Array) -> Array:
    """Sums of eight values, and of their squares less one, of variance 1, shape (2, n // 8)."""
    from dpaudit.audit.battery.order.loops import sums_of_eight  # loads a compiler

    out = np.zeros((2, len(z) // _FOLD))
    sums_of_eight(z, out[0], out[1])
    out[0] *= 1 / math.sqrt(_FOLD)
    out[1] -= _FOLD
    out[1] *= 1 / math.sqrt(2 * _FOLD)
    return out


class Harmonics:
    """Power at single frequencies below 1/16 and, summed, at the first 2 … 128 multiples of one.

    Of z and of z² − 1, over the whole run in draw order (the first 2^24 values) and over the
    positions of calls of 4,096 values or more, added over calls (up to 2^18 positions).
    Fundamentals are 1/p for every whole p from 17 to 8,192 and, for longer periods, every quarter
    of a Fourier frequency from the fourth on. Null: the Fourier ordinates of white noise are
    independent exponentials; between two frequencies their matched combination is one as well, and
    multiples four bins apart share none, so a sum of m is Gamma(m): exact for z, by the central
    limit theorem for squares. Bonferroni over all fundamentals and numbers of harmonics.
    """

    def __init__(self) -> None:
        self._series: list[npt.NDArray[np.float32]] = []
        self._kept = 0
        self._rest = np.empty(0)
        self._calls = np.zeros((2, _CALL))
        self._counts = np.zeros(_CALL)

    def update(self, z: Array, calls: int) -> None:
        """Take in the values of ``calls`` equal calls, shape (n,)."""
        size = len(z) // calls
        sums = np.empty((2, 0))
        if size >= _LONG_CALL:
            for one in z.reshape(calls, size)[:, : _CALL * _FOLD]:
                sums = _sums(one)
                self._calls[:, : sums.shape[1]] += sums
                self._counts[: sums.shape[1]] += 1
        if self._kept >= _KEPT:
            return
        if not len(self._rest) and sums.shape[1] == len(z) // _FOLD:  # one call, in step
            self._append(sums, z)
            return
        missing = (-len(self._rest)) % _FOLD
        joint, z = np.concatenate([self._rest, z[:missing]]), z[missing:]
        if len(joint) % _FOLD:
            self._rest = joint
            return
        self._append(_sums(joint), joint)
        self._append(_sums(z), z)

    def _append(self, sums: Array, z: Array) -> None:
        self._series.append(sums.astype(np.float32))
        self._kept += sums.shape[1]
        self._rest = z[sums.shape[1] * _FOLD :].copy()

    def parts(self) -> dict[str, Part]:
        """Lines and combs of either kind and order."""
        parts: dict[str, Part] = {}
        if self._kept >= _FEWEST:
            series = np.concatenate(self._series, axis=1)[:, :_KEPT]
            parts |= _parts(series, "in draw order")
        positions = int((self._counts > 0).sum())
        if positions >= _FEWEST:
            calls = self._calls[:, :positions] / np.sqrt(self._counts[:positions])
            parts |= _parts(calls, "in each call")
        return parts


def _parts(series: npt.NDArray[np.floating], where: str) -> dict[str, Part]:
    length = scipy.fft.prev_fast_len(series.shape[1], real=True)
    parts = {}
    for kind, x in zip(_KINDS, series, strict=True):
        f = np.fft.rfft(x[:length].astype(np.float64))[: (length + 1) // 2] / math.sqrt(length)
        power = f.real**2 + f.imag**2
        power[0] = 0.0
        top = int(power.argmax())
        parts[f"one frequency of {kind} {where}"] = Part(
            min(1.0, (len(power) - 1) * math.exp(-power[top])),
            f"{kind} {where} have a period of {_FOLD * length / max(top, 1):,.6g}: "
            f"{power[top]:.1f} × the white level",
        )
        parts[f"harmonics of {kind} {where}"] = _comb(f, length, f"{kind} {where}")
    return parts


def _comb(f: Complex, length: int, what: str) -> Part:
    whole = _FOLD / np.arange(2 * _FOLD + 1, LONGEST + 1)
    long = np.arange(_QUARTER * _LEAST_BIN, _QUARTER * length * _FOLD // LONGEST)
    first = np.concatenate([whole * length, long / _QUARTER])  # in bins
    first = first[first >= _LEAST_BIN]
    if not len(first):
        return Part(1.0, f"{what}: too few for a comb")
    total, number = np.zeros(len(first)), np.zeros(len(first))
    best, says, tried = 1.0, f"{what}: no comb", 0
    for multiple in range(1, _ORDERS[-1] + 1):
        inside = multiple * first < len(f) - 1
        total[inside] += _power(f, multiple * first[inside])
        number += inside
        if multiple in _ORDERS:
            tried += len(first)
            p = scipy.special.gammaincc(number, total)
            at = int(p.argmin())
            if p[at] < best:
                best = float(p[at])
                says = (
                    f"{what} repeat with a period of {_FOLD * length / first[at]:,.6g}: power of "
                    f"{number[at]:.0f} harmonics {total[at] / number[at]:.2f} × the white level"
                )
    return Part(min(1.0, tried * best), says)


def _power(f: Complex, at: Array) -> Array:
    """|·|² of the matched combination of the two ordinates around ``at`` (bins, fractional)."""
    below = at.astype(np.int64)
    share = at - below
    x = (1 - share) * f[below] - share * f[below + 1]
    return np.asarray((x.real**2 + x.imag**2) / ((1 - share) ** 2 + share**2))
