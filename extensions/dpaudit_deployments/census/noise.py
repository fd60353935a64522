"""Where measurements show their noise: structural zeros, exact totals, parents less their children.

A constraint ``= 0``, or an upper bound of 0, makes the cells zero that it adds up, since counts are
not negative; the Bureau's own estimator uses both in this way (DAS_2020_GLS_Uncertainty_Evaluation,
``convert_constr_to_query``). A parent's true count is the sum of its children's, so its noisy
measurement minus theirs has mean 0 and the variance of all their noise together. Noise that occurs
twice is looked for as equal runs of values anywhere in the files of a product.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, read_plain
from dpaudit.results.text import one_line, printable
from dpaudit_deployments.census.files import ALL, Constraint, Integers, Measurement, Row
from dpaudit_deployments.census.law import (
    LEAST_SUMMED,
    MOST_VARIANCE,
    IntegerGaussian,
    law_of_variance,
)

__all__ = ["Emit", "Known", "Place", "Repeats", "Rule", "Sums", "read_rules"]

Mask = npt.NDArray[np.bool_]

_DETAILED = "detailed"
_RECODES: Mapping[tuple[str, str], tuple[tuple[int, ...], ...]] = {
    ("hhgq", "hhinstlevels"): ((0,), (1, 2, 3, 4), (5, 6, 7)),
    ("hhgq", "gqNursingTotal"): ((3,),),
    ("votingage", "nonvoting"): ((0,),),
}
"""Recodes of the redistricting schema, from DAS_2020_Redistricting_Production_Code."""
_MOST_GEOGRAPHIES = 4_000_000
_MOST_PATTERNS = 20_000
_MOST_MASK_BYTES = 1 << 28
_MOST_BYTES = 1 << 20


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cells that no record can be in: the levels of some axes, of one query and level or of all.

    Without ``query`` the rule holds for each query that keeps these axes in full.
    """

    cells: dict[str, list[int]]
    query: str = ""
    level: str = ""


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    zero: list[Rule]


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a TOML file: tables ``[[zero]]`` with ``cells = { age = [0, 1] }``.

    Raises:
        UsageError: it cannot be read, or has something else in it.
    """
    try:
        table = tomllib.loads(read_plain(path, limit=_MOST_BYTES).decode())
        rules = msgspec.convert(table, _Rules).zero
        if any(not rule.cells or min(map(len, rule.cells.values())) == 0 for rule in rules):
            raise RefusedError("a rule without cells")
        if any(level < 0 for rule in rules for some in rule.cells.values() for level in some):
            raise RefusedError("a negative number of a cell")
    except (RefusedError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(
            f"zeros={printable(path, limit=300)}: {one_line(error, limit=300)}; "
            "write tables such as [[zero]] cells = { hhgq = [3], votingage = [0] }"
        ) from None
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Zero cells of a constraint: axes and their words, and which cells are zero, in C order."""

    axes: tuple[str, ...]
    specs: tuple[str, ...]
    shape: tuple[int, ...]
    zero: bytes


