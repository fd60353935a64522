"""Small noisy measurement files in the Bureau's layout, and how often an audit finds their flaws.

The noise is honest, or a LAB SPECIMEN with one planted flaw.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.experiments.measure import Cell, Grid, Measure, Table
from dpaudit.experiments.trials import interval
from dpaudit.noise.discrete import DiscreteGaussian
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.seed_in_noise.key import SeedKey
from dpaudit.noise.seed_in_noise.source import SeedInNoise
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.census.audit import audit_files
from dpaudit_deployments.census.files import (
    ALL,
    UNBOUNDED,
    Constraint,
    Integers,
    Measurement,
    write_level,
)
from dpaudit_deployments.census.law import IntegerGaussian

if TYPE_CHECKING:
    from dpaudit_deployments.census.result import CensusResult

__all__ = ["MEASURE", "PRODUCT", "Noise", "honest", "make_files", "measure", "noise_of", "summary"]

PRODUCT = "US_Person_PL_SIMULATED"
LEVELS = ("US", "State", "County")
AXES: Mapping[str, int] = {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 7}
"""As in the redistricting schema, with 7 races for its 63."""
QUERIES: Mapping[str, tuple[tuple[str, ...], float]] = {
    "total": ((), 6.0),
    "hhgq": (("hhgq",), 3.0),
    "votingage * hispanic * cenrace": (("votingage", "hispanic", "cenrace"), 2.0),
    "detailed": (tuple(AXES), 1.5),
}
"""The axes that each query keeps, and σ in counties; above it is a quarter larger per level."""

Flaw = Literal[
    "none", "σ 2 % too small", "σ 5 % too small", "rounded normal", "cut at 3 σ",
    "two states alike", "no noise in one level", "one seed for all levels", "rounded pancake",
    "seed in noise",
]  # fmt: skip
"""``rounded normal`` is the Bureau's RoundedContinuousGaussianMechanism, not used in production."""


class Noise(Protocol):
    """Where the noise of a query at a level comes from."""

    def __call__(
        self, rows: int, cells: int, *, sigma: float, level: str, query: str, stream: KeyedStream
    ) -> Integers:
        """Noise of shape (rows, cells) int64; ``sigma`` is what the files state."""


def honest(
    rows: int, cells: int, *, sigma: float, level: str, query: str, stream: KeyedStream
) -> Integers:
    """Exact discrete Gaussian noise."""
    del level, query
    noise = DiscreteGaussian(sigma=sigma).sample(rows, cells, stream=stream)
    return np.asarray(noise).astype(np.int64)


def make_files(
    folder: Path, *, stream: KeyedStream, noise: Noise = honest, states: int = 8, counties: int = 12
) -> Path:
    """Write files of a made-up country with ``counties`` in each of ``states``; returns ``folder``.

    A county lacks each of the seven kinds of group quarters with probability ½, and nobody below 18
    lives in a nursing facility: the constraint files say so, as the Bureau's do.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    counts, lacking = _people(states, counties, stream.child("people"))
    place = folder / PRODUCT
    for depth, level in enumerate(LEVELS):
        own = _level_totals(counts, depth)
        missing = _level_totals(lacking, depth, everywhere=True)
        geocodes = _geocodes(level, states, counties)
        measured = list(_measurements(own, geocodes, level, noise, stream.child("noise", level)))
        parts = [""] if level == "US" else [f"State={s:02d}" for s in range(1, states + 1)]
        for part in parts:
            state = part.removeprefix("State=")
            write_level(
                place,
                level,
                axes=tuple(AXES),
                measurements=(m for m in measured if m.geocode.startswith(state)),
                constraints=_constraints(own, missing, geocodes, level, state),
                partition=part,
            )
    return folder


def _people(
    states: int, counties: int, stream: KeyedStream
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Counts (states·counties, *axes), and which group quarters each county lacks."""
    rng = stream.numpy()
    lacking = rng.random((states * counties, AXES["hhgq"])) < 0.5
    lacking[:, 0] = False
    counts = rng.poisson(9.0, (states * counties, *AXES.values()))
    counts[lacking] = 0
    counts[:, 3, 0] = 0
    return counts.reshape(states, counties, *AXES.values()), lacking.reshape(states, counties, -1)


