"""The search for two neighbouring data sets that a mechanism tells apart best.

Known worst cases are tried first, then pairs at random, then variations of the best. Each pair has
releases of its own, from which it gets a promise: the bound that an event learned from one half of
them shows in the other. The most promising pairs get four times as many in the next round, and so
on (successive halving: Jamieson and Talwalkar 2016). The last one left is judged elsewhere, on
fresh releases: however many pairs were tried, the bound holds as if it had been named beforehand.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.mechanism.bounds import epsilon_bounds
from dpaudit.audit.mechanism.datasets import Records
from dpaudit.audit.mechanism.encoding import Encoding
from dpaudit.audit.mechanism.events import choose, coarse_statistics
from dpaudit.errors import SamplerCrashError, SamplerError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Dataset, Request, Session
from dpaudit.results.text import one_line

__all__ = [
    "ADJACENCIES",
    "Pair",
    "Schema",
    "SearchResult",
    "SearchStart",
    "neighbours_of",
    "random_pairs",
    "search",
    "unique_pairs",
    "variations",
    "worst_cases",
]

ADJACENCIES = ("add-remove", "replace")
"""What neighbours are: one record more or less, or one record changed."""

_LEAST = 500
_FIRST_SHARE = 0.5
"""Share of the time for the first round, which has most pairs."""
_MOST_RECORDS = 40
"""Records of a data set that is made up, at most."""
_RANDOM, _MOST_DRAWN = 60, 300
"""Random pairs to try, and to draw so that these differ from each other."""
_SURVIVORS = (16, 5, 2)
_PARENTS = 5
_VARIATIONS = 4
_LEVEL = 0.05
_SMALL = (1, 2, 3, 5, 8, 13, 20)
_SPECIAL = (math.nan, -0.0, float(1 << 53))

Array = npt.NDArray[np.float64]
Record = Any
Bounds = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class Field:
    """What one field of a record may be: ``values`` to try, the first typical, ``low``, ``high``.

    ``low`` and ``high`` are None for a category.
    """

    values: tuple[Any, ...]
    low: float | None = None
    high: float | None = None
    whole: bool = False

    @property
    def typical(self) -> Any:
        return self.values[0]

    def draw(self, rng: np.random.Generator) -> Any:
        """A value at random: one of the list, or, of numbers, between the bounds."""
        if self.low is None or self.high is None or rng.random() < 0.7:
            return self.values[int(rng.integers(len(self.values)))]
        value = float(rng.uniform(self.low, self.high))
        return round(value) if self.whole else value


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a record, by name or by place, and how a record is made of them."""

    fields: Mapping[Any, Field]
    make: Callable[[Mapping[Any, Any]], Record]

    @classmethod
    def learn(cls, records: Sequence[Record], bounds: Bounds = None) -> Schema:
        """The schema of ``records``, within ``bounds`` where given and just past them elsewhere.

        ``bounds`` are ``{field: (low, high)}``, or ``{field: [category, …]}``; of records that are
        single numbers or rows, ``(low, high)`` bounds all.

        Raises:
            UsageError: bounds of a field that no record has, or the wrong way round.
        """
        first = records[0] if records else 0.0
        if isinstance(first, dict) and all(isinstance(r, dict) for r in records):
            names: list[Any] = list(dict.fromkeys(key for r in records for key in r))
            columns = {name: [r[name] for r in records if name in r] for name in names}
            make: Callable[[Mapping[Any, Any]], Record] = dict
        elif isinstance(first, (list, tuple)) and all(
            isinstance(r, (list, tuple)) and len(r) == len(first) for r in records
        ):
            names, kind = list(range(len(first))), type(first)
            columns = {j: [r[j] for r in records] for j in names}

            def make(fields: Mapping[Any, Any]) -> Record:
                return kind(fields.values())

        else:
            columns = {"": list(records)}

            def make(fields: Mapping[Any, Any]) -> Record:
                return fields[""]

        limits = _bounds_by_field(bounds, list(columns))
        return cls({n: _field(v, limits.get(n), name=n) for n, v in columns.items()}, make)

    @property
    def typical(self) -> dict[Any, Any]:
        return {name: field.typical for name, field in self.fields.items()}

    @property
    def low(self) -> Record:
        """The record whose numbers are all least."""
        return self._extreme("low")

    @property
    def high(self) -> Record:
        """The record whose numbers are all largest."""
        return self._extreme("high")

    def _extreme(self, end: str) -> Record:
        values = self.typical
        for name, one in self.fields.items():
            value = getattr(one, end)
            if value is not None:
                values[name] = int(value) if one.whole else value
        return self.make(values)

    @property
    def extremes(self) -> list[Record]:
        """All fields at an end, then the typical record with one field at each of its values."""
        records = [self.high, self.low]
        for name, one in self.fields.items():
            records += [self.make({**self.typical, name: value}) for value in one.values]
        return _distinct(records)

    def draw(self, rng: np.random.Generator) -> Record:
        """A record at random."""
        return self.make({name: field.draw(rng) for name, field in self.fields.items()})