@dataclass(slots=True)
class Known:
    """What is known of the true counts of a bucket's geographies; ``rules`` hold for all."""

    rules: tuple[Rule, ...] = ()
    used: set[int] = field(default_factory=set)
    """Which of the rules applied to some query."""
    _patterns: list[_Pattern] = field(default_factory=list)
    _numbers: dict[_Pattern, int] = field(default_factory=dict)
    _of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)
    _masks: dict[tuple[object, ...], Mask] = field(default_factory=dict)
    _mask_bytes: int = 0

    def begin(self) -> None:
        """Forget the geographies of the bucket before."""
        self._of.clear()
        self._totals.clear()

    def add(self, axes: tuple[str, ...], constraint: Constraint) -> None:
        """Add one constraint.

        Raises:
            UsageError: there are more than this can hold.
        """
        whole = all(spec == ALL for spec in constraint.specs)
        if constraint.sign == "=" and whole and len(constraint.value) == 1:
            self._totals[constraint.geocode] = int(constraint.value[0])
        zero = constraint.value == 0
        if constraint.sign == ">=" or not zero.any():
            return
        pattern = _Pattern(axes, constraint.specs, constraint.shape, zero.tobytes())
        number = self._numbers.setdefault(pattern, len(self._patterns))
        if number == len(self._patterns):
            self._patterns.append(pattern)
        self._of[constraint.geocode] = (*self._of.get(constraint.geocode, ()), number)
        if len(self._patterns) > _MOST_PATTERNS or len(self._of) > _MOST_GEOGRAPHIES:
            raise UsageError(
                f"nmf: there are more than {_MOST_PATTERNS:,} sets of structural zeros, or "
                f"{_MOST_GEOGRAPHIES:,} geographies in one partition; audit the files in parts"
            )

    def total(self, geocode: str) -> int | None:
        """The exact total of a geography, if a constraint states it."""
        return self._totals.get(geocode)

    def zeros(self, level: str, axes: tuple[str, ...], row: Measurement) -> Mask:
        """Which cells of a measurement are known to be zero; the same array for the same answer."""
        patterns = self._of.get(row.geocode, ())
        key = (level, axes, row.query, row.specs, row.shape, patterns)
        if key not in self._masks:
            mask = self._mask_of_rules(level, axes, row)
            for number in patterns:
                mask |= self._mask_of_pattern(axes, row, number)
            self._store_mask(key, mask.reshape(-1))
        return self._masks[key]

    def _mask_of_pattern(self, axes: tuple[str, ...], row: Row, number: int) -> Mask:
        key = (axes, row.specs, row.shape, number)
        if key not in self._masks:
            self._store_mask(key, _matching(axes, row, self._patterns[number]))
        return self._masks[key]

    def _store_mask(self, key: tuple[object, ...], mask: Mask) -> None:
        if self._mask_bytes > _MOST_MASK_BYTES:
            self._masks.clear()
            self._mask_bytes = 0
        self._masks[key] = mask
        self._mask_bytes += mask.nbytes

    def _mask_of_rules(self, level: str, axes: Sequence[str], row: Row) -> Mask:
        mask = np.zeros(row.shape, dtype=bool)
        for number, rule in enumerate(self.rules):
            if rule.level not in ("", level) or rule.query not in ("", row.query):
                continue
            picks = []
            for axis, spec, size in zip(axes, row.specs, row.shape, strict=True):
                pick = np.ones(size, dtype=bool)
                if axis in rule.cells:
                    full = spec in (axis, _DETAILED) or (rule.query and spec != ALL)
                    inside = [i for i in rule.cells[axis] if full and i < size]
                    pick[:] = False
                    pick[inside] = True
                picks.append(pick)
            if set(rule.cells) <= set(axes):
                mask[np.ix_(*picks)] = True
                self.used |= {number} if all(pick.any() for pick in picks) else set()
        return mask


def _matching(axes: Sequence[str], row: Row, pattern: _Pattern) -> Mask:
    """The cells of ``row`` that lie within a zero cell of ``pattern``; none of other axes."""
    if tuple(axes) != pattern.axes:
        return np.zeros(row.shape, dtype=bool)
    cells = np.frombuffer(pattern.zero, dtype=bool).reshape(pattern.shape).astype(np.int64)
    for axis, spec, size, theirs in zip(axes, row.specs, row.shape, pattern.specs, strict=True):
        inside = _inside(axis, spec, size, theirs, cells.shape[0])
        cells = np.tensordot(cells, inside, axes=(0, 1))  # that axis moves to the end
    return np.asarray(cells > 0)


def _inside(axis: str, spec: str, size: int, theirs: str, number: int) -> npt.NDArray[np.int64]:
    """Whether each cell of an axis lies within each of the constraint's cells, (size, number)."""
    if theirs == ALL:
        return np.ones((size, number), dtype=np.int64)
    if spec == theirs:
        return np.eye(size, number, dtype=np.int64)
    ours, groups = _groups(axis, spec, size), _groups(axis, theirs, number)
    if ours is None or groups is None:
        return np.zeros((size, number), dtype=np.int64)
    return np.array([[set(a) <= set(b) for b in groups] for a in ours], dtype=np.int64)


def _groups(axis: str, spec: str, size: int) -> Sequence[tuple[int, ...]] | None:
    """Which levels of the axis each cell adds up; None if that is not known."""
    if spec in (axis, _DETAILED):
        return [(i,) for i in range(size)]
    return _RECODES.get((axis, spec))


Emit = Callable[[str, str, Integers, float], None]
"""Takes the parent's level, the query, the residuals (cells,), and the variance of each."""
_MOST_STORED = 1 << 25
"""Numbers that are kept of one level; parents beyond are left out."""


@dataclass(slots=True, eq=False)
class _Parent:
    residual: Integers
    variance: float
    children: int = 0


_Level = dict[tuple[object, ...], dict[str, _Parent]]


