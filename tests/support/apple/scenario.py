"""A simulated device under a configuration: its database and reports, in Apple's formats."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from dpaudit.protocols import Stream
from dpaudit_local.apple.database import BITS, BUDGETS, EPOCH, SKETCHES
from dpaudit_local.apple.model import Balance, Configuration, ResolvedKey, Segment

from .daemon import (
    Daemon,
    GeneratedReport,
    Platform,
    StoredRecord,
)
from .privatising import (
    KNOWN,
    Privatised,
    parameters_of,
    privatise,
)

_USED = 4
"""The average number of keys in use that share properties: an owner types few languages."""
_WAKING = (7, 23)


def draw_usage(
    keys: Iterable[ResolvedKey], *, start: datetime, days: int, stream: Stream
) -> list[tuple[datetime, str]]:
    """The times and keys of data in ``days`` days after ``start``, in order of time.

    Of the keys that share their properties about four are used, at least one, each at its own rate,
    log-normal around two per day; data come from 7:00 to 23:00 UTC. All of it is made up, and drawn
    from ``stream``.
    """
    generator = stream.child("usage").numpy()
    kinds: dict[str, list[str]] = defaultdict(list)
    for resolved in keys:
        kinds[resolved.properties.name].append(resolved.key.name)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    end = start + timedelta(days=days)
    events = []
    for names in kinds.values():
        used = generator.random(len(names)) < _USED / len(names)
        used[generator.integers(len(names))] = True
        rates = generator.lognormal(0.7, 0.7, len(names))
        for name, rate, is_used in zip(names, rates.tolist(), used.tolist(), strict=True):
            if not is_used:
                continue
            for day, count in enumerate(generator.poisson(rate, days + 1).tolist()):
                for hours in sorted(generator.uniform(*_WAKING, count).tolist()):
                    when = midnight + timedelta(days=day, hours=hours)
                    if start <= when < end:
                        events.append((when, name))
    return sorted(events)


def to_coredata(when: datetime) -> float:
    """Seconds since 2001 as the nearest double; ``from_coredata`` returns the same microsecond."""
    return (when - EPOCH) / timedelta(seconds=1)


CREATE = {
    BUDGETS: "CREATE TABLE ZPRIVACYBUDGETRECORD ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, "
    "Z_OPT INTEGER, ZBALANCE INTEGER, ZCREATIONDATE TIMESTAMP, ZLASTUPDATE TIMESTAMP, "
    "ZKEY VARCHAR )",
    BITS: "CREATE TABLE ZOBHRECORD ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, "
    "ZREPORTVERSION INTEGER, ZSUBMITTED INTEGER, ZSEQUENCEBITPOSITION INTEGER, "
    "ZSEQUENCEBITVALUE INTEGER, ZFRAGMENTBITPOSITION INTEGER, ZFRAGMENTBITVALUE INTEGER, "
    "ZFRAGMENTPOSITION INTEGER, ZFRAGMENTWIDTH INTEGER, ZCREATIONDATE TIMESTAMP, ZKEY VARCHAR, "
    "ZPLAINSEQUENCE VARCHAR, ZPLAINFRAGMENT VARCHAR )",
    SKETCHES: "CREATE TABLE ZCMSRECORD ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, "
    "ZREPORTVERSION INTEGER, ZSUBMITTED INTEGER, ZSEQUENCEHASHINDEX INTEGER, "
    "ZSEQUENCESKETCH VARCHAR, ZFRAGMENTSKETCH VARCHAR, ZFRAGMENTPOSITION INTEGER, "
    "ZCREATIONDATE TIMESTAMP, ZKEY VARCHAR, ZPLAINSEQUENCE VARCHAR, ZPLAINFRAGMENT VARCHAR )",
}
"""The paper has the schema of the first two. ZCMSRECORD's is ours, modelled on ZOBHRECORD: the
function's index, the text before and after the colon in a report, and which fragment it is."""

