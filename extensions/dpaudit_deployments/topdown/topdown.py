"""TopDown: measure all levels, then estimate and round from the nation down.

An estimate is non-negative least squares for all children of one parent, consistent with it.
Controlled rounding then takes each cell to a neighbouring integer, with all sums kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit.numeric.arrays import to_numpy
from dpaudit.protocols import Array, Stream
from dpaudit_deployments.topdown.census import Budget, Census, Level, Query

__all__ = [
    "Answers",
    "Noise",
    "NoisyMeasurements",
    "NoisyQuery",
    "Rows",
    "TopDown",
    "controlled_rounding",
    "estimate",
]


@dataclass(frozen=True, kw_only=True)
class NoisyQuery:
    """The noisy answers of one query in all geographies of one level.

    ``values`` (n, c) int64 has a row for each of ``geocodes`` (nation ``us``, states of two digits,
    counties of five) and a column for each of ``cells``. ``scale`` is the parameter σ of the
    discrete Gaussian that was claimed, and ``variance`` that of one value's noise. ``zeros`` (c,)
    marks structural zeros: cells that no record can be in, whose true count is 0 in every
    geography. There the value is the noise.
    """

    level: str
    query: str
    geocodes: tuple[str, ...]
    cells: tuple[str, ...]
    values: npt.NDArray[np.int64]
    scale: float
    variance: float
    zeros: npt.NDArray[np.bool_]

    @property
    def noise(self) -> npt.NDArray[np.int64]:
        """The values in structural zeros, shape (n, zeros): the noise itself."""
        return self.values[:, self.zeros]


@dataclass(frozen=True, kw_only=True)
class NoisyMeasurements:
    """All noisy answers of one run, nation first: what a noisy measurement file holds."""

    queries: tuple[NoisyQuery, ...]

    def of(self, level: str, query: str) -> NoisyQuery:
        """The answers of ``query`` at ``level``.

        Raises:
            KeyError: not measured there.
        """
        for answers in self.queries:
            if (answers.level, answers.query) == (level, query):
                return answers
        raise KeyError((level, query))


_SLACK = 1e-5


def controlled_rounding(
    values: Floats, *, parts: Sequence[Counts] = (), parent: Counts | None = None
) -> Counts:
    """Integers next to ``values`` (n, cells) at the least distance Σ|integer − value|.

    All columns together add up to ``parent`` (cells,), where given. For each of ``parts`` (cells,),
    whose groups are nested in one another, every row's sum over a group is rounded down or up too;
    where it is an integer, it is kept. Values must be ≥ 0 and fit the sums to within 1e-5.

    The constraints are two nested families of sets (groups within a row; columns), so their matrix
    is totally unimodular (Edmonds 1970; Cox 1987 for tables): the linear programme has integral
    vertices, and HiGHS' integer solver ends at its root.

    Raises:
        RuntimeError: the values do not fit the sums.
    """
    n, cells = values.shape
    floor = np.floor(values + _SLACK)
    rest = np.clip(values - floor, 0.0, 1.0)
    blocks, low, high = [], [], []
    for part in parts:
        groups = sparse.csr_array((np.ones(cells), (part, np.arange(cells))))
        sums, floors = values @ groups.T, floor @ groups.T
        blocks.append(sparse.kron(sparse.eye_array(n), groups))
        low.append((np.floor(sums + _SLACK) - floors).ravel())
        high.append((np.ceil(sums - _SLACK) - floors).ravel())
    if parent is not None:
        blocks.append(sparse.kron(np.ones((1, n)), sparse.eye_array(cells)))
        low.append(parent - floor.sum(0))
        high.append(parent - floor.sum(0))
    if not blocks:
        return np.rint(values).astype(np.int64)
    limits = LinearConstraint(sparse.vstack(blocks), np.concatenate(low), np.concatenate(high))
    whole, bounds = np.ones(n * cells), Bounds(0, 1)
    solution = milp((1 - 2 * rest).ravel(), integrality=whole, bounds=bounds, constraints=limits)
    if solution.x is None:
        raise RuntimeError(f"no controlled rounding: {solution.message}")
    return np.asarray(floor + np.rint(solution.x).reshape(n, cells), dtype=np.int64)


_RELAXED = 1.6
_TOLERANCE = 1e-6
_MOST = 20_000
_BALANCED = 100  # iterations after which the penalty is looked at again


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Noisy answers ``values`` (n, c) of a query, its ``matrix`` (cells, c), and 1/variance."""

    matrix: Floats
    values: Floats
    weight: float


