"""Parents minus their children: noise alone, whatever the counts are.

A parent's true count is the sum of its children's, so its noisy measurement minus theirs has mean 0
and the variance of all their noise together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpaudit_deployments.census.law import LEAST_SUMMED, MOST_VARIANCE, law_of_variance
from dpaudit_deployments.census.model import Integers, Measurement

__all__ = ["Emit", "Sums"]

Emit = Callable[[str, str, Integers, float], None]
"""Takes the parent's level, the query, the residuals (cells,), and the variance of each."""
_MOST = 1 << 25
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
    _kept: int = 0
    _depth: int = 0
    _last: bool = False

    def begin(self, level: str, *, last: bool) -> None:
        """Begin the next lower level; ``last`` if there is none below it."""
        self._above, self._here = self._here, (level, {})
        self._kept, self._last, self._depth = 0, last, self._depth + 1

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
        if self._kept + row.value.size > _MOST:
            self.left_out += 1
            return
        self._kept += row.value.size
        kept = self._here[1].setdefault(key, {})
        kept[row.geocode] = _Parent(np.array(row.value), row.variance)

    def _parent(self, parents: dict[str, _Parent], geocode: str) -> _Parent | None:
        """The geography whose code begins this one's; the top one has any code."""
        if not parents:
            return None
        first = next(iter(parents))
        found = parents.get(geocode[: len(first)])
        top = self._depth == 2 and len(parents) == 1
        return parents[first] if found is None and top else found

    def end(self) -> None:
        """End a level: the parents above it are complete."""
        level, queries = self._above
        for key, parents in queries.items():
            for parent in parents.values():
                if parent.variance > MOST_VARIANCE:
                    self.left_out += 1
                elif parent.children:
                    self.emit(level, str(key[0]), parent.residual, parent.variance)