def _bounds_by_field(bounds: Bounds, names: list[Any]) -> Mapping[Any, Any]:
    if bounds is None:
        return {}
    if not isinstance(bounds, Mapping):
        return dict.fromkeys(names, bounds)
    texts = {str(name): name for name in names}
    for name in bounds:
        if str(name) not in texts:
            raise UsageError(
                f"bounds={one_line(name, limit=60)}: no record has such a field; there are: "
                f"{one_line(', '.join(texts), limit=200)}"
            )
    return {texts[str(name)]: limits for name, limits in bounds.items()}


def _field(values: Sequence[Any], limits: Any, *, name: Any) -> Field:
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    finite = [v for v in numbers if math.isfinite(v)]
    if isinstance(limits, list):
        return Field(tuple(limits))
    if limits is not None:
        low, high = (float(end) for end in limits)
        if not low < high:
            raise UsageError(f"bounds={name}={low:g}:{high:g}: low must be below high")
        whole = bool(finite) and all(isinstance(v, int) for v in finite)
        middle = (low + high) / 2
        inside = [middle, low, high, *([0.0] if low < 0 < high else [])]
        return Field(
            tuple(_distinct([round(v) if whole else v for v in inside])), low, high, whole=whole
        )
    if finite and len(numbers) >= len([v for v in values if v is not None]):
        low, high = float(min(finite)), float(max(finite))
        span = (high - low) or max(abs(high), 1.0)
        whole = all(isinstance(v, int) for v in finite)
        middle = float(np.median(finite))
        past = [middle, low, high, high + span / 8, low - span / 8, 2 * high, -2 * high, 0.0]
        past += [high + 10 * span, low - 10 * span]
        tried: list[Any] = [round(v) if whole else v for v in past]
        tried += [1 << 53] if whole else _SPECIAL
        tried += [None] if None in values else []
        return Field(tuple(_distinct(tried)), low, high, whole=whole)
    counted = Counter(map(_key, values))
    first = {_key(v): v for v in reversed(values)}
    common = [first[key] for key, _ in counted.most_common()]
    tried = common[:6] + common[-2:]
    if all(isinstance(v, str) for v in common):
        tried += ["", "never seen"]
    return Field(tuple(_distinct(tried)))


