"""Values that are special at every k-th place: large ones counted by residue, for every period."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.order.part import Part, least

__all__ = ["LONGEST", "Periods"]

LONGEST = 8_192
_LARGE = 2.5
_CHOOSING = 5 << 19  # values, in which about 2^15 events are expected
_CHOSEN = 1 << 10
_EACH = float(scipy.special.ndtr(-_LARGE))  # of either side
_KEPT = {"in draw order": 1 << 17, "in each call": 1 << 15}
_LONG_CALL = 512  # values
_FEWEST = 128  # periods
_EACH_CLASS = 64  # values in a class, on average
_FARTHEST = (LONGEST // 2) ** 2  # position, see loops.fold
_UP, _DOWN = 1, 2  # events above, below
_NAMES = ("more values", "fewer values", "more values above", "more values below")
Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class Periods:
    """Values beyond ±2.5 by their position modulo 2 … 8,192, in draw order and in each call.

    The first 2^17 such values (about 10^7 values drawn), and 2^15 of calls of 512 values or more;
    periods of 64 values per class or more. In draw order every class is looked at in the first
    2.6 million values; of twice as many, the 1,024 least likely classes also in the rest.
    Null: a residue class of n positions has Binomial(n, q) such values, q = 2Φ(−2.5), and half as
    many on either side; n is taken as the largest (smallest) of any class where many (few) count.
    Exact tails; Bonferroni over the classes of a period, then over periods, so that short periods
    do not pay for long ones. The rest is independent of what chose: Bonferroni over those chosen.
    """

    def __init__(self) -> None:
        self._above: dict[str, list[Places]] = {name: [] for name in _KEPT}
        self._below: dict[str, list[Places]] = {name: [] for name in _KEPT}
        self._room = dict(_KEPT)
        # call lengths and their numbers; draw order is one long call
        self._lengths: dict[str, Counter[int]] = {name: Counter() for name in _KEPT}
        self._drawn = 0
        self._first: tuple[int, int] | None = None  # answers and values in which classes are chosen

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
            if self._first is None and self._drawn >= _CHOOSING:
                self._first = len(self._above["in draw order"]), self._drawn
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
        above, below, lengths = self._above[name], self._below[name], self._lengths[name]
        if name != "in draw order" or self._first is None or self._drawn < 2 * self._first[1]:
            found = _Classes.of(above, below, lengths)
            return Part(1.0, "too few values for a period") if found is None else found.part(name)
        answers, first = self._first
        found = _Classes.of(above[:answers], below[:answers], Counter([first]))
        if found is None:
            return Part(1.0, "too few values for a period")
        rest = np.zeros(self._drawn - first, np.uint8)
        for kind, side in ((_UP, above), (_DOWN, below)):
            rest[np.concatenate(side[answers:]) - first] = kind
        return least([found.part(name), found.judged(rest, first, name)])


class _Classes:
    """Per period, the classes of positions with the most and fewest events, and their tails."""

    def __init__(
        self, found: Places, places: Places, most: Array, fewest: Array, period: Places
    ) -> None:
        self._found, self._places, self._most, self._period = found, places, most, period
        many, few, above, below = found.T.astype(np.float64)
        tails = (
            _at_least(many, most, 2 * _EACH),
            _at_most(few, fewest, 2 * _EACH),
            _at_least(above, most, _EACH),
            _at_least(below, most, _EACH),
        )
        self._tails = np.stack(tails)

    @classmethod
    def of(
        cls, above: list[Places], below: list[Places], lengths: Mapping[int, int]
    ) -> _Classes | None:
        """Of the positions of events; ``lengths`` maps lengths of calls to numbers of calls."""
        from dpaudit.audit.battery.order.loops import fold  # loads a compiler

        each = np.array(list(lengths.items()), dtype=np.int64)
        longest = int(min(LONGEST, each[:, 0].max() // 2, each.prod(1).sum() // _EACH_CLASS))
        if longest < _FEWEST or (longest // 2) ** 2 < each[:, 0].max():  # see loops.fold
            return None
        found, places = fold(np.concatenate(above), np.concatenate(below), longest=longest)
        period = np.arange(2, longest + 1)
        fewest, most = np.zeros(len(period)), np.zeros(len(period))
        for length, calls in each:
            fewest += calls * (length // period)
            most += calls * -(-length // period)
        return cls(found[2:], places[2:], most, fewest, period)

    def part(self, name: str) -> Part:
        """The least likely of all classes."""
        p = np.minimum(1.0, 4 * self._period * self._tails.min(0))
        at = int(p.argmin())
        kind = int(self._tails[:, at].argmin())
        says = self._says(name, at, kind, int(self._found[at, kind]), float(self._most[at]))
        return Part(min(1.0, len(p) * float(p[at])), says)

    def judged(self, events: npt.NDArray[np.uint8], start: int, name: str) -> Part:
        """The least likely of the 1,024 least likely classes in other events, by place.

        Their first place is number ``start``.
        """
        chosen = np.argsort(self._tails, axis=None, kind="stable")[:_CHOSEN]
        best = Part(1.0, "")
        for kind, at in zip(*np.unravel_index(chosen, self._tails.shape), strict=True):
            period = int(self._period[at])
            mine = events[(int(self._places[at, kind]) - start) % period :: period]
            wanted = (_UP | _DOWN, _UP | _DOWN, _UP, _DOWN)[kind]
            count, n = int(np.count_nonzero(mine & wanted)), len(mine)
            tail = _at_most if kind == 1 else _at_least
            q = _EACH * (2 if kind < 2 else 1)
            p = float(tail(np.array([float(count)]), np.array([float(n)]), q)[0])
            if p < best.p:
                best = Part(p, self._says(name, int(at), int(kind), count, n))
        return best._replace(p=min(1.0, len(chosen) * best.p))

    def _says(self, name: str, at: int, kind: int, count: int, n: float) -> str:
        expected = n * _EACH * (2 if kind < 2 else 1)
        return (
            f"every {self._period[at]:,}th value {name} (residue {self._places[at, kind]:,}): "
            f"{_NAMES[kind]} beyond {_LARGE} σ, {count:,} where {expected:,.0f} are expected"
        )


def _at_least(count: Array, n: Array, q: float) -> Array:
    """P(Binomial(n, q) ≥ count)."""
    tail = scipy.special.betainc(np.maximum(count, 1.0), np.maximum(n - count, 0.0) + 1, q)
    return np.where(count > 0, tail, 1.0)


def _at_most(count: Array, n: Array, q: float) -> Array:
    """P(Binomial(n, q) ≤ count)."""
    tail = scipy.special.betaincc(count + 1, np.maximum(n - count, 1.0), q)
    return np.where(count < n, tail, 1.0)
