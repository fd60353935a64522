"""``dpaudit audit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpaudit import registry
from dpaudit.audit import audit_sampler
from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.output import note
from dpaudit.cli.verdicts import audited, count_of, leave, write_page
from dpaudit.documents import of_result
from dpaudit.samplers.sandbox.policy import asking
from dpaudit.types import AuditResult, TestResult

__all__ = ["audit"]


def audit(
    sampler: str,
    *,
    samples: float,
    out: Path | None,
    also: str | None,
    output: str,
    claim: str | None,
    alpha: float,
    seed: str | None,
    sandbox: str | None,
    visible: Sequence[str],
    pass_env: Sequence[str],
    **options: Any,
) -> None:
    """Audit, print, write, and leave with the verdict's exit code."""
    count, formats = count_of(samples, what="values", example="1e7"), formats_of(also, out=out)
    formats = without_earlier(formats, out, others=(f"{name}.json" for name in registry.plugins("tests")))
    with asking(sandbox, visible=visible, passed=pass_env) as held:
        result = audited(
            lambda progress: audit_sampler(
                sampler, claim=claim, samples=count, alpha=alpha, seed=seed, progress=progress, **options
            ),
            drawing="values drawn",
            then="searching for hidden directions",
            total=count,
            nothing=lambda reason, seconds, provenance: AuditResult(
                verdict="inconclusive",
                reason=reason,
                sampler=sampler,
                claim=claim or "",
                alpha=alpha,
                tests=(),
                samples=0,
                samples_requested=count,
                dims=(),
                sandbox=held.reached,
                seconds=seconds,
                cannot_rule_out=(),
                provenance=provenance,
            ),
            out=out,
            also=formats,
            output=output,
            seed=seed,
            held=held,
        )
    document = of_result(result)
    if out is not None:
        write_page(document, out, also=formats)
        for found in result.tests:
            _save(found, out)
    from dpaudit.report import audit_table

    leave(document, lambda: audit_table(result), out=out, output=output)


def _save(test: TestResult, out: Path) -> None:
    """What a finding leaves behind for others to use, where its test knows how to write it."""
    save = getattr(registry.load("tests", test.name), "save", None) if test.finding and test.details else None
    if save is not None:
        path = out / f"{test.name}.json"
        path.unlink(missing_ok=True)
        save(test.details, path)
        note(f"recovered: {path}")