def _key(value: Any) -> str:
    return repr(value)


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({_key(v): v for v in reversed(values)}.values())[::-1]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbours as lists of records, and where they come from.

    ``beyond``: a value of theirs is of a kind that the data set has none of (NaN, ∞, another text).
    """

    first: tuple[Record, ...]
    second: tuple[Record, ...]
    origin: str
    beyond: bool = False


def neighbours_of(
    base: Sequence[Record], record: Record, adjacency: str, *, at: int | None = None
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """``base``, and ``base`` with ``record`` added, or in place of the one ``at`` a place."""
    at = len(base) if at is None else at
    records = list(base)
    if adjacency == "replace":
        at = min(at, len(records) - 1)
        return tuple(records), (*records[:at], record, *records[at + 1 :])
    return tuple(records), (*records[:at], record, *records[at:])


def worst_cases(records: list[Record], schema: Schema, adjacency: str) -> Iterator[Pair]:
    """Known worst cases: every base with every extreme record added, or put in."""
    few = min(max(len(records), 1), _MOST_RECORDS)
    low, high, typical = schema.low, schema.high, schema.make(schema.typical)
    bases: list[tuple[str, list[Record]]] = [
        ("the data set", records),
        ("no record", []),
        ("one record", [low]),
        ("all lowest", [low] * few),
        ("all highest", [high] * few),
        ("half lowest, half highest", [low] * (few - few // 2) + [high] * (few // 2)),
        ("all typical", [typical] * few),
        ("every record twice", [r for r in records[:_MOST_RECORDS] for _ in (0, 1)]),
    ]
    for origin, base in bases:
        if adjacency == "replace" and not base:
            continue
        for record in schema.extremes:
            yield Pair(*neighbours_of(base, record, adjacency), f"{origin} and {record!r}")
    if adjacency == "add-remove":
        for i in range(min(len(records), 8)):
            rest = (*records[:i], *records[i + 1 :])
            yield Pair(rest, tuple(records), f"the data set without record {i}")


def random_pairs(
    records: list[Record], schema: Schema, adjacency: str, rng: np.random.Generator
) -> Iterator[Pair]:
    """Small data sets of all kinds with a record more, or another, at random; without end."""
    while True:
        size = int(rng.choice(_SMALL))
        kind = int(rng.integers(4))
        if kind == 0 and records:
            base = [records[int(i)] for i in rng.integers(len(records), size=size)]
        elif kind == 1:
            share = int(rng.integers(size + 1))
            base = [schema.low] * share + [schema.high] * (size - share)
        elif kind == 2:
            base = [schema.draw(rng)] * size
        else:
            base = [schema.draw(rng) for _ in range(size)]
        record = schema.draw(rng) if rng.random() < 0.5 else _one_of(schema.extremes, rng)
        at = int(rng.integers(size + (adjacency == "add-remove")))
        yield Pair(*neighbours_of(base, record, adjacency, at=at), "a random pair")


def _one_of(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]


def variations(
    pair: Pair, schema: Schema, adjacency: str, rng: np.random.Generator
) -> Iterator[Pair]:
    """The pair with another record, with fewer or more of its records, or with one of them else."""
    short, long = sorted((pair.first, pair.second), key=len)
    both = enumerate(zip(short, long, strict=False))
    at = next((i for i, (a, b) in both if a is not b and _key(a) != _key(b)), len(short))
    record = long[at] if at < len(long) else schema.draw(rng)
    base = list(short)
    while True:
        changed, other = list(base), record
        step = int(rng.integers(4))
        if step == 0:
            other = schema.draw(rng) if rng.random() < 0.5 else _one_of(schema.extremes, rng)
        elif step == 1 and len(changed) > 1:
            del changed[int(rng.integers(len(changed)))]
        elif step == 2 and changed and len(changed) < _MOST_RECORDS:
            changed.append(_one_of(changed, rng))
        elif changed:
            changed[int(rng.integers(len(changed)))] = _one_of(schema.extremes, rng)
        if adjacency == "replace" and not changed:
            continue
        place = min(at, len(changed) - (adjacency == "replace"))
        origin = "a variation of a good pair"
        yield Pair(*neighbours_of(changed, other, adjacency, at=place), origin)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The pair to judge, and what was done to find it.

    ``promise`` is the bound that it showed in the search: the best of many, so no bound on ε.
    ``tried`` is the number of different pairs, of at most ``budget``.
    ``refused`` are pairs at which the mechanism raised, and ``error`` what it raised first.
    """

    pair: tuple[Any, Any]
    origin: str
    promise: float
    tried: int
    budget: int
    releases: int
    refused: int
    error: str
    late: bool


@dataclass(frozen=True, slots=True)
class SearchStart:
    """Where a search begins: a data set, how neighbours differ, and what records may have."""

    data: Records
    adjacency: str
    bounds: Bounds = None


