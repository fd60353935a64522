"""How often the audit of whitened noise accuses an honest DP-FTRL run, and finds a flawed one."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpaudit import registry
from dpaudit.audit import audit_sampler
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid, Table
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval
from dpaudit.randomness import KeyedStream
from dpaudit_deployments.ftrl.factorisation import Factorisation, factorisation

__all__ = ["MEASURE", "Correlated", "WhitenedGrid", "flawed", "gather", "measure", "summary"]

Matrix = npt.NDArray[np.float64]
Flaw = Literal[
    "none", "identity", "other band", "two steps", "two restarts", "missing node", "float32"
]


class Correlated(Table, frozen=True):
    """A factorisation by its name; ``bands`` and ``restart`` as it takes them."""

    bands: int = 0
    restart: int = 0

    def made(self, steps: int, *, bands: int | None = None) -> Factorisation:
        """The factorisation of ``steps`` steps, with other ``bands`` if given."""
        own = self.bands if bands is None else bands
        return factorisation(self.name, steps=steps, bands=own, restart=self.restart)


class WhitenedGrid(Grid, frozen=True):
    """A recording of ``steps`` × ``dim`` with one ``flaw``; ``batch`` only distinguishes cells."""

    correlated: Correlated
    flaw: Flaw
    steps: int
    dim: int
    alpha: float
    without: tuple[str, ...] = ()
    batch: int = 0


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The findings of ``trials`` audits of recordings, each with fresh noise, through files."""
    del arm
    grid, trials = cell.grid(WhitenedGrid), cell.settings["trials"]
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    tests = tuple(name for name in registry.plugins("tests") if name not in grid.without)
    claimed = grid.correlated.made(grid.steps)
    by, findings = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        noise, public = Path(folder, "noise.npy"), Path(folder, "C.npy")
        np.save(public, claimed.whitening)
        for i in range(trials):
            np.save(noise, flawed(grid, claimed, stream.child("recording", i).numpy()))
            result = audit_sampler(
                f"whitened:{noise};{public}",
                claim="gaussian:sigma=1",
                samples=grid.steps * grid.dim,
                alpha=grid.alpha,
                seed=f"{cell.settings['seed']}/{cell.id}/{i}",
                tests=tests,
            )
            findings += result.verdict == "finding"
            by.update(test.name for test in result.tests if test.finding)
    return {"findings": findings, "by": dict(sorted(by.items())), "tests": len(tests)}


def flawed(grid: WhitenedGrid, claimed: Factorisation, rng: np.random.Generator) -> Matrix:
    """A recording (steps, dim) of noise that claims to be D·Z of ``claimed``.

    ``identity``: without correlation. ``other band``: of a C with one band fewer. ``two steps``: a
    row of Z twice in one run. ``two restarts``: all of Z of the first restart again in the second.
    ``missing node``: a row of Z is zeros. ``float32``: honest, but recorded in float32.
    """
    rows = len(claimed.strategy)
    z = rng.standard_normal((rows, grid.dim))
    how = claimed
    if grid.flaw == "two steps":
        one, other = rng.choice(rows // 2, 2, replace=False)
        z[one] = z[other]
    elif grid.flaw == "two restarts":
        per = rows * grid.correlated.restart // grid.steps
        z[per : 2 * per] = z[:per]
    elif grid.flaw == "missing node":
        z[rng.integers(rows)] = 0
    elif grid.flaw == "identity":
        how = factorisation("identity", steps=grid.steps)
        z = z[: grid.steps]
    elif grid.flaw == "other band":
        how = grid.correlated.made(grid.steps, bands=grid.correlated.bands - 1)
    found: Matrix = how.decoder @ z
    return found.astype(np.float32) if grid.flaw == "float32" else found


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per factorisation and flaw, from rows of one batch each."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["correlated"], row["flaw"]), []).append(row)
    return [_joined(some) for some in groups.values()]


def _joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by = Counter[str]()
    for row in rows:
        by.update(row["by"])
    audits = sum(row["trials"] for row in rows)
    findings = sum(row["findings"] for row in rows)
    most = sorted(by.items(), key=lambda item: (-item[1], item[0]))[:3]
    return {
        **rows[0],
        "batch": len(rows),
        "trials": audits,
        "audits": audits,
        "findings": findings,
        "share": interval(findings, audits),
        "by": dict(sorted(by.items())),
        "found_by": ", ".join(f"{name} {k}" for name, k in most) or None,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share of honest recordings that are accused, and of flawed ones that are found."""
    joined = gather(rows)
    honest = [row for row in joined if row["flaw"] == "none"]
    bad = [row for row in joined if row["flaw"] not in ("none", "float32")]
    parts = []
    for some, what in ((honest, "honest recordings end"), (bad, "flawed ones end")):
        if some:
            findings, audits = (sum(row[k] for row in some) for k in ("findings", "audits"))
            share = interval(findings, audits)
            parts.append(
                f"{findings} of {audits} {what} in a finding at α = {some[0]['alpha']:g} "
                f"({100 * share['value']:.1f} % [{100 * share['low']:.1f}, "
                f"{100 * share['high']:.1f}])"
            )
    return "; ".join(parts) + "."


MEASURE = Measure(run=measure, grid=WhitenedGrid, needs_arm=False, gather=gather, summary=summary)
