"""What the audit says of a sampler of another language, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.audit.battery import SEARCH
from dpaudit.audit.result import AuditResult
from dpaudit.claims import Claim
from dpaudit.errors import MissingExtraError, SamplerError, SpecError
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.randomness import KeyedStream
from dpaudit_studies.real_samplers import CASES
from dpaudit_studies.real_samplers.programs import LANGUAGES
from dpaudit_studies.real_samplers.sampler import ProgramSampler

__all__ = ["MEASURE", "measure", "summary"]

_NOT_INSTALLED = "not installed"


class RealGrid(Grid, frozen=True):
    """A sampler by name (``dpaudit_studies.real_samplers.CASES``) and its audit.

    Without the search for a pancake's key: these have none. Each ``batch`` has seeds of its own.
    """

    sampler: str
    samples: int
    alpha: float
    batch: int = 0


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """One audit of a sampler (:class:`RealGrid`), for the claim N(0, 1).

    What is not installed, or cannot be built, has a row that says so.

    Raises:
        SpecError: no such sampler.
    """
    del arm
    grid = cell.grid(RealGrid)
    if grid.sampler not in CASES:
        raise SpecError(f"sampler={grid.sampler}: choose one of {', '.join(CASES)}")
    case = CASES[grid.sampler]
    language = LANGUAGES[case.language]
    row = {
        "language": case.language,
        "version": case.version,
        "method": case.method,
        "generator": case.generator,
        "transform": case.transform,
    }
    stream = KeyedStream.from_seed(cell.settings["seed"]).child(case.name)
    seed = f"{cell.settings['seed']}/{case.name}"
    if grid.batch:
        seed, stream = f"{seed}/{grid.batch}", stream.child("batch", grid.batch)
    tests = tuple(name for name in registry.plugins("tests") if name != SEARCH)
    options = AuditOptions(
        samples=grid.samples, alpha=grid.alpha, seed=seed, tests=tests, all_values=True
    )
    began = time.monotonic()
    try:
        with ProgramSampler(
            (*language.command(), case.method),
            name=case.name,
            stream=stream,
            text=language.text,
        ) as sampler:
            result = run_audit(sampler, claim=Claim.parse("gaussian:sigma=1"), options=options)
    except MissingExtraError as error:
        return {**row, "verdict": _NOT_INSTALLED, "failed": str(error)}
    except SamplerError as error:
        return {**row, "verdict": "failed", "failed": str(error)}
    return {**row, **_shown(result), "seconds": time.monotonic() - began, "failed": None}


def _shown(result: AuditResult) -> dict[str, Any]:
    findings = [test for test in result.tests if test.finding]
    return {
        "verdict": result.verdict,
        "found": bool(findings),
        "cause": result.cause or None,
        "effect": f"{findings[0].name}: {findings[0].effect}" if findings else None,
        "by": [test.name for test in findings],
        "p_adjusted": min(test.p_adjusted for test in result.tests if not test.advisory),
        "values": result.samples,
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of those that ran are findings, and what did not run."""
    ran = [row for row in rows if row["verdict"] not in (_NOT_INSTALLED, "failed")]
    found = sum(row["verdict"] == "finding" for row in ran)
    languages = len({row["language"] for row in ran})
    text = f"{found} of {len(ran)} audits of {languages} languages and libraries are findings."
    for verdict, words in ((_NOT_INSTALLED, "Not installed"), ("failed", "Failed")):
        names = [f"{row['language']}: {row['method']}" for row in rows if row["verdict"] == verdict]
        text += f" {words}: {'; '.join(names)}." if names else ""
    return text


MEASURE = Measure(run=measure, grid=RealGrid, needs_arm=False, summary=summary)
