"""What the runs of a pipeline show: on a data set, and on its neighbours with the same noise.

Pairs are the data set's own records, its worst cases, edges of domains, variations.
The record that makes the difference comes last, so that coins that are tossed for each record in
turn are the same for the others. Pairs that reach new lines of the pipeline are varied first.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np

from dpaudit.audit.mechanism.neighbour_search import (
    Bounds,
    Field,
    Pair,
    Record,
    Schema,
    neighbours_of,
    random_pairs,
    variations,
    worst_cases,
)
from dpaudit.audit.options import Progress
from dpaudit.audit.replay.child import Child
from dpaudit.audit.replay.judge import Difference
from dpaudit.audit.replay.request import ReplayOptions
from dpaudit.errors import SamplerCrashError, SamplerError
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import one_line

__all__ = [
    "Clock",
    "Drawing",
    "Evidence",
    "Pairs",
]

_OWN, _VARIED, _DRAWN, _FEW = 2, 3, 2000, 40
_NUMBERS = (math.nan, None, 1e308, math.inf, -math.inf, -0.0)
_WHOLE = (math.nan, None, (1 << 63) - 1, -(1 << 63), math.inf, -math.inf)
_TEXTS = ("", None, "never seen", "é" * 10_000, "0")


class Pairs:
    """Pairs of neighbours, each once; :meth:`reached` puts variations of a good pair first."""

    def __init__(
        self, records: Sequence[Record], how: str, bounds: Bounds, rng: np.random.Generator
    ) -> None:
        """``how`` is search (add and remove), add, remove or replace.

        Raises:
            UsageError: bounds of a field that no record has.
        """
        self._records, self._how, self._rng = list(records), how, rng
        self._adjacency = "replace" if how == "replace" else "add-remove"
        self._schema = Schema.learn(records, bounds)
        fields = self._schema.fields
        named = {str(n) for n in (bounds if isinstance(bounds, Mapping) else fields)}
        self._bounded = {n for n in fields if bounds is not None and str(n) in named}
        self._texts = {id(record): repr(record) for record in self._records}
        self._known = {n: Counter(repr(self._value(r, n)) for r in self._records) for n in fields}
        self._first: deque[Pair] = deque()

    def __iter__(self) -> Iterator[Pair]:
        rest, seen, swap = self._planned(), set(), self._how == "replace"
        while (pair := self._first.popleft() if self._first else next(rest, None)) is not None:
            first, second = pair.first, pair.second
            a, b = ([self._texts.get(id(r)) or repr(r) for r in side] for side in (first, second))
            both = enumerate(zip(a, b, strict=False))
            at = next((i for i, (x, y) in both if x != y), len(a))
            key = hash((*b[:at], *b[at + 1 :], *a[at : at + swap], *b[at : at + 1]))
            if at < len(b) and key not in seen:
                seen.add(key)
                first = (*first[:at], *first[at + swap :], *first[at : at + swap])
                second = (*second[:at], *second[at + 1 :], second[at])
                new = (r for r in (*first, second[-1]) if id(r) not in self._texts)
                yield Pair(first, second, pair.origin, any(map(self._is_beyond, new)))

    def reached(self, pair: Pair) -> None:
        """``pair`` reached new lines: try others like it next."""
        varied = variations(pair, self._schema, self._adjacency, self._rng)
        tried = {"remove": 0, "add": 4 * _VARIED}.get(self._how, _VARIED)
        self._first.extend(self._fitting(islice(varied, tried)))

    def _fitting(self, pairs: Iterable[Pair]) -> Iterable[Pair]:
        """The pairs; where only the data set may be added to, their last records added to it."""
        if self._how != "add":
            return pairs
        return (self._with(self._records, pair.second[-1], pair.origin) for pair in pairs)

    def _planned(self) -> Iterator[Pair]:
        """Own records, extremes and an edge of each field in turn, then the rest."""
        if self._how == "remove":
            return self._own()
        edges = self._each()
        first = _in_turn(self._own(), self._extremes(), islice(edges, len(self._known)))
        known = worst_cases(self._records, self._schema, self._adjacency)
        drawn = random_pairs(self._records, self._schema, self._adjacency, self._rng)
        return chain(first, edges, self._fitting(chain(known, islice(drawn, _DRAWN))))

    def _own(self) -> Iterator[Pair]:
        """A record removed, or another of the data set's in its place; ends and rare ones first."""
        records, last = self._records, len(self._records) - 1
        ends = []
        for name, known in self._known.items():
            values = [self._value(record, name) for record in records]
            ranks = [(_size(v), -known[repr(v)], i) for i, v in enumerate(values)]
            ends += [max(ranks)[2], min(ranks)[2]]
        places = dict.fromkeys([last, *ends, *self._rng.permutation(last + 1).tolist()])
        for i in islice(places, None if self._how == "remove" else _OWN):
            if self._how == "replace":
                other = neighbours_of(records, records[i - 1], "replace", at=i)
                yield Pair(*other, f"record {i} is that of another")
            elif self._how != "add":
                rest = (*records[:i], *records[i + 1 :])
                yield Pair(rest, (*rest, records[i]), f"the data set without record {i}")

    def _extremes(self) -> Iterator[Pair]:
        schema, records = self._schema, self._records
        most = {name: max(field.values[::-1], key=_size) for name, field in schema.fields.items()}
        far, typical = schema.make(most), schema.make(schema.typical)
        if self._how != "add":
            low = [schema.low] * min(len(records), _FEW)
            yield self._with(low, far, "the lowest record again and again")
            yield self._with(low[: self._how == "replace"], typical, "no other record")
        yield from (self._with(records, r, "an extreme record") for r in (far, schema.high))
        yield self._with(records, records[0], "a record twice")
        yield self._with(records, schema.low, "an extreme record")

    def _each(self) -> Iterator[Pair]:
        """The typical record with one field at each of its edges, the fields in turn."""
        fields = self._schema.fields.items()
        for name, value in _in_turn(*([(n, v) for v in self._edges(n, f)] for n, f in fields)):
            record = self._schema.make({**self._schema.typical, name: value})
            origin = f"a record with {name}={repr(value)[:20]}".replace(" =", " ", 1)
            yield self._with(self._records, record, origin)

    def _edges(self, name: Any, field: Field) -> Iterable[Any]:
        """The ends of what the field's type can hold (and None), usual ones; its bounds if any."""
        kind = _TEXTS if field.low is None else _WHOLE if field.whole else _NUMBERS
        if name not in self._bounded:
            return chain(*zip_longest(kind, field.values[1:]))
        inside = {repr(-v) for v in field.values if v == 0} | set(self._known[name])
        return [*field.values[::-1], *(v for v in kind if repr(v) in inside)]

    def _value(self, record: Record, name: Any) -> Any:
        if self._schema.make is dict:
            return record.get(name)
        return record if name == "" else record[name]

    def _is_beyond(self, record: Record) -> bool:
        """Whether a value is of a kind that its field has none of, and no bounds allow it."""
        for name, own in self._schema.fields.items():
            value = self._value(record, name)
            usual = own.low is not None and abs(_size(value)) <= 1 << 53
            usual = usual and (isinstance(value, int) or not own.whole)
            if not usual and name not in self._bounded and repr(value) not in self._known[name]:
                return True
        return False

    def _with(self, base: Sequence[Record], record: Record, origin: str) -> Pair:
        return Pair(*neighbours_of(base, record, self._adjacency), origin)