@dataclass(slots=True)
class Sums:
    """Collects the levels of a product from the top, and emits the residuals of each level."""

    emit: Emit
    left_out: int = 0
    """Parents that were not kept."""
    _above: tuple[str, _Level] = ("", {})
    _here: tuple[str, _Level] = ("", {})
    _numbers_stored: int = 0
    _depth: int = 0
    _last: bool = False

    def begin(self, level: str, *, last: bool) -> None:
        """Begin the next lower level; ``last`` if there is none below it."""
        self._above, self._here = self._here, (level, {})
        self._numbers_stored, self._last, self._depth = 0, last, self._depth + 1

    def add(self, row: Measurement) -> None:
        """Add a measurement of the present level."""
        if law_of_variance(row.variance).sigma < LEAST_SUMMED:
            return
        key = (row.query, row.specs, row.shape)
        parent = self._parent(self._above[1].get(key, {}), row.geocode)
        if parent is not None:
            parent.residual -= row.value
            parent.variance += row.variance
            parent.children += 1
        if self._last:
            return
        if self._numbers_stored + row.value.size > _MOST_STORED:
            self.left_out += 1
            return
        self._numbers_stored += row.value.size
        siblings = self._here[1].setdefault(key, {})
        siblings[row.geocode] = _Parent(np.array(row.value), row.variance)

    def _parent(self, parents: dict[str, _Parent], geocode: str) -> _Parent | None:
        """The geography whose code begins this one's; the top one has any code."""
        if not parents:
            return None
        first = next(iter(parents))
        parent = parents.get(geocode[: len(first)])
        top = self._depth == 2 and len(parents) == 1
        return parents[first] if parent is None and top else parent

    def end(self) -> None:
        """End a level: the parents above it are complete."""
        level, queries = self._above
        for key, parents in queries.items():
            for parent in parents.values():
                if parent.variance > MOST_VARIANCE:
                    self.left_out += 1
                elif parent.children:
                    self.emit(level, str(key[0]), parent.residual, parent.variance)


_BITS = 80
"""Of collision entropy in a run of values."""
_MOST_RUNS = 1 << 20
"""Runs that are kept; later ones are not looked at."""
_HASH = 2.0**-50
"""An upper bound of the probability that two different runs have one hash."""
_LONGEST = 256
_FACTORS = np.random.default_rng(20).integers(1 << 63, size=_LONGEST, dtype=np.uint64) * 2 + 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run of noise stands."""

    level: str
    query: str
    geocode: str

    def __str__(self) -> str:
        return f"{self.level} {self.geocode}, {self.query}"


@dataclass(slots=True)
class Repeats:
    """Hashes of runs of noise, and where they stand."""

    number: int = 0
    _hashes: dict[int, list[npt.NDArray[np.uint64]]] = field(default_factory=dict)
    _places: dict[int, list[tuple[Place, int]]] = field(default_factory=dict)
    _chances: dict[int, float] = field(default_factory=dict)

    def add(
        self, place: Place, mask: npt.NDArray[np.bool_], values: Integers, law: IntegerGaussian
    ) -> None:
        """Add the noise of one geography; ``mask`` says in which cells of the query it stands.

        Runs start at multiples of their length, in the query's cells where a whole run is noise,
        otherwise among the noise alone: so equal noise is cut equally.
        """
        bits = -math.log2(law.collision)
        length = math.ceil(_BITS / bits) if bits * _LONGEST >= _BITS else 0
        if not length or self.number >= _MOST_RUNS or values.size < length:
            return
        runs = _aligned(mask, values, length)
        hashes = (runs.astype(np.uint64) * _FACTORS[:length]).sum(axis=1, dtype=np.uint64)
        self.number += len(hashes)
        self._hashes.setdefault(length, []).append(hashes)
        self._places.setdefault(length, []).append((place, len(hashes)))
        self._chances[length] = max(self._chances.get(length, 0.0), law.collision**length + _HASH)

    def repeated(self) -> tuple[int, float, Sequence[Place]]:
        """How many runs occurred before, a bound on the probability of any, and one such pair.

        Formal guarantee: if all noise is independent and each group has its stated law, some run
        repeats with at most the probability that goes with none (Markov; 1 if none repeats).
        """
        repeated, chance = 0, 0.0
        pair: list[Place] = []
        for length, parts in self._hashes.items():
            hashes = np.concatenate(parts)
            chance += len(hashes) * (len(hashes) - 1) / 2 * self._chances[length]
            order = np.argsort(hashes, kind="stable")
            same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
            repeated += len(same)
            if len(same) and not pair:
                pair = [self._place(length, int(order[same[0] + i])) for i in (0, 1)]
        return repeated, min(1.0, chance) if repeated else 1.0, pair

    def _place(self, length: int, index: int) -> Place:
        for place, number in self._places[length]:
            if index < number:
                return place
            index -= number
        raise IndexError(index)


def _aligned(mask: npt.NDArray[np.bool_], values: Integers, length: int) -> Integers:
    """Runs of ``length`` values, shape (runs, length)."""
    whole = len(mask) // length * length
    inside = mask[:whole].reshape(-1, length).all(axis=1)
    if inside.any():
        cells = np.zeros(len(mask), dtype=np.int64)
        cells[mask] = values
        return np.asarray(cells[:whole].reshape(-1, length)[inside])
    return values[: len(values) // length * length].reshape(-1, length)
