"""A made-up device's life under a configuration: its database and its reports, in Apple's own formats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from dpaudit.deployments.apple.database.coredata import to_coredata
from dpaudit.deployments.apple.model import Configuration, ResolvedKey, Segment
from dpaudit.deployments.apple.quoting import path_text
from dpaudit.deployments.apple.simulation.daemon import Daemon, GeneratedReport, StoredRecord
from dpaudit.deployments.apple.simulation.privatising import KNOWN, Privatised, parameters_of, privatise
from dpaudit.deployments.apple.simulation.tasks import Platform
from dpaudit.deployments.apple.simulation.usage import draw_usage
from dpaudit.deployments.apple.simulation.writing import report_name, report_text, write_database
from dpaudit.errors import UsageError
from dpaudit.interfaces import Stream

__all__ = ["MOST_DAYS", "START", "Scenario", "make_scenario"]

START = datetime(2017, 1, 23, 9, 30, 15, 250_000, tzinfo=UTC)
"""The opt-in: on the day that macOS 10.12.3 appeared."""
MOST_DAYS = 3660


@dataclass(frozen=True, slots=True)
class Scenario:
    """What was simulated, to compare with what an audit reads."""

    database: Path
    reports: Path
    daemon: Daemon
    """As it stood in the end: balances, records in the database, report files on disk, all that was ever submitted."""
    texts: Mapping[int, str]
    """By a record's number: its text, of every record in the database or in a report file."""
    left_out: tuple[str, ...]
    """Keys of algorithms that are not known, and so not used."""


def make_scenario(
    configuration: Configuration,
    *,
    out: Path,
    days: int,
    stream: Stream,
    start: datetime = START,
    platform: Platform = "macos",
) -> Scenario:
    """Let an owner live for ``days`` days after opting in, and write ``out/database.sqlite`` and ``out/Reports/``.

    Usage is made up (:mod:`.usage`), the daemon's part is :class:`.Daemon`'s, and the bits are privatised with the
    mechanisms of ``dpaudit.local`` at the PrivacyParameter in use. As on a device, only what is still there in the end
    is written: report files of the last 30 days (7 on iOS), records that were not culled. As in §4.2.1 Search goes to
    another file than the rest (``.json.anon``); on iOS all reports do. The same stream writes the same bytes (the
    database: under one version of SQLite).

    Raises:
        UsageError: ``out`` exists and is not an empty folder, or cannot be made; days not from 1 to 3660; a configuration
            whose algorithms' parameters cannot be worked with.
    """
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"days={days}: from 1 to {MOST_DAYS}")
    daemon = Daemon(configuration, start=start, stream=stream, platform=platform)
    known = [key for key in daemon.keys.values() if key.properties.algorithm in KNOWN]
    for when, key in draw_usage(known, start=daemon.now, days=days, stream=stream):
        daemon.record(key, when)
    daemon.run_until(start + timedelta(days=days))
    privatised = _privatised(daemon, stream)
    _make_folder(out)
    scenario = Scenario(
        out / "database.sqlite",
        out / "Reports",
        daemon,
        {number: record.text for number, record in privatised.items()},
        tuple(name for name, key in daemon.keys.items() if key.properties.algorithm not in KNOWN),
    )
    scenario.reports.mkdir()
    for report in daemon.report_files:
        for name, segments in _files(report, daemon.keys, privatised, platform):
            (scenario.reports / name).write_text(report_text(daemon.version, segments), encoding="utf-8")
    rows = [(privatised[r.number].table, _row(r, privatised[r.number])) for r in daemon.records]
    write_database(scenario.database, balances=daemon.balances, records=rows)
    return scenario


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UsageError(f"out={path_text(out)}: not empty; give a new folder")
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"out={path_text(out)}: cannot be made a folder ({why}); give a new one") from None


def _privatised(daemon: Daemon, stream: Stream) -> dict[int, Privatised]:
    """Every record that is still to be seen, by number; each datum is privatised once."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for record in (*daemon.records, *(r for report in daemon.report_files for r in report.records)):
        numbers[record.key].add(record.number)
    made: dict[int, Privatised] = {}
    for key in sorted(numbers):
        wanted = sorted(numbers[key])
        records = privatise(daemon.keys[key], len(wanted), stream=stream.child("record", key))
        made.update(zip(wanted, records, strict=True))
    return made


def _files(
    report: GeneratedReport, keys: Mapping[str, ResolvedKey], privatised: Mapping[int, Privatised], platform: Platform
) -> Iterator[tuple[str, list[Segment]]]:
    """The files of one run of ReportGenerator: their names and segments."""
    texts: dict[str, list[str]] = defaultdict(list)
    for record in report.records:
        texts[record.key].append(privatised[record.number].text)
    files: dict[Literal[".dpsub", ".json.anon"], list[Segment]] = defaultdict(list)
    for name, records in texts.items():
        properties = keys[name].properties
        algorithm = properties.server_algorithm or properties.algorithm
        segment = Segment(name, algorithm, parameters_of(keys[name]), tuple(records))
        files[".json.anon" if platform == "ios" or properties.name == "Search" else ".dpsub"].append(segment)
    for ending, segments in files.items():
        yield report_name(report.created, ending), segments


def _row(record: StoredRecord, privatised: Privatised) -> dict[str, Any]:
    return {
        "Z_OPT": 2 if record.submitted else 1,
        "ZREPORTVERSION": record.version,
        "ZSUBMITTED": int(record.submitted),
        "ZCREATIONDATE": to_coredata(record.created),
        "ZKEY": record.key,
        **privatised.columns,
    }
