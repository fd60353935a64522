"""TopDown: measure all levels, then estimate and round from the nation down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.hosts.topdown.budget import Budget
from dpaudit.hosts.topdown.estimation import Answers, estimate
from dpaudit.hosts.topdown.geography import Census, Level
from dpaudit.hosts.topdown.measurements import NoisyMeasurements, NoisyQuery
from dpaudit.hosts.topdown.rounding import controlled_rounding
from dpaudit.hosts.topdown.schema import Query
from dpaudit.protocols import Array, Stream
from dpaudit.vectors.arrays import to_numpy

__all__ = ["Noise", "Rows", "TopDown"]


class Rows(Protocol):
    """Makes rows of noise: any ``NoiseSource`` does."""

    def sample(self, n: int, d: int, *, stream: Stream) -> Array:
        """``n`` rows of ``d`` values, shape (n, d)."""


Noise = Callable[[float, int], Rows]
"""Makes the source of a level's rows from their scale σ and their length."""

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TopDown:
    """The TopDown algorithm for one ``census`` and ``budget`` (Abowd et al. 2022, HDSR).

    Measurement: every query of every level plus noise, rounded to integers. Queries of a level with
    one scale are one noise vector per geography, the schema's finest query first. Estimation: for
    each parent, non-negative least squares over all its children at once, weighted by 1/variance,
    which add up to the parent; then controlled rounding. Held: totals of nation and states
    (invariants), structural zeros, parents. What the Bureau does beyond: six levels, several
    passes of least squares by groups of queries, optimised geography, further invariants.
    """

    census: Census
    budget: Budget

    def queries(self, level: str) -> tuple[Query, ...]:
        """The queries that are measured at ``level``, in the order of the schema."""
        shares = self.budget.queries[level]
        return tuple(query for query in self.census.schema.queries if query.name in shares)

    def rows(self, level: str) -> list[tuple[float, tuple[Query, ...]]]:
        """Scale and queries of each noise vector that a geography of ``level`` gets."""
        by_scale = groupby(self.queries(level), lambda q: self.budget.scale(level, q.name))
        return [(scale, tuple(queries)) for scale, queries in by_scale]

    def measure(self, noise: Noise, *, stream: Stream) -> NoisyMeasurements:
        """All noisy measurements with noise that ``noise`` makes, rounded where it is no integer.

        Formal guarantee: with ``discrete-gaussian``, that of :class:`Budget`. None otherwise.
        """
        found = []
        for at, level in enumerate(self.census.levels):
            for index, (scale, queries) in enumerate(self.rows(level.name)):
                sizes = [len(query.cells) for query in queries]
                drawn = noise(scale, sum(sizes)).sample(
                    len(level.geocodes), sum(sizes), stream=stream.child(at, index)
                )
                parts = np.split(
                    np.rint(to_numpy(drawn)).astype(np.int64), np.cumsum(sizes)[:-1], axis=1
                )
                found += [
                    self._measured(level, query, scale, part)
                    for query, part in zip(queries, parts, strict=True)
                ]
        return NoisyMeasurements(queries=tuple(found))

    def _measured(self, level: Level, query: Query, scale: float, noise: Counts) -> NoisyQuery:
        possible = ~self.census.schema.zeros @ query.matrix > 0
        return NoisyQuery(
            level=level.name,
            query=query.name,
            geocodes=level.geocodes,
            cells=query.cells,
            values=(level.counts @ query.matrix).astype(np.int64) + noise,
            scale=scale,
            variance=Claim("discrete-gaussian", scale).standard_deviation ** 2,
            zeros=~possible,
        )

    def tables(self, measured: NoisyMeasurements, *, only: int | None = None) -> tuple[Counts, ...]:
        """The published tables: whole counts (n, cells) of each level, from measurements alone.

        ``only`` makes the lowest level of this one parent, and leaves 0 in its other rows.

        Raises:
            UsageError: a query that is missing, or of another shape.
        """
        found: list[Counts] = []
        for at, level in enumerate(self.census.levels):
            answers = {}
            for query in self.queries(level.name):
                answers[query.name] = measured.of(level.name, query.name).values
                if answers[query.name].shape != (len(level.geocodes), len(query.cells)):
                    raise UsageError(f"{level.name} {query.name}: measurements of another census")
            table = np.zeros_like(level.counts)
            last = only is not None and at == len(self.census.levels) - 1
            for parent in [only] if last else range(len(found[-1]) if at else 1):
                rows = level.parents == parent
                table[rows] = self.children(
                    level.name,
                    {name: values[rows] for name, values in answers.items()},
                    parent=found[-1][parent] if at else None,
                    totals=level.counts[rows].sum(1) if self.holds_totals(level.name) else None,
                )
            found.append(table)
        return tuple(found)

    def holds_totals(self, level: str) -> bool:
        """Whether totals are held: they are where they are not measured."""
        return "total" not in self.budget.queries[level]

    def children(
        self,
        level: str,
        answers: Mapping[str, npt.NDArray[np.generic]],
        *,
        parent: Counts | None,
        totals: Counts | None,
    ) -> Counts:
        """Whole counts (n, cells) of one parent's children, from their noisy answers (n, c)."""
        real = self.fractional(level, answers, parent=parent, totals=totals)
        free = ~self.census.schema.zeros
        out = np.zeros(real.shape, dtype=np.int64)
        out[:, free] = controlled_rounding(
            np.maximum(real[:, free], 0.0),
            parts=[query.part[free] for query in self.census.schema.queries[1:]],
            parent=None if parent is None else parent[free],
        )
        return out

    def fractional(
        self,
        level: str,
        answers: Mapping[str, npt.NDArray[np.generic]],
        *,
        parent: Counts | None,
        totals: Counts | None,
    ) -> Floats:
        """The same before rounding."""
        free = ~self.census.schema.zeros
        some = [
            Answers(
                matrix=query.matrix[free],
                values=np.asarray(answers[query.name], dtype=np.float64),
                weight=self.budget.scale(level, query.name) ** -2,
            )
            for query in self.queries(level)
        ]
        found = estimate(
            some,
            parent=None if parent is None else parent[free].astype(np.float64),
            totals=None if totals is None else totals.astype(np.float64),
        )
        out = np.zeros((len(found), len(free)))
        out[:, free] = found
        return out
