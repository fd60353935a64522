"""The error of TopDown's tables by level and query, compared with measurements alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.topdown import Budget, TopDown, read_census

__all__ = ["MEASURE", "TopDownGrid", "gather", "measure", "summary"]

Floats = npt.NDArray[np.float64]


class TopDownGrid(Grid, frozen=True):
    """ε of the whole run at δ = 10⁻¹⁰, and which counts: see ``read_census``."""

    epsilon: float
    table: str = "generated"
    states: str = ""


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """``trials`` runs with exact noise: mean absolute errors, by level and query.

    Of the query's own measurements; of sums of the counties' ``detailed`` measurements; and of the
    tables. Each with a 95 % interval (Student's t over runs).
    """
    del arm
    grid = cell.grid(TopDownGrid)
    run = TopDown(
        census=read_census(table=grid.table, states=grid.states),
        budget=Budget.of_epsilon(grid.epsilon),
    )
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    each = [_errors(run, stream.child(i)) for i in range(cell.settings["trials"])]
    parts = [
        {
            **names,
            **{
                way: _interval([one[at][1][way] for one in each if way in one[at][1]])
                for way in ("measured", "summed", "tables")
                if way in each[0][at][1]
            },
        }
        for at, (names, _) in enumerate(each[0])
    ]
    return {"rho": run.budget.rho, "parts": parts}


def _errors(run: TopDown, stream: KeyedStream) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Mean absolute error of each way, per level and query; structural zeros do not count."""
    measured = run.measure(lambda scale, _: DiscreteGaussian(sigma=scale), stream=stream)
    tables = run.tables(measured)
    lowest = run.census.levels[-1].name
    summed = [measured.of(lowest, "detailed").values]
    for level in reversed(run.census.levels[1:]):
        above = np.zeros((int(level.parents.max()) + 1, summed[0].shape[1]), dtype=np.int64)
        np.add.at(above, level.parents, summed[0])
        summed.insert(0, above)
    found = []
    for at, level in enumerate(run.census.levels):
        for query in run.census.schema.queries:
            true = level.counts @ query.matrix
            possible = ~run.census.schema.zeros @ query.matrix > 0
            ways = {"summed": summed[at] @ query.matrix, "tables": tables[at] @ query.matrix}
            scale = None
            if query.name in run.budget.queries[level.name]:
                answer = measured.of(level.name, query.name)
                ways["measured"] = answer.values.astype(np.float64)
                scale = answer.scale
            errors = {
                way: float(np.abs(values - true)[:, possible].mean())
                for way, values in ways.items()
            }
            found.append(({"level": level.name, "query": query.name, "scale": scale}, errors))
    return found


def _interval(values: Sequence[float]) -> dict[str, float]:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return {"value": mean, "low": -math.inf, "high": math.inf}
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return {"value": mean, "low": mean - reach, "high": mean + reach}


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per level and query."""
    return [
        {**{name: value for name, value in row.items() if name != "parts"}, **part}
        for row in rows
        for part in row.get("parts", ({},))
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much smaller tables' errors are than those of sums of counties, in states."""
    found = [
        row["summed"]["value"] / row["tables"]["value"]
        for row in rows
        if row.get("level") == "state" and row["query"] == "age-group"
    ]
    if not found:
        return ""
    return (
        f"Age groups of states: tables are {min(found):.1f} to {max(found):.1f} times as exact as "
        "sums of the counties' noisy counts."
    )


MEASURE = Measure(run=measure, grid=TopDownGrid, needs_arm=False, gather=gather, summary=summary)
