"""``dpaudit deployment``."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.output import note, out_console
from dpaudit.cli.verdicts import leave, write_page
from dpaudit.provenance import collect
from dpaudit.types import to_dict

if TYPE_CHECKING:
    from dpaudit.deployments.apple.model import Configuration, Database, Finding

__all__ = ["apple", "apple_scenario"]

_MOST_FINDINGS = 1000
"""Findings about report files that are kept: a folder may hold millions of broken ones."""


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
) -> None:
    """Read, add up, print, write, and leave with 1 where a finding is against the user."""
    from dpaudit.deployments.apple.configuration.reading import read_configuration
    from dpaudit.deployments.apple.configuration.resolving import unresolved
    from dpaudit.deployments.apple.database.balances import check_balances
    from dpaudit.deployments.apple.database.reading import read_database
    from dpaudit.deployments.apple.ledger import make_ledger
    from dpaudit.report.terminal.deployment import deployment_text

    formats = without_earlier(formats_of(also, out=out), out)
    configuration = read_configuration(config)
    findings = [*configuration.findings, *unresolved(configuration)]
    document: dict[str, Any] = {
        "kind": "deployment",
        "system": "apple",
        "verdict": "no-finding",
        "configuration": _sizes(configuration),
        "ledger": to_dict(make_ledger(configuration, days=days)),
        "against": None,
        "differences": None,
        "database": None,
        "observed": None,
        "shown": [],
    }
    if against is not None:
        document |= _changes(read_configuration(against), configuration, findings)
    read = None if database is None else read_database(database)
    if read is not None:
        findings += [*read.findings, *check_balances(read, configuration)]
        document["database"] = _plain({"balances": read.balances, "counts": read.counts})
    if reports is not None:
        document |= _submitted(reports, configuration, read, findings)
    document["findings"] = to_dict(findings)
    document["verdict"] = "finding" if any(f.serious for f in findings) else "no-finding"
    document["provenance"] = to_dict(collect(seed="none", plugins=()))
    if out is not None:
        write_page(document, out, also=formats)
    leave(document, partial(deployment_text, width=out_console().width), out=out, output=output)


def apple_scenario(config: Path, *, out: Path, days: int, platform: Literal["macos", "ios"], seed: str | None) -> None:
    """Simulate a device and write its database and reports."""
    from dpaudit.deployments.apple.configuration.reading import read_configuration
    from dpaudit.deployments.apple.simulation.scenario import make_scenario
    from dpaudit.randomness import KeyedStream

    stream = KeyedStream.fresh() if seed is None else KeyedStream.from_seed(seed)
    make_scenario(read_configuration(config), out=out, days=days, stream=stream, platform=platform)
    note(f"scenario: {out}")


def _sizes(configuration: Configuration) -> dict[str, Any]:
    from dpaudit.deployments.apple.quoting import path_text

    return {
        "folder": path_text(configuration.folder),
        "keys": len(configuration.keys),
        "properties": len(configuration.properties),
        "budgets": len(configuration.budgets),
    }


def _changes(old: Configuration, new: Configuration, findings: list[Finding]) -> dict[str, Any]:
    """What changed since ``old``, whose own findings count as well: what was left out cannot be compared."""
    from dpaudit.deployments.apple.differences import compare, effect
    from dpaudit.deployments.apple.model import Finding

    findings += [Finding(f"the older {f.where}", f.message) for f in old.findings]
    return {
        "against": {**_sizes(old), "effect": effect(old, new)},
        "differences": [{"what": d.what, **to_dict(d)} for d in compare(old, new)],
    }


def _submitted(
    folder: Path, configuration: Configuration, database: Database | None, findings: list[Finding]
) -> dict[str, Any]:
    """What the reports submitted, and the ε that their bits show; each report is read once and let go."""
    from dpaudit.deployments.apple.bits.estimates import Estimates
    from dpaudit.deployments.apple.configuration.resolving import resolve
    from dpaudit.deployments.apple.model import Finding
    from dpaudit.deployments.apple.observed import Spending
    from dpaudit.deployments.apple.reports.reading import read_reports

    spending, estimates = Spending(configuration, database=database), Estimates(resolve(configuration))
    kept, more = 0, 0
    for report in read_reports(folder):
        spending.add(report)
        for segment in report.segments:
            estimates.add(segment)
        room = max(0, _MOST_FINDINGS - kept)
        findings += report.findings[:room]
        kept, more = kept + len(report.findings[:room]), more + len(report.findings[room:])
    if more:
        findings.append(
            Finding("reports", f"{more} more findings about single files; only the first {kept} are listed")
        )
    shown = estimates.shown()
    observed = spending.observed(shown)
    findings += [finding for one in shown.values() for finding in one.findings]
    findings += observed.findings
    return {
        "observed": _plain(observed) | {"says": observed.says, "busiest": _plain(observed.busiest)},
        "shown": [_plain(one) | {"claimed": one.claimed} for one in shown.values()],
    }


def _plain(value: Any) -> Any:
    """As :func:`~dpaudit.types.to_dict`, with dates as ISO text."""
    return _dated(to_dict(value))


def _dated(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _dated(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_dated(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value
