"""``dpaudit mechanism``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from dpaudit.audit.epsilon import audit_mechanism
from dpaudit.cli.output import emit, note, progress_bar, write_json_line
from dpaudit.errors import SamplerError, UsageError
from dpaudit.provenance import collect
from dpaudit.types import to_dict

__all__ = ["mechanism"]

_EXIT = {"no-finding": 0, "finding": 1, "inconclusive": 3}


def mechanism(
    name: str,
    *,
    samples: float,
    out: Path | None,
    output: str,
    claim_epsilon: float,
    claim_delta: float,
    alpha: float,
    seed: str | None,
    **options: Any,
) -> None:
    """Audit, print, write, and leave with the verdict's exit code."""
    if not (1 <= samples <= 1e12) or samples != int(samples):
        raise UsageError(f"samples={samples}: must be a whole number of releases, e.g. 2e5")
    started = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("releases drawn", total=2 * int(samples))
        try:
            result = audit_mechanism(
                name,
                claim_epsilon=claim_epsilon,
                claim_delta=claim_delta,
                samples=int(samples),
                alpha=alpha,
                seed=seed,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
                **options,
            )
        except SamplerError as error:
            if output != "json":
                raise
            write_json_line(
                {
                    "verdict": "inconclusive",
                    "reason": str(error),
                    "mechanism": name,
                    "claim_epsilon": claim_epsilon,
                    "claim_delta": claim_delta,
                    "alpha": alpha,
                    "tests": [],
                    "samples": 0,
                    "seconds": time.monotonic() - started,
                    "cannot_rule_out": [],
                    "provenance": to_dict(collect(seed=str(seed), plugins=())),
                }
            )
            raise typer.Exit(error.exit_code) from error
    document = to_dict(result)
    if out is not None:
        _write(out, document)
    if output == "json":
        write_json_line(document)
    else:
        from dpaudit.report import mechanism_table

        emit(mechanism_table(document))
        if out is not None:
            note(f"report: {out / 'report.html'}")
    raise typer.Exit(_EXIT[result.verdict])


def _write(out: Path, document: dict[str, Any]) -> None:
    from dpaudit.report import write_json, write_report

    try:
        out.mkdir(parents=True, exist_ok=True)
        page = {"kind": "mechanism", "result": document}
        write_json(page, out / "result.json")
        write_report(page, out / "report.html")
    except OSError as error:
        raise UsageError(f"out={out}: cannot be written ({error.strerror}); choose another --out") from error
