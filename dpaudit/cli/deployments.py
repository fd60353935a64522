"""``dpaudit deployment``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.output import note
from dpaudit.cli.verdicts import exit_with_verdict, write_result
from dpaudit.describing import describe
from dpaudit.errors import UsageError
from dpaudit.provenance import collect

if TYPE_CHECKING:
    from dpaudit.deployments.apple.bits.shown import Shown
    from dpaudit.deployments.apple.model import Configuration, Database, Finding
    from dpaudit.deployments.apple.observed import Observed
    from dpaudit.deployments.attribution.run import Files

__all__ = ["apple", "apple_scenario", "attribution", "census"]

_MOST_FINDINGS = 1000
"""How many findings about report files are kept: a folder may hold millions of broken ones."""


def apple(
    config: Path,
    *,
    database: Path | None,
    reports: Path | None,
    against: Path | None,
    days: int,
    out: Path | None,
    also: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Audit the files, print, write, and exit with 1 if a finding is against the user."""
    from dpaudit.deployments.apple.bits.shown import Shown
    from dpaudit.deployments.apple.configuration.reading import read_configuration
    from dpaudit.deployments.apple.configuration.resolving import unresolved
    from dpaudit.deployments.apple.database.balances import check_balances
    from dpaudit.deployments.apple.database.reading import read_database
    from dpaudit.deployments.apple.differences import compare, effect
    from dpaudit.deployments.apple.ledger import make_ledger
    from dpaudit.deployments.apple.model import Finding
    from dpaudit.deployments.apple.result import AppleResult, OlderConfiguration, Sizes, Stored

    formats = without_earlier(formats_of(also, out=out), out)
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
    result = AppleResult(
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
    _exit(result, out, formats, output, verbose=verbose)


def apple_scenario(
    config: Path, *, out: Path, days: int, platform: Literal["macos", "ios"], seed: str | None
) -> None:
    """Simulate a device and write its database and reports."""
    from dpaudit.deployments.apple.configuration.reading import read_configuration
    from dpaudit.deployments.apple.simulation.scenario import make_scenario
    from dpaudit.randomness import KeyedStream

    stream = KeyedStream.fresh() if seed is None else KeyedStream.from_seed(seed)
    make_scenario(read_configuration(config), out=out, days=days, stream=stream, platform=platform)
    note(f"scenario: {out}")


def attribution(
    files: Files,
    *,
    epsilon: float,
    event_epsilon: float,
    alpha: float,
    seed: str | None,
    out: Path | None,
    also: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Audit recorded reports, print, write, and exit with the verdict's code."""
    from dpaudit.audit.options import fresh_seed
    from dpaudit.audit.recorded import audit_values
    from dpaudit.deployments.attribution.run import audit_attribution

    _check_level(alpha)
    formats = without_earlier(formats_of(also, out=out), out)
    result = audit_attribution(
        files,
        epsilon=epsilon,
        event_epsilon=event_epsilon,
        alpha=alpha,
        seed=fresh_seed(seed),
        battery=audit_values,
    )
    _exit(result, out, formats, output, verbose=verbose)


def census(
    nmf: list[str],
    *,
    zeros: Path | None,
    sums: bool,
    alpha: float,
    out: Path | None,
    also: str | None,
    output: str,
    verbose: bool,
) -> None:
    """Audit noisy measurement files, print, write, and exit with the verdict's code."""
    from dpaudit.cli.progress import AuditProgress
    from dpaudit.deployments.census.audit import audit_files
    from dpaudit.deployments.census.zeros import read_rules

    _check_level(alpha)
    formats = without_earlier(formats_of(also, out=out), out)
    rules = () if zeros is None else read_rules(zeros)
    with AuditProgress("files read", "computing the tests", total=0) as progress:
        result = audit_files(
            nmf,
            alpha=alpha,
            provenance=collect(seed="none", plugins=()),
            rules=rules,
            sums=sums,
            progress=progress,
        )
    _exit(result, out, formats, output, verbose=verbose)


def _exit(
    result: object, out: Path | None, formats: Sequence[str], output: str, *, verbose: bool
) -> NoReturn:
    report = describe(result)
    if out is not None:
        write_result(report, out, also=formats)
    exit_with_verdict(report, out=out, output=output, verbose=verbose)


def _check_level(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: must lie strictly between 0 and 1; the default is 0.01")


def _sizes(configuration: Configuration) -> dict[str, Any]:
    from dpaudit.deployments.apple.quoting import path_text

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
    from dpaudit.deployments.apple.bits.estimates import Estimates
    from dpaudit.deployments.apple.configuration.resolving import resolve
    from dpaudit.deployments.apple.model import Finding
    from dpaudit.deployments.apple.observed import Spending
    from dpaudit.deployments.apple.reports.reading import read_reports

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
