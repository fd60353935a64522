"""Cells whose true count is known: structural zeros, from constraints or a table, and totals.

A constraint ``= 0``, or an upper bound of 0, makes the cells zero that it adds up, since counts are
not negative; the Bureau's own estimator uses both in this way (DAS_2020_GLS_Uncertainty_Evaluation,
``convert_constr_to_query``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, read_plain
from dpaudit.results.text import one_line, printable
from dpaudit_deployments.census.model import ALL, Constraint, Measurement, Row

__all__ = ["Known", "Rule", "read_rules"]

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
            mask = self._ruled(level, axes, row)
            for number in patterns:
                mask |= self._matched(axes, row, number)
            self._keep(key, mask.reshape(-1))
        return self._masks[key]

    def _matched(self, axes: tuple[str, ...], row: Row, number: int) -> Mask:
        key = (axes, row.specs, row.shape, number)
        if key not in self._masks:
            self._keep(key, _matching(axes, row, self._patterns[number]))
        return self._masks[key]

    def _keep(self, key: tuple[object, ...], mask: Mask) -> None:
        if self._mask_bytes > _MOST_MASK_BYTES:
            self._masks.clear()
            self._mask_bytes = 0
        self._masks[key] = mask
        self._mask_bytes += mask.nbytes

    def _ruled(self, level: str, axes: Sequence[str], row: Row) -> Mask:
        mask = np.zeros(row.shape, dtype=bool)
        for number, rule in enumerate(self.rules):
            if rule.level not in ("", level) or rule.query not in ("", row.query):
                continue
            picks = []
            for axis, spec, size in zip(axes, row.specs, row.shape, strict=True):
                pick = np.ones(size, dtype=bool)
                if axis in rule.cells:
                    kept = spec in (axis, _DETAILED) or (rule.query and spec != ALL)
                    inside = [i for i in rule.cells[axis] if kept and i < size]
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