def search(
    mechanism: Session,
    start: SearchStart,
    *,
    delta: float,
    samples: int,
    deadline: float,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """The most promising pair of neighbours that was found; nothing is claimed about it.

    A pair first gets 500 to 2,000 releases at each of its data sets, and up to ``samples`` in the
    last round; ``deadline``, of ``time.monotonic``, ends the search with the best so far.
    ``progress`` is called with the number of trials and how many are planned; a pair that gets more
    releases in a later round is tried again.

    Raises:
        UsageError: bounds that do not fit.
        SamplerError: the mechanism failed at every pair, or gave no releases in time.
    """
    schema = Schema.learn(start.data.records, start.bounds)
    trials = _Trials(mechanism, start.data, delta, deadline, rng, progress)
    first_until = time.monotonic() + _FIRST_SHARE * (deadline - time.monotonic())
    pairs = _first_pairs(start, schema, rng)
    trials.planned = len(pairs) + sum(_SURVIVORS) + (len(_SURVIVORS) - 1) * _PARENTS * _VARIATIONS
    each = max(_LEAST, min(4 * _LEAST, samples // 50))
    scored = trials.score(pairs, each, until=first_until)
    for i, survivors in enumerate(_SURVIVORS):
        best = _most_promising(scored, survivors)
        children = _VARIATIONS if i < len(_SURVIVORS) - 1 else 0
        varied = [
            pair
            for _, parent in best[:_PARENTS]
            for pair in islice(variations(parent, schema, start.adjacency, rng), children)
        ]
        best = _most_promising([*best, *trials.score(varied, each)], survivors)
        each = min(4 * each, max(samples, _LEAST))
        scored = trials.score([pair for _, pair in best], each) or best
    if not scored:
        raise trials.failure
    best_score, winner = max(scored, key=lambda s: s[0])
    return SearchResult(
        pair=(start.data.make(winner.first), start.data.make(winner.second)),
        origin=winner.origin,
        promise=best_score,
        tried=len(trials.tried),
        budget=trials.planned - sum(_SURVIVORS),
        releases=trials.releases,
        refused=trials.refused,
        error=trials.error,
        late=trials.late,
    )


def _first_pairs(start: SearchStart, schema: Schema, rng: np.random.Generator) -> list[Pair]:
    """The known worst cases, then random pairs, each once."""
    records, adjacency = start.data.records, start.adjacency
    drawn = islice(random_pairs(records, schema, adjacency, rng), _MOST_DRAWN)
    pairs = [
        *unique_pairs(worst_cases(records, schema, adjacency)),
        *islice(unique_pairs(drawn), _RANDOM),
    ]
    if not pairs:
        raise UsageError(
            "dataset: its records are all the same, so that no other record is known; give another "
            "--dataset, or --bounds 'city=Bonn|Graz'"
        )
    return pairs


def _most_promising(scored: Sequence[tuple[float, Pair]], n: int) -> list[tuple[float, Pair]]:
    """The ``n`` pairs with the largest promise, small ones first."""
    return sorted(scored, key=lambda s: (-s[0], len(s[1].second)))[:n]


def unique_pairs(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """The pairs, each once, without those whose two data sets are equal."""
    keys = set()
    for pair in pairs:
        key = _key((pair.first, pair.second))
        if key not in keys and repr(pair.first) != repr(pair.second):
            keys.add(key)
            yield pair


@dataclass
class _Trials:
    """Trials of pairs until a deadline, and their counts."""

    mechanism: Session
    data: Records
    delta: float
    deadline: float
    rng: np.random.Generator
    progress: Callable[[int, int], None] | None
    tried: set[str] = field(default_factory=set)
    trials: int = 0
    planned: int = 0
    releases: int = 0
    refused: int = 0
    error: str = ""
    late: bool = False

    @property
    def failure(self) -> SamplerError:
        """Why no pair has a score."""
        if not self.refused:
            return SamplerTimeoutError(
                f"mechanism {self.mechanism.name}: the search for neighbours ran out of time at "
                "its first pair; give more --time-limit, or make the mechanism faster"
            )
        return SamplerCrashError(
            f"mechanism {self.mechanism.name}: failed at all {len(self.tried)} pairs "
            f"({self.error}); fix it"
        )

    def score(
        self, pairs: Sequence[Pair], n: int, until: float | None = None
    ) -> list[tuple[float, Pair]]:
        """The promise of each pair from ``n`` new releases at both of its data sets."""
        scores = []
        for pair in pairs:
            seconds = (self.deadline if until is None else until) - time.monotonic()
            if seconds <= 0:
                self.late = True
                break
            self.tried.add(_key((pair.first, pair.second)))
            self.trials += 1
            if self.progress is not None:
                self.progress(self.trials, self.planned)
            try:
                x0, x1 = (
                    self.mechanism.ask(
                        Request(n, input=Dataset(self.data.make(side))), timeout=seconds
                    ).values
                    for side in (pair.first, pair.second)
                )
            except SamplerTimeoutError:
                self.late = True
                break
            except (SamplerError, UsageError) as error:
                if isinstance(error, UsageError) and not self.releases:
                    raise  # it cannot be imported or called this way, whatever the pair
                self.refused += 1
                self.error = self.error or one_line(error, limit=300)
                continue
            self.releases += 2 * n
            scores.append((promise(x0, x1, delta=self.delta, rng=self.rng), pair))
        return scores


def promise(
    x0: Any, x1: Any, *, delta: float, rng: np.random.Generator, level: float = _LEVEL
) -> float:
    """The bound for ε at δ that an event learned from one half shows in the other half."""
    halves = len(x0) // 2, len(x1) // 2
    encoding = Encoding.fit(x0[: halves[0]], x1[: halves[1]])
    y0, y1 = encoding.rows(x0), encoding.rows(x1)
    learn, count = (y0[: halves[0]], y1[: halves[1]]), (y0[halves[0] :], y1[halves[1] :])
    with np.errstate(all="ignore"):
        statistics = coarse_statistics(*learn, rng)
    events, _ = choose(statistics, *learn, delta=delta, alpha=level)
    draws = len(count[0]) + len(count[1])
    bounds = [
        float(epsilon_bounds(*event.counts(*count), draws=draws, delta=delta, alpha=level))
        for event in events
    ]
    return max([0.0, *bounds])
