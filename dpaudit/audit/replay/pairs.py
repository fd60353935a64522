"""Neighbours to replay: the data set's own records, its worst cases, edges of domains, variations.

The record that makes the difference comes last, so that coins that are tossed for each record in
turn are the same for the others. Pairs that reach new lines of the pipeline are varied first.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

__all__ = ["Pairs"]

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
        for name, field in self._schema.fields.items():
            value = self._value(record, name)
            usual = field.low is not None and abs(_size(value)) <= 1 << 53
            usual = usual and (isinstance(value, int) or not field.whole)
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
