"""Values that are special at every k-th place: large ones counted by residue, for every period."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.order.part import Part

__all__ = ["LONGEST", "Periods"]

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
        from dpaudit.audit.battery.order.loops import events  # loads a compiler

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
        from dpaudit.audit.battery.order.loops import fold

        lengths = np.array(list(self._lengths[name].items()), dtype=np.int64)
        longest = int(min(LONGEST, lengths[:, 0].max() // 2, lengths.prod(1).sum() // _EACH_CLASS))
        if longest < _FEWEST or (longest // 2) ** 2 < lengths[:, 0].max():  # see loops.fold
            return Part(1.0, "too few values for a period")
        found, places = fold(
            np.concatenate(self._above[name]), np.concatenate(self._below[name]), longest=longest
        )
        period = np.arange(2, longest + 1)
        fewest, most = np.zeros(len(period)), np.zeros(len(period))
        for length, calls in lengths:
            fewest += calls * (length // period)
            most += calls * -(-length // period)
        many, few, above, below = found[2:].T.astype(np.float64)
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
        count, expected = found[at + 2, which], most[at] * _EACH * (2 if which < 2 else 1)
        return Part(
            min(1.0, len(p) * float(p[at])),
            f"every {period[at]:,}th value {name} (residue {places[at + 2, which]:,}): "
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
