"""Neighbours to replay: the data set's own records, its worst cases, edges of domains, variations.

The record that makes the difference comes last, so that coins that are tossed for each record in
turn are the same for the others. Pairs that reach new lines of the pipeline are varied first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dpaudit.audit.mechanism.neighbour_search import (
    Bounds,
    Pair,
    Record,
    Schema,
    neighbours_of,
    random_pairs,
    unique_pairs,
    variations,
    worst_cases,
)

__all__ = ["Pairs"]

_OWN, _VARIED, _DRAWN = 4, 3, 2000
_NUMBERS = (math.nan, math.inf, -math.inf, -0.0, 1e308)
_WHOLE = ((1 << 63) - 1, -(1 << 63), 0)
_TEXTS = ("", "never seen", "é" * 10_000, "0")


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
        self._bounded = set(self._schema.fields) if bounds is not None else set()
        self._first: deque[Pair] = deque()

    def __iter__(self) -> Iterator[Pair]:
        rest = unique_pairs(self._planned())
        seen = set()
        while True:
            pair = self._first.popleft() if self._first else next(rest, None)
            if pair is None:
                return
            key = repr((pair.first, pair.second))
            if key not in seen:
                seen.add(key)
                yield pair

    def reached(self, pair: Pair) -> None:
        """``pair`` reached new lines: try others like it next."""
        varied = variations(pair, self._schema, self._adjacency, self._rng)
        self._first.extend(p for p in islice(varied, _VARIED) if self._fits(p))

    def _fits(self, pair: Pair) -> bool:
        return self._how in ("search", "replace") or pair.first[:1] == tuple(self._records[:1])

    def _planned(self) -> Iterator[Pair]:
        """Own records, extremes and edges in turn, then all worst cases, then pairs at random."""
        few = [self._own(), self._extremes(), self._edges()]
        if self._how == "remove":
            few = few[:1]
        while few:
            for source in list(few):
                pair = next(source, None)
                if pair is None:
                    few.remove(source)
                else:
                    yield pair
        if self._how in ("search", "replace"):
            for pair in worst_cases(self._records, self._schema, self._adjacency):
                if len(pair.second) != len(self._records) or self._how == "replace":
                    yield pair
            yield from islice(
                random_pairs(self._records, self._schema, self._adjacency, self._rng), _DRAWN
            )

    def _own(self) -> Iterator[Pair]:
        """A record removed, or another of the data set's in its place."""
        records = self._records
        places = dict.fromkeys([0, len(records) - 1, *self._rng.permutation(len(records)).tolist()])
        for i in list(places)[: None if self._how == "remove" else _OWN]:
            rest = (*records[:i], *records[i + 1 :])
            if self._how == "replace":
                other = records[(i + 1) % len(records)]
                changed = (*records[:i], other, *records[i + 1 :])
                yield Pair(tuple(records), changed, f"record {i} is that of another")
            elif self._how != "add":
                yield Pair(rest, (*rest, records[i]), f"the data set without record {i}")
        if self._how in ("add", "search"):
            yield self._with(records[0], "a record twice")

    def _extremes(self) -> Iterator[Pair]:
        for record in self._schema.extremes:
            yield self._with(record, "an extreme record")
        if self._how in ("search", "add"):
            yield Pair((), (self._schema.make(self._schema.typical),), "no record and one")

    def _edges(self) -> Iterator[Pair]:
        """The typical record with one field at an edge of what its type can hold."""
        for value_of in range(max(len(_NUMBERS), len(_WHOLE), len(_TEXTS)) + 1):
            for name, field in self._schema.fields.items():
                if name in self._bounded:
                    continue
                kind = _TEXTS if field.low is None else _NUMBERS + (_WHOLE if field.whole else ())
                values: tuple[Any, ...] = (kind[0], None, *kind[1:])
                if value_of < len(values):
                    record = self._schema.make({**self._schema.typical, name: values[value_of]})
                    label = repr(values[value_of])[:20]
                    where = f"{name}={label}" if name != "" else label
                    yield self._with(record, f"a record with {where}", beyond=True)

    def _with(self, record: Record, origin: str, *, beyond: bool = False) -> Pair:
        first, second = neighbours_of(self._records, record, self._adjacency)
        return Pair(first, second, origin, beyond)
