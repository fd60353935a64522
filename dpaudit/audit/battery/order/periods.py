"""Values that are special at every k-th place, and smooth periods.

Large values are counted by residue, for every period; of smooth ones the power at a frequency and
its multiples is added.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.order.loops import add_harmonic, events, fold, sums_of_eight
from dpaudit.audit.battery.parts import Part

__all__ = ["LONGEST", "Harmonics", "Periods"]

LONGEST = 8_192
_LARGE = 2.5
_EACH = float(scipy.special.ndtr(-_LARGE))  # of either side
_KEPT = {"in draw order": 1 << 17, "in each call": 1 << 15}
_LONG_CALL = 512  # values
_FEWEST = 128  # periods
_EACH_CLASS = 64  # values in a class, on average
_FARTHEST = (LONGEST // 2) ** 2  # position, see loops.fold
_NAMES = ("more values", "fewer values", "more values above", "more values below")
Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class Periods:
    """Values beyond ±2.5 by their position modulo 2 … 8,192, in draw order and in each call.

    The first 2^17 such values (about 10^7 values drawn), and 2^15 of calls of 512 values or more;
    periods of 64 values per class or more.
    Null: a residue class of n positions has Binomial(n, q) such values, q = 2Φ(−2.5), and half as
    many on either side; n is taken as the largest (smallest) of any class where many (few) count.
    Exact tails; Bonferroni over the classes of a period, then over periods, so that short periods
    do not pay for long ones.
    """

    def __init__(self) -> None:
        self._above: dict[str, list[Places]] = {name: [] for name in _KEPT}
        self._below: dict[str, list[Places]] = {name: [] for name in _KEPT}
        self._room = dict(_KEPT)
        # call lengths and their numbers; draw order is one long call
        self._lengths: dict[str, Counter[int]] = {name: Counter() for name in _KEPT}
        self._drawn = 0

    def update(self, z: Array, calls: int) -> None:
        """Take in the values of ``calls`` equal calls, shape (n,)."""
        each = len(z) // calls
        in_order = self._room["in draw order"] > 0 and self._drawn + len(z) <= _FARTHEST
        in_call = self._room["in each call"] > 0 and _LONG_CALL <= each <= _FARTHEST
        if not (in_order or in_call):
            return
        where = np.empty(len(z), np.int64)
        where = where[: events(z, _LARGE, where)]
        upper = z[where] > 0
        if in_order:
            self._keep("in draw order", where + self._drawn, upper)
            self._drawn += len(z)
            self._lengths["in draw order"] = Counter([self._drawn])
        if in_call:
            self._keep("in each call", where % each, upper)
            self._lengths["in each call"][each] += calls

    def _keep(self, name: str, where: Places, upper: npt.NDArray[np.bool_]) -> None:
        self._above[name].append(where[upper])
        self._below[name].append(where[~upper])
        self._room[name] -= len(where)

    def parts(self) -> dict[str, Part]:
        """One part per way to count positions."""
        return {f"periods {name}": self._part(name) for name in _KEPT if self._lengths[name]}

    def _part(self, name: str) -> Part:
        lengths = np.array(list(self._lengths[name].items()), dtype=np.int64)
        longest = int(min(LONGEST, lengths[:, 0].max() // 2, lengths.prod(1).sum() // _EACH_CLASS))
        if longest < _FEWEST or (longest // 2) ** 2 < lengths[:, 0].max():  # see loops.fold
            return Part(1.0, "too few values for a period")
        above_at, below_at = (np.concatenate(x[name]) for x in (self._above, self._below))
        extremes = fold(above_at, below_at, longest=longest)
        period = np.arange(2, longest + 1)
        fewest, most = np.zeros(len(period)), np.zeros(len(period))
        for length, calls in lengths:
            fewest += calls * (length // period)
            most += calls * -(-length // period)
        many, few, above, below = extremes[2:].T.astype(np.float64)
        tails = np.stack(
            [
                _at_least(many, most, 2 * _EACH),
                _at_most(few, fewest, 2 * _EACH),
                _at_least(above, most, _EACH),
                _at_least(below, most, _EACH),
            ]
        )
        p = np.minimum(1.0, 4 * period * tails.min(0))
        at = int(p.argmin())
        which = int(tails[:, at].argmin())
        count, expected = extremes[at + 2, which], most[at] * _EACH * (2 if which < 2 else 1)
        events_at = {2: above_at, 3: below_at}.get(which, np.concatenate([above_at, below_at]))
        counts = np.bincount(events_at % period[at], minlength=period[at])
        residue = int(np.argmax(counts == count))
        return Part(
            min(1.0, len(p) * float(p[at])),
            f"residue {residue:,} modulo {period[at]:,} {name}: "
            f"{_NAMES[which]} beyond {_LARGE} σ, {count:,} where {expected:,.0f} are expected",
        )


def _at_least(count: Array, n: Array, q: float) -> Array:
    """P(Binomial(n, q) ≥ count)."""
    tail = scipy.special.betainc(np.maximum(count, 1.0), np.maximum(n - count, 0.0) + 1, q)
    return np.where(count > 0, tail, 1.0)


def _at_most(count: Array, n: Array, q: float) -> Array:
    """P(Binomial(n, q) ≤ count)."""
    tail = scipy.special.betaincc(count + 1, np.maximum(n - count, 1.0), q)
    return np.where(count < n, tail, 1.0)


_FOLD = 8  # neighbours are added: frequencies up to 1/16 remain
_SUMS = 1 << 21  # sums
_CALL = 1 << 15  # sums of the positions of a call
_FOLDED_CALL = 1 << 12  # values
_FEWEST_SUMS = 1 << 11  # sums, for the central limit theorem of squares
_LEAST_BIN = 4  # below this a frequency's neighbours are not its own
_ORDERS = tuple(2**k for k in range(1, 8))  # numbers of harmonics that are added
_QUARTER = 4  # long periods are tried at every quarter of a bin
_KINDS = ("values", "squares")
Complex = npt.NDArray[np.complex128]


def _sums(z: Array) -> Array:
    """Sums of eight values, and of their squares less one, of variance 1, shape (2, n // 8)."""
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
        self._size = 0
        self._rest = np.empty(0)
        self._calls = np.zeros((2, _CALL))
        self._counts = np.zeros(_CALL)

    def update(self, z: Array, calls: int) -> None:
        """Take in the values of ``calls`` equal calls, shape (n,)."""
        size = len(z) // calls
        sums = np.empty((2, 0))
        if size >= _FOLDED_CALL:
            for one in z.reshape(calls, size)[:, : _CALL * _FOLD]:
                sums = _sums(one)
                self._calls[:, : sums.shape[1]] += sums
                self._counts[: sums.shape[1]] += 1
        if self._size >= _SUMS:
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
        self._size += sums.shape[1]
        self._rest = z[sums.shape[1] * _FOLD :].copy()

    def parts(self) -> dict[str, Part]:
        """Lines and combs of either kind and order."""
        parts: dict[str, Part] = {}
        if self._size >= _FEWEST_SUMS:
            series = np.concatenate(self._series, axis=1)[:, :_SUMS]
            parts |= _parts(series, "in draw order")
        positions = int((self._counts > 0).sum())
        if positions >= _FEWEST_SUMS:
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


def _comb(f: Complex, length: int, series: str) -> Part:
    whole = _FOLD / np.arange(2 * _FOLD + 1, LONGEST + 1)
    long = np.arange(_QUARTER * _LEAST_BIN, _QUARTER * length * _FOLD // LONGEST)
    first = np.concatenate([whole * length, long / _QUARTER])  # in bins
    first = first[first >= _LEAST_BIN]
    if not len(first):
        return Part(1.0, f"{series}: too few for a comb")
    total, number = np.zeros((2, len(first)))
    best, effect, tried = 1.0, f"{series}: no comb", 0
    for multiple in range(1, _ORDERS[-1] + 1):
        add_harmonic(f, first, multiple, total, number)
        if multiple in _ORDERS:
            tried += len(first)
            p = scipy.special.gammaincc(number, total)
            at = int(p.argmin())
            if p[at] < best:
                best = float(p[at])
                effect = (
                    f"{series} repeat with a period of {_FOLD * length / first[at]:,.6g}: power of "
                    f"{number[at]:.0f} harmonics {total[at] / number[at]:.2f} × the white level"
                )
    return Part(min(1.0, tried * best), effect)
