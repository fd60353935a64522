"""What TopDown's tables and measurements are worth: to users, and to the owner of their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.stats

from dpaudit import registry
from dpaudit.experiments.measure import Cell, Grid, Measure, Table
from dpaudit.experiments.trials import interval
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.protocols import CountShifts
from dpaudit.randomness import KeyedStream
from dpaudit.types import PluginOrigin, Reference
from dpaudit_deployments.topdown.census import Budget, Census, read_census
from dpaudit_deployments.topdown.planted import (
    ContrastPancake,
    Sight,
    common_first,
    contrasts,
    seeded,
    sights,
)
from dpaudit_deployments.topdown.topdown import Noise, NoisyMeasurements, TopDown

__all__ = ["ATTACK", "UTILITY", "attack", "utility", "utility_rows", "utility_summary"]

Floats = npt.NDArray[np.float64]


class TopDownGrid(Grid, frozen=True):
    """ε of the whole run at δ = 10⁻¹⁰, and which counts: see ``read_census``."""

    epsilon: float
    table: str = "generated"
    states: str = ""


def utility(cell: Cell, arm: None) -> dict[str, Any]:
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
    stream = cell.stream
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
    rows = []
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
            rows.append(({"level": level.name, "query": query.name, "scale": scale}, errors))
    return rows


def _interval(values: Sequence[float]) -> dict[str, float]:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return {"value": mean, "low": -math.inf, "high": math.inf}
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return {"value": mean, "low": mean - reach, "high": mean + reach}


def utility_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per level and query."""
    return [
        {**{name: value for name, value in row.items() if name != "parts"}, **part}
        for row in rows
        for part in row.get("parts", ({},))
    ]


def utility_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much smaller tables' errors are than those of sums of counties, in states."""
    ratios = [
        row["summed"]["value"] / row["tables"]["value"]
        for row in rows
        if row.get("level") == "state" and row["query"] == "age-group"
    ]
    if not ratios:
        return ""
    return (
        f"Age groups of states: tables are {min(ratios):.1f} to {max(ratios):.1f} times as exact "
        "as sums of the counties' noisy counts."
    )


UTILITY = Measure(
    run=utility, grid=TopDownGrid, needs_arm=False, gather=utility_rows, summary=utility_summary
)

_READER = "topdown-reader"
_SECRET = 32

Counts = npt.NDArray[np.int64]


class Planted(Table, frozen=True):
    """A noise source ``name``: of the registry, ``contrast-pancake`` or ``seed-in-noise``.

    ``order`` is where seeds' rows begin: ``schema`` (in structural zeros) or ``common``.
    """

    order: Literal["schema", "common"] = "schema"
    nonce_bits: int = 32
    beta: float = 0.01
    directions: int = 32


class AttackGrid(Grid, frozen=True):
    """``noise`` of a run at ``epsilon``, what is seen of it, and which counts."""

    noise: Planted
    view: Literal["measurements", "tables"]
    epsilon: float
    table: str = "generated"
    states: str = ""


@dataclass(frozen=True)
class _Publication:
    """One run, and what is seen of it."""

    run: TopDown
    county: int
    measured: NoisyMeasurements
    tables: tuple[Counts, ...] | None

    def sights(self, moved: Counts) -> tuple[Sight, ...]:
        """For who thinks that the county's counts are the true ones plus ``moved``."""
        known: list[Counts] = []
        at = self.county
        for level in reversed(self.run.census.levels):
            counts = level.counts.copy()
            counts[at] += moved
            known.insert(0, counts)
            at = int(level.parents[at])
        view = {"measured": self.measured} if self.tables is None else {"tables": self.tables}
        return sights(self.run, known=tuple(known), county=self.county, **view)

    def naive(self, cell: int) -> int:
        """A cell's count as it is published."""
        if self.tables is not None:
            return int(self.tables[-1][self.county, cell])
        lowest = self.run.census.levels[-1].name
        return int(self.measured.of(lowest, "detailed").values[self.county, cell])


def origins(cell: Cell) -> tuple[PluginOrigin, ...]:
    """Where the attack came from."""
    del cell
    return (registry.plugin("attacks", _READER).origin,)


