"""A census: its histogram and queries, nation, states and counties with true counts, its budget."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from dpaudit.accounting.discrete import zcdp_epsilon
from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.training.data.places import data_folder

__all__ = [
    "SENSITIVITY",
    "Budget",
    "Census",
    "Level",
    "Query",
    "Schema",
    "census_schema",
    "read_census",
]

AGES = 86
"""Single years; the last is 85 and above."""
QUARTERS = ("senior-home", "elsewhere")
SENIOR = 65
"""The youngest age in a senior home: nobody below can live there."""
_GROUPS = (0, 5, 10, 15, 18, 20, *range(25, AGES, 5))


@dataclass(frozen=True, kw_only=True)
class Query:
    """Sums of cells: ``part`` (cells,) says into which of the query's ``cells`` each one falls."""

    name: str
    cells: tuple[str, ...]
    part: npt.NDArray[np.int64]

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """Shape (schema's cells, query's cells): counts times this are the answers."""
        return np.asarray(np.eye(len(self.cells))[self.part])


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Cells of a histogram, which of them are structurally zero, and queries, finest first.

    Each query's cells are unions of those of the query before it.
    """

    cells: tuple[str, ...]
    zeros: npt.NDArray[np.bool_]
    queries: tuple[Query, ...]


@cache
def census_schema() -> Schema:
    """Where a person lives × single years of age: 172 cells, of which 65 are impossible.

    Senior homes take people of 65 and above, so that the 65 cells below are structurally zero. The
    queries: all cells, 19 age groups, below voting age and above, and the total.
    """
    ages = np.tile(np.arange(AGES), len(QUARTERS))
    cells = tuple(f"{where}:{age}" for where in QUARTERS for age in range(AGES))
    group = np.searchsorted(_GROUPS, ages, side="right") - 1
    ends = [f"{low}-{high - 1}" for low, high in pairwise(_GROUPS)]
    return Schema(
        cells=cells,
        zeros=np.array([at < SENIOR for at in range(len(cells))]),
        queries=(
            Query(name="detailed", cells=cells, part=np.arange(len(cells))),
            Query(name="age-group", cells=(*ends, f"{_GROUPS[-1]}+"), part=group),
            Query(name="voting-age", cells=("0-17", "18+"), part=(ages >= 18).astype(np.int64)),
            Query(name="total", cells=("total",), part=np.zeros_like(ages)),
        ),
    )


LEVELS = ("nation", "state", "county")
TABLES = ("generated", "us-county-ages")
_FILE = "us_county_age_population_2000.csv.gz"
_COUNTIES = "us_county_population_2000.csv"
_SENIOR_SHARES = ((65, 0.011), (75, 0.047), (85, 0.182))

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The geographies of one level, their true ``counts`` (n, cells), and ``parents`` (n,).

    A parent is the row of the level above; the nation has 0.
    """

    name: str
    geocodes: tuple[str, ...]
    parents: Counts
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class Census:
    """A hierarchy of geographies over one schema, nation first."""

    schema: Schema
    levels: tuple[Level, ...]


def read_census(*, table: str = "generated", states: str = "") -> Census:
    """Nation, states and counties of the United States in 2000.

    ``us-county-ages`` are the real counts of 3,143 counties by single year of age (270,298 cells),
    from the folder that ``DPAUDIT_DATA`` names. ``generated`` needs no file: the real population of
    each county, ages drawn from one made-up law and a fixed seed. Who lives in a senior home is
    drawn in both (a fixed seed; 1.1 % of those of 65 to 74 years, 4.7 % to 84, 18.2 % above).
    ``states`` (``09 23 25``) keeps these alone; the nation is then their sum.

    Raises:
        UsageError: an unknown table or state, no data folder, or a file that is not the table.
    """
    if table not in TABLES:
        raise UsageError(f"table={table}: must be one of {', '.join(TABLES)}")
    codes, ages = _generated() if table == "generated" else _read_ages()
    if states:
        selection = states.split()
        known = {code[:2] for code in codes}
        if lost := [state for state in selection if state not in known]:
            hint = "give FIPS codes, e.g. '09 23 25'"
            raise UsageError(f"states={states}: no state {lost[0]}; {hint}")
        rows = [i for i, code in enumerate(codes) if code[:2] in selection]
        codes, ages = [codes[i] for i in rows], ages[rows]
    return _tree(codes, _with_senior_homes(codes, ages))


