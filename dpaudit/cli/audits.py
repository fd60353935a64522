"""``dpaudit audit``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from dpaudit import registry
from dpaudit.audit import audit_sampler
from dpaudit.cli.output import emit, note, progress_bar, write_json_line
from dpaudit.errors import SamplerError, UsageError
from dpaudit.provenance import collect
from dpaudit.types import TestResult, to_dict

__all__ = ["audit"]

_EXIT = {"no-finding": 0, "finding": 1, "inconclusive": 3}


def audit(
    sampler: str,
    *,
    samples: float,
    out: Path | None,
    output: str,
    claim: str | None,
    alpha: float,
    seed: str | None,
    **options: Any,
) -> None:
    """Audit, print, write, and leave with the verdict's exit code."""
    if not (1 <= samples <= 1e15) or samples != int(samples):
        raise UsageError(f"samples={samples}: must be a whole number of values, e.g. 1e7")
    started = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("values drawn", total=int(samples))
        try:
            result = audit_sampler(
                sampler,
                claim=claim,
                samples=int(samples),
                alpha=alpha,
                seed=seed,
                progress=lambda done, total: bar.update(
                    task,
                    completed=done,
                    total=total,
                    description="values drawn" if done < total else "searching for hidden directions",
                ),
                **options,
            )
        except SamplerError as error:
            if output != "json":
                raise
            write_json_line(_inconclusive(sampler, claim, alpha, seed, time.monotonic() - started, error))
            raise typer.Exit(error.exit_code) from error
    document = to_dict(result)
    for test in document["tests"]:
        test["details"].pop("w", None)  # a recovered secret goes to a file of its own, or nowhere
    if out is not None:
        _write(out, document)
        for found in result.tests:
            _save(found, out)
    if output == "json":
        write_json_line(document)
    else:
        from dpaudit.report import audit_table

        emit(audit_table(document))
        if out is not None:
            note(f"report: {out / 'report.html'}")
    raise typer.Exit(_EXIT[result.verdict])


def _save(test: TestResult, out: Path) -> None:
    """What a finding leaves behind for others to use, where its test knows how to write it."""
    save = getattr(registry.load("tests", test.name), "save", None) if test.finding and test.details else None
    if save is not None:
        path = out / f"{test.name}.json"
        path.unlink(missing_ok=True)
        save(test.details, path)
        note(f"recovered: {path}")


def _inconclusive(
    sampler: str, claim: str | None, alpha: float, seed: str | None, seconds: float, error: SamplerError
) -> dict[str, Any]:
    return {
        "verdict": "inconclusive",
        "reason": str(error),
        "sampler": sampler,
        "claim": claim,
        "alpha": alpha,
        "tests": [],
        "samples": 0,
        "seconds": seconds,
        "cannot_rule_out": [],
        "provenance": to_dict(collect(seed=str(seed), plugins=())),
    }


def _write(out: Path, document: dict[str, Any]) -> None:
    from dpaudit.report import write_json, write_report

    try:
        out.mkdir(parents=True, exist_ok=True)
        page = {"kind": "audit", "result": document}
        write_json(page, out / "result.json")
        write_report(page, out / "report.html")
    except OSError as error:
        raise UsageError(f"out={out}: cannot be written ({error.strerror}); choose another --out") from error