ENTITIES = {BUDGETS: 9, BITS: 7, SKETCHES: 3}
"""Z_ENT, Core Data's number of a table, as in Figures 1 and 2; that of ZCMSRECORD is ours."""


def report_name(created: datetime, ending: Literal[".dpsub", ".json.anon"]) -> str:
    """A report file's name with its time in UTC."""
    return f"DifferentialPrivacy_{created:%Y-%m-%d-%H%M%S}_device{ending}"


def report_text(version: int, segments: Iterable[Segment]) -> str:
    """A report file's text."""
    document = {
        "version": version,
        "segments": [
            {
                "algorithm": s.algorithm,
                "key": s.key,
                "parameters": dict(s.parameters),
                "records": list(s.records),
            }
            for s in segments
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_database(
    path: Path, *, balances: Iterable[Balance], records: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """Write a new database; each of ``records`` is a table and its columns that are not NULL.

    Z_PK counts from 1 in every table, in the order given. The same input gives the same bytes,
    under one version of SQLite.
    """
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in CREATE.values():
            connection.execute(statement)
        for balance in balances:
            times = to_coredata(balance.created), to_coredata(balance.updated)
            cells = {"Z_OPT": 1, "ZBALANCE": balance.balance, "ZCREATIONDATE": times[0]}
            _insert(connection, BUDGETS, cells | {"ZLASTUPDATE": times[1], "ZKEY": balance.key})
        for table, columns in records:
            _insert(connection, table, columns)


def _insert(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> None:
    cells = {"Z_ENT": ENTITIES[table], **columns}
    names, marks = ", ".join(cells), ", ".join("?" * len(cells))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(cells.values()))


START = datetime(2017, 1, 23, 9, 30, 15, 250_000, tzinfo=UTC)
"""The opt-in, on the day that macOS 10.12.3 was released."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What was simulated, to compare with what an audit reads."""

    database: Path
    reports: Path
    daemon: Daemon
    """Its final state: balances, records, report files, and everything submitted."""
    texts: Mapping[int, str]
    """The text of every record in the database or a report file, by the record's number."""
    left_out: tuple[str, ...]
    """Keys of unknown algorithms, which are not used."""


def make_scenario(
    configuration: Configuration,
    *,
    out: Path,
    days: int,
    stream: Stream,
    start: datetime = START,
    platform: Platform = "macos",
) -> Scenario:
    """Simulate ``days`` days after the opt-in; write ``out/database.sqlite`` and ``out/Reports/``.

    Usage is made up (:func:`draw_usage`), :class:`.Daemon` is the daemon, and the bits are
    privatised with the mechanisms of ``dpaudit_local`` at the PrivacyParameter in use. As on a
    device, only what remains at the end is written: report files of the last 30 days (7 on iOS),
    records that were not culled. As in §4.2.1, Search goes to a separate file (``.json.anon``); on
    iOS all reports do. The same stream writes the same bytes (the database: under one version of
    SQLite).
    """
    daemon = Daemon(configuration, start=start, stream=stream, platform=platform)
    known = [key for key in daemon.keys.values() if key.properties.algorithm in KNOWN]
    for when, key in draw_usage(known, start=daemon.now, days=days, stream=stream):
        daemon.record(key, when)
    daemon.run_until(start + timedelta(days=days))
    privatised = _privatised(daemon, stream)
    out.mkdir(parents=True)
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
            (scenario.reports / name).write_text(
                report_text(daemon.version, segments), encoding="utf-8"
            )
    rows = [(privatised[r.number].table, _row(r, privatised[r.number])) for r in daemon.records]
    write_database(scenario.database, balances=daemon.balances, records=rows)
    return scenario


def _privatised(daemon: Daemon, stream: Stream) -> dict[int, Privatised]:
    """Every record that remains, by number; each datum is privatised once."""
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
    report: GeneratedReport,
    keys: Mapping[str, ResolvedKey],
    privatised: Mapping[int, Privatised],
    platform: Platform,
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
        anonymous = platform == "ios" or properties.name == "Search"
        files[".json.anon" if anonymous else ".dpsub"].append(segment)
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
