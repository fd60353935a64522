"""What an attacker sees and knows of one parent's children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit_deployments.topdown.measurements import NoisyMeasurements
from dpaudit_deployments.topdown.topdown import TopDown

__all__ = ["Sight", "sights"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The children of one parent, of whom ``target`` is attacked.

    ``known`` (n, cells) are the children's counts as the attacker knows them, and ``matrix``
    (cells, row) makes them a row of answers, whose noise has the scale ``scale``. It sees either
    the noisy rows ``released`` (n, row), or only the published ``table`` (n, cells); the ``parent``
    (cells,) is published too. ``zeros`` (cells,) are structural. ``replay`` makes a table, not yet
    rounded, from rows.
    """

    scale: float
    matrix: Floats
    known: Counts
    target: int
    released: Counts | None
    table: Counts | None
    parent: Counts | None
    zeros: npt.NDArray[np.bool_]
    replay: Callable[[Floats], Floats]

    @property
    def residual(self) -> Floats:
        """What is seen less what is known, as rows of answers (n, row)."""
        known = self.known @ self.matrix
        if self.released is not None:
            return np.asarray(self.released - known)
        assert self.table is not None  # noqa: S101
        return np.asarray(self.table @ self.matrix - known)


def sights(
    run: TopDown,
    *,
    known: tuple[Counts, ...],
    county: int,
    measured: NoisyMeasurements | None = None,
    tables: tuple[Counts, ...] | None = None,
) -> tuple[Sight, ...]:
    """The county's siblings, its state's, and the nation: lowest first.

    Of the counts that an attacker knows, ``known``, and either the measurements or the tables.

    Raises:
        UsageError: neither is given, or queries of one level with different scales.
    """
    if (measured is None) == (tables is None):
        raise UsageError("an attacker sees either measurements or tables")
    found, at = [], county
    for index in range(len(run.census.levels) - 1, -1, -1):
        level = run.census.levels[index]
        if len(run.rows(level.name)) != 1:
            raise UsageError(f"level={level.name}: attacks need one scale for all its queries")
        ((scale, queries),) = run.rows(level.name)
        parent = int(level.parents[at])
        rows = level.parents == parent
        above = tables[index - 1][parent] if index and tables is not None else None
        totals = known[index][rows].sum(1) if run.holds_totals(level.name) else None
        names = [(query.name, len(query.cells)) for query in queries]

        def replay(
            values: Floats,
            *,
            level: str = level.name,
            names: list[tuple[str, int]] = names,
            above: Counts | None = above,
            totals: Counts | None = totals,
        ) -> Floats:
            parts = np.split(values, np.cumsum([size for _, size in names])[:-1], axis=1)
            answers = {name: part for (name, _), part in zip(names, parts, strict=True)}
            return run.fractional(level, answers, parent=above, totals=totals)

        found.append(
            Sight(
                scale=scale,
                matrix=np.concatenate([query.matrix for query in queries], axis=1),
                known=known[index][rows],
                target=int(np.flatnonzero(rows).searchsorted(at)),
                released=None
                if measured is None
                else np.concatenate(
                    [measured.of(level.name, query.name).values[rows] for query in queries], axis=1
                ),
                table=None if tables is None else tables[index][rows],
                parent=above,
                zeros=run.census.schema.zeros,
                replay=replay,
            )
        )
        at = parent
    return tuple(found)
