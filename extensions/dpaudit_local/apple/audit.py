"""The audit of a device from its files: what is configured, spent, submitted and shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from dpaudit.findings import Finding
from dpaudit.provenance import collect
from dpaudit.report import Described
from dpaudit.types import Provenance, Verdict
from dpaudit_local.apple.bits.estimates import Estimates, ShownEpsilon
from dpaudit_local.apple.configuration import read_configuration, resolve, unresolved_findings
from dpaudit_local.apple.database import check_balances, read_database
from dpaudit_local.apple.differences import Difference, compare, effect
from dpaudit_local.apple.ledger import Ledger, make_ledger
from dpaudit_local.apple.model import Balance, Configuration, Database, RecordCount
from dpaudit_local.apple.observed import Observed, Spending
from dpaudit_local.apple.quoting import path_text
from dpaudit_local.apple.reports import read_reports

__all__ = ["AppleResult", "audit_device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A configuration's folder, and the number of its entries."""

    folder: str
    keys: int
    properties: int
    budgets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderConfiguration(Sizes):
    """The configuration to compare with; ``effect`` is one sentence on what the changes do."""

    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseContents:
    """The contents of the device's database."""

    balances: tuple[Balance, ...]
    counts: tuple[RecordCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppleResult(Described):
    """The configuration's ledger and, if given, an older one, the database and the reports.

    ``differences`` are from ``against``; ``shown`` is what the bits of ``observed`` records show,
    per key.
    """

    kind: ClassVar[str] = "deployment"

    system: Literal["apple"]
    verdict: Verdict
    configuration: Sizes
    ledger: Ledger
    against: OlderConfiguration | None
    differences: tuple[Difference, ...] | None
    database: DatabaseContents | None
    observed: Observed | None
    shown: tuple[ShownEpsilon, ...]
    findings: tuple[Finding, ...]
    provenance: Provenance


_MOST_FINDINGS = 1000
"""How many findings about report files are kept: a folder may hold millions of broken ones."""


def audit_device(
    config: Path, *, database: Path | None, reports: Path | None, against: Path | None, days: int
) -> AppleResult:
    """Audit a device's configuration, and what else is there of its files; reads only.

    ``against`` is the folder of an older configuration; ε is added up over ``days``.

    Raises:
        UsageError: a folder or file cannot be read at all; an error within one is a finding.
    """
    configuration = read_configuration(config)
    findings = [*configuration.findings, *unresolved_findings(configuration)]
    against_that, differences = None, None
    if against is not None:
        older = read_configuration(against)
        # what could not be read there cannot be compared, so its findings count as well
        findings += [Finding(f"the older {f.where}", f.message) for f in older.findings]
        against_that = OlderConfiguration(**_sizes(older), effect=effect(older, configuration))
        differences = compare(older, configuration)
    contents = None if database is None else read_database(database)
    if contents is not None:
        findings += [*contents.findings, *check_balances(contents, configuration)]
    observed, shown = None, tuple[ShownEpsilon, ...]()
    if reports is not None:
        observed, shown = _read_submissions(reports, configuration, contents, findings)
    return AppleResult(
        system="apple",
        verdict="finding" if any(f.serious for f in findings) else "no-finding",
        configuration=Sizes(**_sizes(configuration)),
        ledger=make_ledger(configuration, days=days),
        against=against_that,
        differences=differences,
        database=None
        if contents is None
        else DatabaseContents(balances=contents.balances, counts=contents.counts),
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


def _read_submissions(
    folder: Path, configuration: Configuration, database: Database | None, findings: list[Finding]
) -> tuple[Observed, tuple[ShownEpsilon, ...]]:
    """The sums of submitted ε, and the estimates from bits; reads each report once."""
    spending = Spending(configuration, database=database)
    estimates = Estimates(resolve(configuration))
    listed, more = 0, 0
    for report in read_reports(folder):
        spending.add(report)
        for segment in report.segments:
            estimates.add(segment)
        room = max(0, _MOST_FINDINGS - listed)
        findings += report.findings[:room]
        listed, more = listed + len(report.findings[:room]), more + len(report.findings[room:])
    if more:
        message = f"{more} more findings about single files; only the first {listed} are listed"
        findings.append(Finding("reports", message))
    shown = estimates.epsilons()
    observed = spending.summary(shown)
    findings += [finding for one in shown.values() for finding in one.findings]
    findings += observed.findings
    return observed, tuple(shown.values())
