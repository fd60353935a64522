"""Nation, states and counties with their true counts: from the US tables, or generated."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream
from dpaudit.training.data.places import data_folder
from dpaudit_deployments.topdown.schema import AGES, SENIOR, Schema, census_schema

__all__ = ["LEVELS", "TABLES", "Census", "Level", "read_census"]

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
    codes, ages = _generated() if table == "generated" else _read()
    if states:
        wanted = states.split()
        known = {code[:2] for code in codes}
        if lost := [state for state in wanted if state not in known]:
            raise UsageError(
                f"states={states}: no state {lost[0]}; give FIPS codes, e.g. '09 23 25'"
            )
        kept = [i for i, code in enumerate(codes) if code[:2] in wanted]
        codes, ages = [codes[i] for i in kept], ages[kept]
    return _tree(codes, _with_senior_homes(codes, ages))


def _generated() -> tuple[list[str], Counts]:
    path = files("dpaudit.hosts") / "data" / _COUNTIES
    with path.open("r", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    age = np.arange(AGES)
    law = np.where(age < 45, 1.0, np.maximum(0.05, (90 - age) / 45))
    law[-1] = 0.7
    stream = KeyedStream.from_seed("generated ages").numpy()
    ages = stream.multinomial([int(row[1]) for row in rows], law / law.sum())
    return [row[0] for row in rows], ages.astype(np.int64)


def _read() -> tuple[list[str], Counts]:
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
