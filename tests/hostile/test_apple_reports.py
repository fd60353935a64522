"""Hostile report files and databases of Apple's deployment."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from collections import Counter
from pathlib import Path

from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutated
from hostile.mutated_values import with_odd_fields
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.deployments.apple.bits.estimates import Estimates
from dpaudit.deployments.apple.configuration.reading import read_configuration
from dpaudit.deployments.apple.configuration.resolving import resolve
from dpaudit.deployments.apple.database.balances import check_balances
from dpaudit.deployments.apple.database.reading import read_bits, read_database, read_sketches
from dpaudit.deployments.apple.observed import Spending
from dpaudit.deployments.apple.reports.reading import read_reports

DATA = Path(__file__).parents[1] / "data" / "apple"
CONFIGURATION = read_configuration(DATA / "10.12.3")
REPORTS = sorted(
    p for p in (DATA / "reports").rglob("*") if p.name.endswith((".dpsub", ".json.anon"))
)
RECORDS = (
    b"818,165,+1", b"-1,-1,+2", b"1e9,1,+1", b"9" * 400, b",,,", b"19802,00FF", b"\\ud800", b"NaN",
    b"[" * 2000,
)  # fmt: skip


def reports_door(folder):
    """What ``dpaudit deployment apple --reports`` does; how many segments it took in."""
    spending = Spending(CONFIGURATION, database=None)
    estimates = Estimates(resolve(CONFIGURATION))
    segments = 0
    for report in read_reports(folder):
        spending.add(report)
        segments += len(report.segments)
        for segment in report.segments:
            estimates.add(segment)
    spending.observed(estimates.shown())
    return segments


def test_mutated_reports(tmp_path):
    read, valid = Counter(), [path.read_bytes() for path in REPORTS]
    assert reports_door(DATA / "reports") > 0

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        rng = random.Random(number)
        which = rng.randrange(len(valid))
        data = valid[which]
        with contextlib.suppress(ValueError):
            if rng.randrange(2):
                data = json.dumps(with_odd_fields(rng, json.loads(data))).encode()
        data = mutated(rng, data, others=valid, words=RECORDS) if data is valid[which] else data
        (tmp_path / "2017-08-08-082230.dpsub").write_bytes(data)
        segments = []
        assert refuses_or_reads(lambda: segments.append(reports_door(tmp_path)), size=len(data))
        read[segments[0] > 0] += 1

    try_one()
    print("with segments", read[True], "without", read[False])
    assert read[True]
    assert read[False]


def database_door(path):
    found = read_database(path)
    check_balances(found, CONFIGURATION)
    return (
        sum(1 for _ in read_bits(path)) + sum(1 for _ in read_sketches(path)) + len(found.balances)
    )


def test_a_schema_that_sqlite_quotes_does_not_steer_the_terminal(tmp_path):
    path = tmp_path / "d.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / "database.sql").read_text())
    data = path.read_bytes()
    path.write_bytes(data.replace(b"Z_PK INTEGER", b"Z_PK\x1b[2J\x1b[H", 1))
    assert not refuses_or_reads(lambda: database_door(path), size=len(data))


def test_mutated_databases(tmp_path):
    path, read = tmp_path / "d.sqlite", Counter()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / "database.sql").read_text())
    valid = path.read_bytes()
    assert database_door(path) > 0

    @fuzzed
    @given(number=st.integers(0, 2**48))
    def try_one(number):
        rng = random.Random(number)
        path.write_bytes(valid)
        if rng.randrange(2):
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
                table = rng.choice(["ZPRIVACYBUDGETRECORD", "ZOBHRECORD"])
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                odd = rng.choice(
                    (None, 0.5, 1e308, -1, 2**62, "", "x", "1e999", b"\xff", b"", "\x1b[2J")
                )
                with contextlib.suppress(sqlite3.Error):
                    db.execute(f"UPDATE {table} SET {rng.choice(columns)} = ?", (odd,))
        else:
            path.write_bytes(mutated(rng, valid, words=(b"VIEW", b"\0" * 100)))
        read[refuses_or_reads(lambda: database_door(path), size=path.stat().st_size)] += 1

    try_one()
    print("read", read[True], "refused", read[False])
    assert read[True]
    assert read[False]