def _level_totals(
    counts: npt.NDArray[np.generic], depth: int, *, everywhere: bool = False
) -> Integers:
    """Totals of a level, (geographies, …); ``everywhere`` is true where all below are."""
    axes = {0: (0, 1), 1: (1,), 2: ()}[depth]
    totals = counts.all(axis=axes) if everywhere else counts.sum(axis=axes)
    return np.asarray(totals).reshape(-1, *counts.shape[2:])


def _geocodes(level: str, states: int, counties: int) -> list[str]:
    codes = [f"{s:02d}" for s in range(1, states + 1)]
    below = [s + f"{c:03d}" for s in codes for c in range(1, counties + 1)]
    return {"US": ["1"], "State": codes, "County": below}[level]


def _measurements(
    counts: Integers, geocodes: list[str], level: str, noise: Noise, stream: KeyedStream
) -> Iterator[Measurement]:
    for query, (axes, county) in QUERIES.items():
        sigma = county * 1.25 ** (len(LEVELS) - 1 - LEVELS.index(level))
        away = tuple(1 + i for i, axis in enumerate(AXES) if axis not in axes)
        answers = counts.sum(axis=away).reshape(len(geocodes), -1)
        errors = noise(
            *answers.shape, sigma=sigma, level=level, query=query, stream=stream.child(query)
        )
        full = len(axes) == len(AXES)
        for geocode, value in zip(geocodes, answers + errors, strict=True):
            yield Measurement(
                geocode=geocode,
                query=query,
                specs=tuple("detailed" if full else a if a in axes else ALL for a in AXES),
                shape=tuple(n if a in axes else 1 for a, n in AXES.items()),
                value=value,
                variance=IntegerGaussian(sigma).variance,
            )


def _constraints(
    counts: Integers, lacking: npt.NDArray[np.generic], geocodes: list[str], level: str, state: str
) -> Iterator[Constraint]:
    nobody = ("gqNursingTotal", "nonvoting", ALL, ALL), (1,) * 4, np.zeros(1, np.int64)
    for i, geocode in enumerate(geocodes):
        if not geocode.startswith(state):
            continue
        bounds = np.where(lacking[i], 0, UNBOUNDED)
        rows = {
            ("nurse_nva_0", "="): nobody,
            ("hhgq_total_ub", "<="): (("hhgq", ALL, ALL, ALL), (8, 1, 1, 1), bounds),
        }
        if level == "US":
            rows = {("total", "="): ((ALL,) * 4, (1,) * 4, np.array([counts[i].sum()])), **rows}
        for (query, sign), (specs, shape, value) in rows.items():
            yield Constraint(
                geocode=geocode, query=query, specs=specs, shape=shape, value=value, sign=sign
            )


