"""How often the audit accuses honest noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dpaudit import registry
from dpaudit.audit import AuditOptions, run_audit
from dpaudit.claims import Claim
from dpaudit.experiments.cell import Cell
from dpaudit.experiments.grid import Grid
from dpaudit.experiments.measure import Measure
from dpaudit.experiments.trials import interval
from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo import InProcessSampler, honest
from dpaudit_studies.zoo.honest import RECOVERABLE
from dpaudit_studies.zoo.specimen import GAUSSIAN

__all__ = ["MEASURE", "gather", "measure", "summary"]

_ALL = "all"


class CalibrationGrid(Grid, frozen=True):
    """An honest sampler by its name, and the tests ``without`` which it is audited.

    ``batch`` only distinguishes cells. Searches that would take minutes per audit have their false
    alarms measured separately.
    """

    sampler: str
    samples: int
    alpha: float
    without: tuple[str, ...] = ()
    batch: int = 0


def measure(cell: Cell, arm: None) -> dict[str, Any]:
    """The findings of ``trials`` audits of one sampler (:class:`CalibrationGrid`)."""
    del arm
    stream = KeyedStream.from_seed(cell.settings["seed"]).child("cell", cell.id)
    grid, trials = cell.grid(CalibrationGrid), cell.settings["trials"]
    tests = tuple(name for name in registry.plugins("tests") if name not in grid.without)
    claim, make = Claim.parse(GAUSSIAN), honest(grid.sampler)
    findings, by, inconclusive = 0, Counter[str](), 0
    for i in range(trials):
        with InProcessSampler(
            make, name=grid.sampler, stream=stream.child("sampler", i)
        ) as sampler:
            options = AuditOptions(
                samples=grid.samples,
                alpha=grid.alpha,
                seed=f"{cell.settings['seed']}/{cell.id}/{i}",
                tests=tests,
                allow_predictable=grid.sampler in RECOVERABLE,
            )
            result = run_audit(sampler, claim=claim, options=options)
        findings += result.verdict == "finding"
        inconclusive += result.verdict == "inconclusive"
        by.update(test.name for test in result.tests if test.finding)
    return _counted(findings, trials, by, grid.alpha) | {
        "inconclusive": inconclusive,
        "tests": len(tests),
    }


def _counted(findings: int, audits: int, by: Mapping[str, int], alpha: float) -> dict[str, Any]:
    share = interval(findings, audits)
    return {
        "audits": audits,
        "findings": findings,
        "share": share,
        "by": dict(sorted(by.items())),
        "found_by": ", ".join(
            f"{name} {k}" for name, k in sorted(by.items(), key=lambda item: (-item[1], item[0]))
        )
        or None,
        "within": share["low"] <= alpha,
    }


def gather(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per sampler, and one for all of them, from rows of one batch each."""
    if not rows:
        return []
    groups = {
        name: [row for row in rows if row["sampler"] == name]
        for name in dict.fromkeys(r["sampler"] for r in rows)
    }
    return [_joined(name, some) for name, some in (*groups.items(), (_ALL, list(rows)))]


def _joined(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by = Counter[str]()
    for row in rows:
        by.update(row["by"])
    counted = _counted(
        sum(r["findings"] for r in rows), sum(r["audits"] for r in rows), by, rows[0]["alpha"]
    )
    return {
        **rows[0],
        **counted,
        "sampler": name,
        "batch": len(rows),
        "trials": counted["audits"],
        "inconclusive": sum(r["inconclusive"] for r in rows),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share of all audits, and whether its interval reaches below α."""
    joined = gather([row for row in rows if row["sampler"] != _ALL])
    total = joined[-1]
    share, alpha = total["share"], total["alpha"]
    percent = f"{100 * share['value']:.2f} % [{100 * share['low']:.2f}, {100 * share['high']:.2f}]"
    verdict = "reaches below" if total["within"] else "lies ABOVE"
    single = [row["sampler"] for row in joined[:-1] if not row["within"]]
    text = (
        f"{total['findings']} of {total['audits']} audits of honest noise end in a finding at "
        f"α = {alpha:g}: {percent}; the interval {verdict} {alpha:g}."
    )
    return text + (f" By itself above: {', '.join(single)}." if single else "")


MEASURE = Measure(
    run=measure, grid=CalibrationGrid, needs_arm=False, gather=gather, summary=summary
)