def _generated() -> tuple[list[str], Counts]:
    path = files("dpaudit.queries") / "data" / _COUNTIES
    with path.open("r", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    age = np.arange(AGES)
    law = np.where(age < 45, 1.0, np.maximum(0.05, (90 - age) / 45))
    law[-1] = 0.7
    stream = KeyedStream.from_seed("generated ages").numpy()
    ages = stream.multinomial([int(row[1]) for row in rows], law / law.sum())
    return [row[0] for row in rows], ages.astype(np.int64)


def _read_ages() -> tuple[list[str], Counts]:
    folder = data_folder()
    path = None if folder is None else folder / _FILE
    if path is None or not path.is_file():
        raise UsageError(
            f"table=us-county-ages: needs {_FILE} in the folder that DPAUDIT_DATA names; "
            "take table=generated without it"
        )
    try:
        rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
        codes, county = np.unique(rows[:, 0], return_inverse=True)
        counts = np.full((len(codes), AGES), -1, dtype=np.int64)
        counts[county, rows[:, 1]] = rows[:, 2]
    except (ValueError, IndexError, EOFError, OSError) as error:
        raise UsageError(f"{path}: is not a table of fips,age,pop ({error})") from error
    if len(rows) != counts.size or counts.min() < 0 or codes.min() < 1000 or codes.max() > 99999:
        raise UsageError(f"{path}: needs one count ≥ 0 for each county and age 0 to {AGES - 1}")
    return [f"{code:05d}" for code in codes], counts


def _with_senior_homes(codes: list[str], ages: Counts) -> Counts:
    """Counts (n, 172): those in senior homes, then all others."""
    share = np.zeros(AGES)
    for age, value in _SENIOR_SHARES:
        share[age:] = value
    homes = np.zeros_like(ages)
    for row, code in enumerate(codes):  # one stream per county: states may be left out
        stream = KeyedStream.from_seed("senior homes").child(code).numpy()
        homes[row, SENIOR:] = stream.binomial(ages[row, SENIOR:], share[SENIOR:])
    return np.concatenate([homes, ages - homes], axis=1)


def _tree(codes: list[str], counts: Counts) -> Census:
    states, parents = np.unique([code[:2] for code in codes], return_inverse=True)
    by_state = np.zeros((len(states), counts.shape[1]), dtype=np.int64)
    np.add.at(by_state, parents, counts)
    zero = np.zeros(1, dtype=np.int64)
    nation = Level(
        name="nation", geocodes=("us",), parents=zero, counts=by_state.sum(0, keepdims=True)
    )
    state = Level(
        name="state",
        geocodes=tuple(str(code) for code in states),
        parents=np.zeros(len(states), dtype=np.int64),
        counts=by_state,
    )
    county = Level(name="county", geocodes=tuple(codes), parents=parents, counts=counts)
    return Census(schema=census_schema(), levels=(nation, state, county))


PUBLISHED_RHO = (542 / 339) ** 2
"""Persons, redistricting data of 2020: a global scale of 339/542 in the Bureau's code, ρ = 2.56."""
PUBLISHED_DELTA = 1e-10
SENSITIVITY = math.sqrt(2)
"""L2 sensitivity of every query at every level, for bounded neighbours.

A query counts each record in exactly one cell of one geography of a level. Replacing a record takes
1 from at most one cell and adds 1 to at most one other: √(1² + 1²).
"""
_LEVEL_SHARES = {"nation": 104 / 4099, "state": 1440 / 4099, "county": 2555 / 4099}
_QUERIES = {
    "nation": ("detailed", "age-group", "voting-age"),
    "state": ("detailed", "age-group", "voting-age"),
    "county": ("detailed", "age-group", "voting-age", "total"),
}


def _equal() -> dict[str, dict[str, float]]:
    return {level: dict.fromkeys(names, 1 / len(names)) for level, names in _QUERIES.items()}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ρ of the whole run, its shares by level, and each level's shares by query.

    The levels' shares are those of the 2020 redistricting data for persons (Abowd et al. 2022, the
    Bureau's published configuration): nation 104/4099, state 1440/4099; the county, our lowest
    level, has its own 447/4099 and all that the levels below have there. Queries share a level
    equally: theirs are not ours. The totals of nation and states are invariants, and not measured.

    Formal guarantee: measurements with exact discrete Gaussian noise of these scales are ρ-zCDP for
    bounded neighbours (one record replaced) that agree in the invariants. With Δ = √2 a scale σ
    costs Δ²/2σ² = 1/σ² (Canonne, Kamath and Steinke 2020, Theorem 4), and costs add up. All that
    follows is post-processing. Not claimed: anything about neighbours in different states, whose
    totals differ; anything with another noise source.
    """

    rho: float = PUBLISHED_RHO
    levels: Mapping[str, float] = field(default_factory=lambda: dict(_LEVEL_SHARES))
    queries: Mapping[str, Mapping[str, float]] = field(default_factory=_equal)

    def __post_init__(self) -> None:
        """Check that shares are positive and add up to 1.

        Raises:
            UsageError: they do not, or ρ is not a finite number > 0.
        """
        if not 0 < self.rho < math.inf:
            raise UsageError(f"rho={self.rho}: must be a finite number > 0")
        for name, shares in (("levels", self.levels), *self.queries.items()):
            if min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-9:
                raise UsageError(f"shares of {name}: must be > 0 and add up to 1")
        if set(self.levels) != set(self.queries):
            raise UsageError(f"levels={', '.join(self.levels)}: each needs shares of queries")

    @classmethod
    def of_epsilon(cls, epsilon: float, *, delta: float = PUBLISHED_DELTA) -> Budget:
        """The published shares of the largest ρ that is converted to at most ``epsilon``.

        Raises:
            UsageError: ε not a number above 0 and at most 1000, or below what the conversion gives.
        """
        if not 1e-3 <= epsilon <= 1000:
            raise UsageError(f"epsilon={epsilon}: must be between 0.001 and 1000")
        rho = brentq(lambda at: zcdp_epsilon(delta, rho=at) - epsilon, 1e-12, 1e4, xtol=1e-15)
        return cls(rho=float(rho))

    def epsilon(self, delta: float = PUBLISHED_DELTA) -> float:
        """ε at ``delta`` of the whole run, by the published conversion of zCDP.

        >>> round(Budget().epsilon(), 2)
        17.14
        """
        return zcdp_epsilon(delta, rho=self.rho)

    def scale(self, level: str, query: str) -> float:
        """The discrete Gaussian's σ for ``query`` at ``level``: 1/√(its share of ρ)."""
        return 1 / math.sqrt(self.rho * self.levels[level] * self.queries[level][query])