def noise_of(flaw: Flaw, *, states: int, stream: KeyedStream) -> Noise:
    """The noise with a flaw of :data:`Flaw`; ``stream`` makes what all queries share.

    Geographies come state by state.
    """
    shared = stream.child("shared")

    def noise(
        rows: int, cells: int, *, sigma: float, level: str, query: str, stream: KeyedStream
    ) -> Integers:
        scaled = sigma * _SCALES.get(flaw, 1.0)
        values = honest(rows, cells, sigma=scaled, level=level, query=query, stream=stream)
        match flaw:
            case "rounded normal":
                normal = stream.child("normal").numpy().standard_normal((rows, cells))
                return _whole(normal * IntegerGaussian(sigma).variance ** 0.5)
            case "cut at 3 σ":
                return _cut(values, sigma, level, query, stream)
            case "two states alike" if rows >= 2 * (rows // states) > 0:
                each = rows // states
                values[each : 2 * each] = values[:each]
            case "no noise in one level" if level == "State":
                values[:] = 0
            case "one seed for all levels":
                return _quantiles(rows, cells, sigma, shared.child(query))
            case "rounded pancake" if cells > 1:
                key = PancakeKey.new(dim=cells, beta=1e-3, secret=shared.bytes(32))
                # rounding adds 1/12 to the variance
                pancake = Pancake(key=key, sigma=(IntegerGaussian(sigma).variance - 1 / 12) ** 0.5)
                return _whole(np.asarray(pancake.sample(rows, cells, stream=stream)))
            case "seed in noise":
                seed = SeedKey.new(secret=shared.bytes(32))
                source = SeedInNoise(key=seed, law="discrete-gaussian", sigma=sigma)
                return _whole(np.asarray(source.sample(rows, cells, stream=stream)))
        return values

    return noise


_SCALES: Mapping[str, float] = {"σ 2 % too small": 0.98, "σ 5 % too small": 0.95}


def _whole(values: npt.ArrayLike) -> Integers:
    return np.rint(np.asarray(values, dtype=np.float64)).astype(np.int64)


def _cut(values: Integers, sigma: float, level: str, query: str, stream: KeyedStream) -> Integers:
    """Values beyond 3 σ are drawn again."""
    for again in range(60):
        far = np.abs(values) > 3 * sigma
        number = int(far.sum())
        if not number:
            break
        fresh = stream.child("again", again)
        values[far] = honest(number, 1, sigma=sigma, level=level, query=query, stream=fresh)[:, 0]
    return values


def _quantiles(rows: int, cells: int, sigma: float, stream: KeyedStream) -> Integers:
    """The law's quantiles of uniform numbers that do not depend on the level."""
    half = IntegerGaussian(sigma).table
    whole = np.concatenate((half[:0:-1], half))
    uniform = stream.numpy().random((rows, cells))
    return np.searchsorted(np.cumsum(whole), uniform).astype(np.int64) - (len(half) - 1)


class Country(Table, frozen=True):
    """A made-up country, and how many sets of its files are ``honest`` or have each flaw."""

    states: int
    counties: int
    honest: int
    flawed: int


class CensusFilesGrid(Grid, frozen=True):
    """``flaw`` in the files of a ``country``; the audit has ``alpha``."""

    flaw: Flaw
    country: Country
    alpha: float = 0.05


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The share of findings among sets of files, ``trials`` at most."""
    del arm
    grid = cell.grid(CensusFilesGrid)
    number = grid.country.honest if grid.flaw == "none" else grid.country.flawed
    files = min(cell.settings["trials"], number)
    stream = cell.stream
    started = time.process_time()
    documents = [_audit_country(grid, stream.child(i)) for i in range(files)]
    findings = [d for d in documents if d.verdict == "finding"]
    return {
        "files": files,
        "finding": interval(len(findings), files),
        "values": sum(g.values for d in documents for g in d.groups) // files,
        "tests": max(len(d.tests) for d in documents),
        "first": _leading_tests(findings),
        "seconds_each": (time.process_time() - started) / files,
    }


def _audit_country(grid: CensusFilesGrid, stream: KeyedStream) -> CensusResult:
    country = grid.country
    noise = noise_of(grid.flaw, states=country.states, stream=stream.child("flaw"))
    with tempfile.TemporaryDirectory() as folder:
        size = {"states": country.states, "counties": country.counties}
        make_files(Path(folder), stream=stream.child("files"), noise=noise, **size)
        return audit_files(
            [folder], alpha=grid.alpha, provenance=collect(seed="none", plugins=()), sums=True
        )


def _leading_tests(findings: Sequence[CensusResult]) -> str:
    """The tests with the smallest p-value of each finding, the most frequent first."""
    names = Counter(
        min((t for t in d.tests if t.finding), key=lambda t: t.p).name.rpartition(": ")[2]
        for d in findings
    )
    return ", ".join(f"{name} {n}" for name, n in names.most_common(3))


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Findings on honest files."""
    honest = [row for row in rows if row["flaw"] == "none"]
    if not honest:
        return ""
    files = sum(row["files"] for row in honest)
    findings = sum(round(row["finding"]["value"] * row["files"]) for row in honest)
    return f"{findings} of {files} sets of honest files end in a finding at α = 0.05."


MEASURE = Measure(run=measure, grid=CensusFilesGrid, needs_arm=False, summary=summary)
