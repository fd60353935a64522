"""How often an audit of noisy measurement files reports a finding, by the flaw planted in them."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpaudit.experiments.grid import Grid, Table
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.census.audit import audit_files
from dpaudit_deployments.census.flaws import noise_of
from dpaudit_deployments.census.simulation import make_files

if TYPE_CHECKING:
    from dpaudit.experiments.cell import Cell
    from dpaudit_deployments.census.result import CensusResult

__all__ = ["MEASURE", "CensusFilesGrid", "Country", "measure", "summary"]


class Country(Table, frozen=True):
    """A made-up country, and how many sets of its files are ``honest`` or have each flaw."""

    states: int
    counties: int
    honest: int
    flawed: int


class CensusFilesGrid(Grid, frozen=True):
    """``flaw`` in the files of a ``country``; the audit has ``alpha``."""

    flaw: Literal[
        "none",
        "σ 2 % too small",
        "σ 5 % too small",
        "rounded normal",
        "cut at 3 σ",
        "two states alike",
        "no noise in one level",
        "one seed for all levels",
        "rounded pancake",
        "seed in noise",
    ]
    country: Country
    alpha: float = 0.05


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The share of findings among sets of files, ``trials`` at most."""
    del arm
    grid = cell.grid(CensusFilesGrid)
    wanted = grid.country.honest if grid.flaw == "none" else grid.country.flawed
    files = min(cell.settings["trials"], wanted)
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    started = time.process_time()
    documents = [_audited(grid, stream.child(i)) for i in range(files)]
    found = [d for d in documents if d.verdict == "finding"]
    return {
        "files": files,
        "finding": interval(len(found), files),
        "values": sum(g.values for d in documents for g in d.groups) // files,
        "tests": max(len(d.tests) for d in documents),
        "first": _first(found),
        "seconds_each": (time.process_time() - started) / files,
    }


def _audited(grid: CensusFilesGrid, stream: KeyedStream) -> CensusResult:
    country = grid.country
    noise = noise_of(grid.flaw, states=country.states, stream=stream.child("flaw"))
    with tempfile.TemporaryDirectory() as folder:
        make_files(
            Path(folder),
            stream=stream.child("files"),
            noise=noise,
            states=country.states,
            counties=country.counties,
        )
        return audit_files(
            [folder], alpha=grid.alpha, provenance=collect(seed="none", plugins=()), sums=True
        )


def _first(found: Sequence[CensusResult]) -> str:
    """The tests with the smallest p-value of each finding, the most frequent first."""
    names = Counter(
        min((t for t in d.tests if t.finding), key=lambda t: t.p).name.rpartition(": ")[2]
        for d in found
    )
    return ", ".join(f"{name} {n}" for name, n in names.most_common(3))


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Findings on honest files."""
    honest = [row for row in rows if row["flaw"] == "none"]
    if not honest:
        return ""
    files = sum(row["files"] for row in honest)
    found = sum(round(row["finding"]["value"] * row["files"]) for row in honest)
    return f"{found} of {files} sets of honest files end in a finding at α = 0.05."


MEASURE = Measure(run=measure, grid=CensusFilesGrid, needs_arm=False, summary=summary)
