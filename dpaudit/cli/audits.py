"""``dpaudit audit``."""

from __future__ import annotations

from pathlib import Path

from dpaudit import registry
from dpaudit.audit.commands import command_line
from dpaudit.audit.nothing import nothing_drawn
from dpaudit.audit.options import AuditOptions
from dpaudit.audit.run import audit_named, search_seconds, shortened
from dpaudit.cli.earlier import refuse_another
from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.options import AuditCommand
from dpaudit.cli.output import note
from dpaudit.cli.progress import AuditProgress
from dpaudit.cli.verdicts import audited, leave, write_page
from dpaudit.documents import of_result
from dpaudit.samplers.identity import identify
from dpaudit.samplers.sandbox.policy import asking
from dpaudit.types import TestResult

__all__ = ["audit"]


def audit(sampler: str, *, claim: str | None, options: AuditOptions, common: AuditCommand) -> None:
    """Audit, print, write, and exit with the verdict's code."""
    out, formats = common.out, formats_of(common.also, out=common.out)
    command = command_line("audit", sampler, options, claim=claim)
    refuse_another(out, command)
    formats = without_earlier(
        formats, out, others=(f"{name}.json" for name in registry.plugins("tests"))
    )
    what = identify(sampler)
    with asking(common.sandbox, visible=common.visible or (), passed=common.pass_env or ()) as held:
        result = audited(
            lambda progress: audit_named(
                sampler, claim=claim, options=options, what=what, progress=progress
            ),
            command=command,
            shown=AuditProgress("values drawn", _search(options), total=options.samples),
            nothing=lambda reason, seconds: nothing_drawn(
                sampler,
                reason,
                claim=claim or "",
                options=options,
                sandbox=held.reached,
                what=what,
                seconds=seconds,
            ),
            out=out,
            also=formats,
            output=common.output,
            held=held,
            tests=options.tests,
        )
    document = of_result(result)
    if out is not None:
        write_page(document, out, also=formats)
        for found in result.tests:
            _save(found, out)
    if slow := shortened(result):
        note(f"{slow}; --time-limit gives it more")
    from dpaudit.report import audit_table

    leave(
        document,
        lambda: audit_table(result, verbose=common.verbose),
        out=out,
        output=common.output,
    )


def _search(options: AuditOptions) -> str:
    limit = search_seconds(options)
    within = "until the time limit" if limit is None else f"at most {limit:.2g} s"
    return f"all values drawn; tests, then a search for directions, {within}"


def _save(test: TestResult, out: Path) -> None:
    """Write what a finding recovered, such as a key, if its test has a ``save``."""
    if not (test.finding and test.details):
        return
    save = getattr(registry.load("tests", test.name), "save", None)
    if save is not None:
        path = out / f"{test.name}.json"
        path.unlink(missing_ok=True)
        save(test.details, path)
        note(f"recovered: {path}")