def estimate(
    answers: Sequence[Answers], *, parent: Floats | None = None, totals: Floats | None = None
) -> Floats:
    """Counts x (n, cells) ≥ 0 that minimise Σ weight·(x·matrix − values)².

    The children's sum is ``parent`` (cells,) and each one's total is in ``totals`` (n,), where
    given; the totals must then add up to the parent's. Both hold to rounding, and the objective is
    within about 1e-6 counts of its least per cell.

    All n children have one Hessian, the constraints tie them by one sum, and only x ≥ 0 is left:
    operator splitting (ADMM; Boyd et al. 2011, the method of OSQP) takes one product with a
    (cells, cells) matrix per iteration, and projects onto both kinds of constraints in closed form.

    Raises:
        RuntimeError: no convergence in 20,000 iterations.
    """
    unit = max(one.weight for one in answers)
    hessian = sum((one.weight / unit) * one.matrix @ one.matrix.T for one in answers)
    linear = sum((one.weight / unit) * one.values @ one.matrix.T for one in answers)
    hessian, linear = np.asarray(hessian), np.asarray(linear)
    values, vectors = np.linalg.eigh(hessian)
    penalty = float(np.sqrt(max(values[0], 1e-3) * values[-1]))
    z = np.maximum(linear / values[-1], 0.0)
    dual = np.zeros_like(z)
    for step in range(_MOST):
        if step % _BALANCED == 0:
            inverse = (vectors / (values + penalty)) @ vectors.T
            along = inverse.sum(0)
        x = _consistent((linear + penalty * (z - dual)) @ inverse, along, parent, totals)
        mixed = _RELAXED * x + (1 - _RELAXED) * z
        before, z = z, np.maximum(mixed + dual, 0.0)
        dual += mixed - z
        apart, moved = float(np.abs(x - z).max()), float(np.abs(z - before).max())
        if max(apart, moved) < _TOLERANCE:
            return _consistent(z, np.ones_like(along), parent, totals)
        if step % _BALANCED == _BALANCED - 1 and not 0.1 < apart / (moved + 1e-300) < 10:
            factor = 2.0 if apart > moved else 0.5
            penalty, dual = penalty * factor, dual / factor
    raise RuntimeError(f"no convergence of least squares: {apart:.1e} apart, {moved:.1e} moved")


def _consistent(y: Floats, along: Floats, parent: Floats | None, totals: Floats | None) -> Floats:
    """The nearest values with the right sums, in the metric whose inverse has row sums ``along``.

    The first shift is the same for all children; the second one's is 0 in sum, as the totals add up
    to the parent's.
    """
    if parent is not None:
        y = y + (parent - y.sum(0)) / len(y)
    if totals is not None:
        y = y + np.outer((totals - y.sum(1)) / along.sum(), along)
    return y


class Rows(Protocol):
    """Makes rows of noise: any ``NoiseSource`` does."""

    def sample(self, n: int, d: int, *, stream: Stream) -> Array:
        """``n`` rows of ``d`` values, shape (n, d)."""


Noise = Callable[[float, int], Rows]
"""Makes the source of a level's rows from their scale σ and their length."""

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Parts = Mapping[str, npt.NDArray[np.generic]]
"""Noisy answers (n, c) of one parent's children, by query."""


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
        answers = []
        for at, level in enumerate(self.census.levels):
            for index, (scale, queries) in enumerate(self.rows(level.name)):
                sizes = [len(query.cells) for query in queries]
                values = noise(scale, sum(sizes)).sample(
                    len(level.geocodes), sum(sizes), stream=stream.child(at, index)
                )
                whole = np.rint(to_numpy(values)).astype(np.int64)
                parts = np.split(whole, np.cumsum(sizes)[:-1], axis=1)
                answers += [
                    self._noisy_query(level, query, scale, part)
                    for query, part in zip(queries, parts, strict=True)
                ]
        return NoisyMeasurements(queries=tuple(answers))

    def _noisy_query(self, level: Level, query: Query, scale: float, noise: Counts) -> NoisyQuery:
        return NoisyQuery(
            level=level.name,
            query=query.name,
            geocodes=level.geocodes,
            cells=query.cells,
            values=(level.counts @ query.matrix).astype(np.int64) + noise,
            scale=scale,
            variance=Claim("discrete-gaussian", scale).standard_deviation ** 2,
            zeros=~(~self.census.schema.zeros @ query.matrix > 0),
        )

    def tables(self, measured: NoisyMeasurements, *, only: int | None = None) -> tuple[Counts, ...]:
        """The published tables: whole counts (n, cells) of each level, from measurements alone.

        ``only`` makes the lowest level of this one parent, and leaves 0 in its other rows.

        Raises:
            UsageError: a query that is missing, or of another shape.
        """
        published: list[Counts] = []
        for at, level in enumerate(self.census.levels):
            answers = {}
            for query in self.queries(level.name):
                answers[query.name] = measured.of(level.name, query.name).values
                if answers[query.name].shape != (len(level.geocodes), len(query.cells)):
                    raise UsageError(f"{level.name} {query.name}: measurements of another census")
            table = np.zeros_like(level.counts)
            last = only is not None and at == len(self.census.levels) - 1
            for parent in [only] if last else range(len(published[-1]) if at else 1):
                rows = level.parents == parent
                table[rows] = self.children(
                    level.name,
                    {name: values[rows] for name, values in answers.items()},
                    parent=published[-1][parent] if at else None,
                    totals=level.counts[rows].sum(1) if self.holds_totals(level.name) else None,
                )
            published.append(table)
        return tuple(published)

    def holds_totals(self, level: str) -> bool:
        """Whether totals are held: they are where they are not measured."""
        return "total" not in self.budget.queries[level]

    def children(
        self, level: str, answers: Parts, *, parent: Counts | None, totals: Counts | None
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
        self, level: str, answers: Parts, *, parent: Counts | None, totals: Counts | None
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
        counts = estimate(
            some,
            parent=None if parent is None else parent[free].astype(np.float64),
            totals=None if totals is None else totals.astype(np.float64),
        )
        out = np.zeros((len(counts), len(free)))
        out[:, free] = counts
        return out