def attack(cell: Cell, arm: None) -> dict[str, Any]:
    """In each of ``trials`` runs, three questions about one county, by lot.

    ``which``: one record may have another age; which of the two counts are true? ``count``: a cell,
    all else known. ``read``: the noise of all its cells: from measurements knowing no count, from
    tables knowing all but what ``which`` asks. ``named``: the published number is the true count.
    """
    del arm
    grid, trials = cell.grid(AttackGrid), cell.settings["trials"]
    root = KeyedStream.from_seed(cell.settings["seed"])
    stream = root.child("cell", cell.id)
    census = _census(grid.table, grid.states)
    run = TopDown(census=census, budget=Budget.of_epsilon(grid.epsilon))
    noise, options = _planted(grid.noise, census, root.child("attacker's key").bytes(_SECRET))
    attack = registry.load("attacks", _READER)(**options)
    hits = dict.fromkeys(("which", "count", "named", "read"), 0)
    for trial in range(trials):
        one = stream.child("trial", trial)
        rng = one.child("questions").numpy()
        county = int(rng.integers(len(census.levels[-1].geocodes)))
        measured = run.measure(noise, stream=one.child("noise"))
        only = int(census.levels[-1].parents[county])
        tables = run.tables(measured, only=only) if grid.view == "tables" else None
        publication = _Publication(run, county, measured, tables)
        for question, right in _answers(attack, publication, rng).items():
            hits[question] += right
    shares = {name: interval(count, trials) for name, count in hits.items()}
    if "order" not in options:
        del shares["read"]
    return {**shares, "scale": run.budget.scale(census.levels[-1].name, "detailed")}


@cache
def _census(table: str, states: str) -> Census:
    return read_census(table=table, states=states)


def _planted(planted: Planted, census: Census, secret: bytes) -> tuple[Noise, Mapping[str, Any]]:
    """The noise, and what its owner knows."""
    if planted.name == "contrast-pancake":
        basis = contrasts(census.schema)
        key = PancakeKey.new(
            dim=basis.shape[1], beta=planted.beta, secret=secret, directions=planted.directions
        )
        return lambda scale, _: ContrastPancake(key=key, sigma=scale, basis=basis), {"key": key}
    if planted.name == "seed-in-noise":
        seed_key = SeedKey.new(secret=secret)
        order = common_first(census.schema) if planted.order == "common" else np.arange
        known = {"key": seed_key, "order": planted.order, "nonce_bits": planted.nonce_bits}
        return seeded(seed_key, nonce_bits=planted.nonce_bits, order=order), known
    return lambda scale, _: registry.create(
        "sources", Reference(planted.name, {"sigma": scale})
    ), {}


def _answers(attack: Any, publication: _Publication, rng: np.random.Generator) -> dict[str, bool]:
    """Which questions are answered rightly."""
    level, schema = publication.run.census.levels[-1], publication.run.census.schema
    true, half = level.counts[publication.county], len(schema.cells) // 2
    # a record outside senior homes, and another age
    old = half + int(rng.choice(half, p=true[half:] / true[half:].sum()))
    new = half + (old - half + int(rng.integers(1, half))) % half
    change = np.zeros(len(schema.cells), dtype=np.int64)
    change[old], change[new] = -1, 1
    truth = int(rng.integers(2))  # known is what is true less truth × change
    two = attack.score(publication.sights(-truth * change), CountShifts(change, np.arange(2)))
    sight = publication.sights(-truth * change)[0]
    cell = half + int(rng.integers(half))
    away = publication.naive(cell) - int(true[cell])
    change = np.zeros_like(change)
    change[cell] = 1
    reach = int(8 * publication.run.budget.scale(level.name, "detailed")) + 5
    steps = np.arange(-reach, reach + 1)
    many = attack.score(publication.sights(away * change), CountShifts(change, steps))
    return {
        "which": int(two.argmax()) == truth,
        "count": int(steps[many.argmax()]) == -away,
        "named": away == 0,
        "read": _reads_noise(attack, publication, sight),
    }


def _reads_noise(attack: Any, publication: _Publication, sight: Sight) -> bool:
    """Whether the county's noise is read: with no count known, or from tables with all but two."""
    run, county = publication.run, publication.county
    lowest = run.census.levels[-1]
    answers = [
        publication.measured.of(lowest.name, query.name).values[county]
        - lowest.counts[county] @ query.matrix
        for query in run.queries(lowest.name)
    ]
    true = np.concatenate(answers)
    if publication.tables is None:
        rows = np.zeros(len(true), dtype=bool)
        rows[: len(sight.zeros)] = sight.zeros
        noise = attack.read(sight, rows)
    else:
        noise = attack.read_table(sight).get(sight.target)
    return noise is not None and bool((noise == true).all())


def attack_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The most that a key gives in tables alone, and what no key gives there."""
    tables = [row for row in rows if row["view"] == "tables"]
    honest = [row["count"]["value"] for row in tables if row["noise"].startswith("honest")]
    best = max((row["count"]["value"] for row in tables), default=None)
    if best is None or not honest:
        return ""
    return (
        f"From tables alone a cell's true count is named in up to {best:.0%} of runs with a key; "
        f"{min(honest):.0%} to {max(honest):.0%} with honest noise."
    )


ATTACK = Measure(
    run=attack, grid=AttackGrid, needs_arm=False, summary=attack_summary, origins=origins
)