def _size(value: Any) -> float:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else -math.inf


def _in_turn(*sources: Iterable[Any]) -> Iterator[Any]:
    """One of each source after another; none of them yields None."""
    return (one for row in zip_longest(*sources) for one in row if one is not None)


_SHARE = 0.6
"""Share of the time limit for pairs; the rest is for new releases."""
_LONGER = 0.25
"""Seconds from which a run that takes ten times as long is told of."""
_SLOW = 2.0
"""Seconds of a run from which only the first notes its lines: that takes time too."""
_TOSSED, _TOSSES = 8, 3
"""Pairs that are run with other coins too, if coins choose what happens; and how often."""
_KEPT = 4
"""Recordings that the pipeline's process keeps."""


@dataclass(frozen=True)
class Clock:
    """The time limit of a replay, from now on."""

    limit: float
    started: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float:
        """Seconds that are left of a share of the limit; negative once it is over."""
        return self.started + share * self.limit - time.monotonic()

    @property
    def run(self) -> float:
        """Seconds that a run may take: what is left, and a second at least."""
        return max(self.left(), 1.0)


@dataclass
class Evidence:
    """What the runs showed.

    ``tried`` are the pairs that were compared, by number, and ``moved`` how far inputs of
    primitives moved on each, in every run of it; several if ``coins`` choose what happens. ``died``
    are the pairs of which a run gave no answer, and why; ``own`` the differences that a replay of
    the same data set shows too; ``seeds`` the calls whose seed is the same in every run; ``late``
    says that the time was up before all pairs were tried.
    """

    about: Mapping[str, Any] = field(default_factory=dict)
    tried: dict[int, Pair] = field(default_factory=dict)
    moved: dict[int, list[list[dict[str, Any]]]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    died: list[tuple[str, Pair]] = field(default_factory=list)
    own: set[tuple[str, str]] = field(default_factory=set)
    seeds: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    lines: set[tuple[str, int]] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    unseen: dict[str, None] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)
    booked: list[tuple[float, float]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    runs: int = 0
    draws: int = 0
    seconds: float = 0.0
    raised: str = ""
    late: bool = False
    coins: bool = False


@dataclass
class Drawing:
    """Records a pipeline on ``records``, and replays it on neighbours."""

    child: Child
    options: ReplayOptions
    records: list[Any]
    clock: Clock
    progress: Progress | None = None
    found: Evidence = field(default_factory=Evidence)
    _recorded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def draw(self) -> Evidence:
        """Record, replay on the same data, then on neighbours until the pairs or the time is up.

        Raises:
            SamplerError: there is no run on the data set itself.
        """
        found, base, asked = self.found, tuple(self.records), self.options.pairs
        found.about = self.child.tell(
            "about", records=[dict(r) if isinstance(r, dict) else r for r in base],
            seed=self.options.seed, seconds=max(1.0, self.clock.left(_SHARE)),
        )  # fmt: skip
        first = self._record(base)
        if "died" in first:
            raise SamplerCrashError(f"pipeline {self.child.name}: {first['died']}; fix it")
        found.raised = one_line(first["raised"], limit=300)
        if any(call["seeded"] for call in first["calls"]):
            other = self._run(self.child.record, base, name="", seed="/", seconds=self.clock.run)
            found.seeds = [c for c in first["calls"] if c["seeded"] in _seeds(other)]
        if not first["raised"]:
            self._compare(Pair(base, base, "the data set itself"))
        rng = KeyedStream.from_seed(self.options.seed).child("replay").numpy()
        pairs = Pairs(self.records, self.options.neighbours, self.options.limits, rng)
        for pair in pairs:
            done = len(found.tried) + len(found.died)
            if done >= asked:
                break
            if self.clock.left(_SHARE) <= 0:
                found.late = True
                break
            if self.progress is not None:
                self.progress(done, asked)
            before = set(found.lines)
            self._compare(pair)
            if found.lines - before:
                pairs.reached(pair)
        if self.progress is not None:
            self.progress(asked, asked)
        return found

    @property
    def _quick(self) -> bool:
        """Whether runs are quick enough to note their lines."""
        return self.found.seconds < _SLOW

    def _record(self, base: tuple[Any, ...]) -> dict[str, Any]:
        key = repr(base)
        if key not in self._recorded:
            while len(self._recorded) >= _KEPT:
                del self._recorded[next(iter(self._recorded))]
            self._recorded[key] = self._run(
                self.child.record, base, name=key, seconds=self.clock.run, lines=self._quick
            )
        return self._recorded[key]

    def _compare(self, pair: Pair) -> None:
        """Replay a pair; what a data set shows beside itself is no difference of neighbours."""
        found, recorded = self.found, self._record(pair.first)
        result = recorded
        if "died" not in recorded:
            limit = min(max(20 * float(recorded["seconds"]), 10.0), self.clock.run)
            how: dict[str, Any] = {"of": repr(pair.first), "lines": self._quick}
            result = self._run(self.child.replay, pair.second, seconds=limit, **how)
        if "died" in result:
            which = "" if result is recorded else "; the run that was recorded gave one"
            found.died.append((f"{one_line(result['died'], limit=160)}{which}", pair))
            return
        differences = [*result["found"], *_repeated(result)]
        if pair.first is pair.second:
            found.own = {_what(d) for d in result["found"]}
            if found.own:
                what = ", ".join(sorted({f"{kind} ({where})" for kind, where in found.own})[:4])
                found.unseen[f"randomness or time outside the known primitives: {what}"] = None
            return
        times = sorted(float(run["seconds"]) for run in (recorded, result))
        if times[1] > 10 * times[0] and times[1] - times[0] > _LONGER:
            found.notes[f"a run took {times[1]:.2g} s, and {times[0]:.2g} s on a neighbour "
                        f"({pair.origin}): time may show the data"] = None  # fmt: skip
        number, selects = len(found.tried) + 1, bool(recorded["selects"] or result["selects"])
        found.tried[number], found.moved[number] = pair, [list(result["moved"])]
        if selects and number <= _TOSSED:
            differences += self._toss(pair, number, limit)
        found.differences += [
            Difference(d, pair, number, selects) for d in differences if _what(d) not in found.own
        ]

    def _toss(self, pair: Pair, number: int, limit: float) -> Iterator[dict[str, Any]]:
        """A pair again with other coins, which may choose other records; the differences."""
        self.found.coins = True
        for i in range(_TOSSES):
            if self.clock.left(_SHARE) <= 0:
                return
            seed = f"/coins {i}"
            self._run(self.child.record, pair.first, name="coins", seed=seed, seconds=limit)
            how: dict[str, Any] = {"of": "coins", "seed": seed, "seconds": limit, "lines": False}
            result = self._run(self.child.replay, pair.second, **how)
            if "died" in result:
                return
            self.found.moved[number].append(list(result["moved"]))
            yield from result["found"]

    def _run(
        self, run: Callable[..., dict[str, Any]], records: tuple[Any, ...], **how: Any
    ) -> dict[str, Any]:
        """One run, and what it shows whatever it is compared with."""
        found = self.found
        found.runs += 1
        try:
            result = run(records, **how)
        except SamplerError as error:  # the process of all runs is gone
            result = {"died": str(error)}
        if "died" in result:
            return result
        found.seconds = max(found.seconds, float(result["seconds"]))
        found.draws = max(found.draws, int(result["draws"]))
        found.lines |= {(file, line) for file, line in result["lines"]}
        found.notes.update(dict.fromkeys(result["notes"]))
        found.unseen.update(dict.fromkeys(one_line(u, limit=120) for u in result["unseen"]))
        found.changed = result["changed"] or found.changed
        found.booked = found.booked or [(float(e), float(d)) for e, d in result["booked"]]
        for call in result["calls"]:
            key = (call["name"], call["in"] or call["at"], call["law"])
            kept = found.calls.setdefault(key, {**call, "calls": 0})
            kept["calls"] = max(kept["calls"], int(call["call"]) + 1)
        lost = (f"{e['name']} at {e['in'] or e['at']}" for e in result["lost"])
        found.lost.update(dict.fromkeys(lost))
        return result


def _seeds(told: Mapping[str, Any]) -> set[str]:
    return {call["seeded"] for call in told.get("calls", ()) if call["seeded"]}


def _what(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["kind"], str(found.get("path") or found["at"])


def _repeated(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in result["repeats"]:
        yield {
            "kind": "reuse", "name": one["name"], "at": one["at"], "in": one["in"],
            "call": one["call"], "path": "again", "first": f"the numbers of {one['other']}",
            "second": "the same numbers",
        }  # fmt: skip
