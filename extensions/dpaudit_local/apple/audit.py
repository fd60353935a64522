"""The audit of a device from its files: what is configured, spent, submitted and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpaudit.findings import Finding
from dpaudit.provenance import collect
from dpaudit_local.apple.bits.estimates import Estimates
from dpaudit_local.apple.bits.shown import Shown
from dpaudit_local.apple.configuration.reading import read_configuration
from dpaudit_local.apple.configuration.resolving import resolve, unresolved
from dpaudit_local.apple.database.balances import check_balances
from dpaudit_local.apple.database.reading import read_database
from dpaudit_local.apple.differences import compare, effect
from dpaudit_local.apple.ledger import make_ledger
from dpaudit_local.apple.model import Configuration, Database
from dpaudit_local.apple.observed import Observed, Spending
from dpaudit_local.apple.quoting import path_text
from dpaudit_local.apple.reports.reading import read_reports
from dpaudit_local.apple.result import AppleResult, OlderConfiguration, Sizes, Stored

__all__ = ["audit_device"]

_MOST_FINDINGS = 1000
"""How many findings about report files are kept: a folder may hold millions of broken ones."""


def audit_device(
    config: Path, *, database: Path | None, reports: Path | None, against: Path | None, days: int
) -> AppleResult:
    """Audit a device's configuration, and what else is there of its files; reads only.

    ``against`` is the folder of an older configuration; ε is added up over ``days``.

    Raises:
        UsageError: a folder or file cannot be read at all; what is wrong in one is a finding.
    """
    configuration = read_configuration(config)
    findings = [*configuration.findings, *unresolved(configuration)]
    against_that, differences = None, None
    if against is not None:
        older = read_configuration(against)
        # what could not be read there cannot be compared, so its findings count as well
        findings += [Finding(f"the older {f.where}", f.message) for f in older.findings]
        against_that = OlderConfiguration(**_sizes(older), effect=effect(older, configuration))
        differences = compare(older, configuration)
    read = None if database is None else read_database(database)
    if read is not None:
        findings += [*read.findings, *check_balances(read, configuration)]
    observed, shown = None, tuple[Shown, ...]()
    if reports is not None:
        observed, shown = _submitted(reports, configuration, read, findings)
    return AppleResult(
        system="apple",
        verdict="finding" if any(f.serious for f in findings) else "no-finding",
        configuration=Sizes(**_sizes(configuration)),
        ledger=make_ledger(configuration, days=days),
        against=against_that,
        differences=differences,
        database=None if read is None else Stored(balances=read.balances, counts=read.counts),
        observed=observed,
        shown=shown,
        findings=tuple(findings),
        provenance=collect(seed="none", plugins=()),
    )


def _sizes(configuration: Configuration) -> dict[str, Any]:
    return {
        "folder": path_text(configuration.folder),
        "keys": len(configuration.keys),
        "properties": len(configuration.properties),
        "budgets": len(configuration.budgets),
    }


def _submitted(
    folder: Path, configuration: Configuration, database: Database | None, findings: list[Finding]
) -> tuple[Observed, tuple[Shown, ...]]:
    """What the reports submitted, and the ε that their bits show; reads each report once."""
    spending = Spending(configuration, database=database)
    estimates = Estimates(resolve(configuration))
    kept, more = 0, 0
    for report in read_reports(folder):
        spending.add(report)
        for segment in report.segments:
            estimates.add(segment)
        room = max(0, _MOST_FINDINGS - kept)
        findings += report.findings[:room]
        kept, more = kept + len(report.findings[:room]), more + len(report.findings[room:])
    if more:
        message = f"{more} more findings about single files; only the first {kept} are listed"
        findings.append(Finding("reports", message))
    shown = estimates.shown()
    observed = spending.observed(shown)
    findings += [finding for one in shown.values() for finding in one.findings]
    findings += observed.findings
    return observed, tuple(shown.values())
