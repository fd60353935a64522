"""The daemon's database: balances, numbers of privatised records, plain data, and their checks.

The tables are as in Tang et al. (Figures 1 and 2); of ZCMSRECORD the paper says only that it
exists. Of that table we need ZKEY, ZSUBMITTED and ZCREATIONDATE, and look for plain data.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dpaudit.findings import Finding
from dpaudit.results.sqlite import DAMAGE, bound_steps, plain_columns, size_of, why
from dpaudit_local.apple.model import Balance, Configuration, Database, RecordCount
from dpaudit_local.apple.quoting import quoted
from dpaudit_local.apple.sqlite_file import open_read_only

__all__ = [
    "BITS",
    "BUDGETS",
    "EPOCH",
    "SKETCHES",
    "check_balances",
    "from_coredata",
    "read_database",
]

EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
LATEST = 3_124_137_600
"""2100-01-01 in Core Data's seconds: later ones, and negative ones, are refused as out of range."""


def from_coredata(seconds: float) -> datetime | None:
    """The time, rounded to the microsecond; None if not a number of seconds in 2001 … 2099.

    >>> from_coredata(518421187.24894).isoformat()
    '2017-06-06T05:53:07.248940+00:00'
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not math.isfinite(seconds) or not 0 <= seconds < LATEST:
        return None
    return EPOCH + timedelta(seconds=seconds)


BUDGETS, BITS, SKETCHES = "ZPRIVACYBUDGETRECORD", "ZOBHRECORD", "ZCMSRECORD"

NEEDED = {"ZKEY", "ZSUBMITTED", "ZCREATIONDATE"}
"""Without these a table of records is not read."""
PLAIN = ("ZPLAINSEQUENCE", "ZPLAINFRAGMENT")
"""Columns that must be empty."""

KEY = "CASE WHEN typeof(ZKEY) = 'text' AND ZKEY <> '' THEN ZKEY END"
STATE = "CASE WHEN typeof(ZSUBMITTED) = 'integer' AND ZSUBMITTED IN (0, 1) THEN ZSUBMITTED END"
CREATED = (
    "CASE WHEN typeof(ZCREATIONDATE) IN ('integer', 'real') AND ZCREATIONDATE >= 0 "
    f"AND ZCREATIONDATE < {LATEST} THEN ZCREATIONDATE END"
)


def table_columns(
    connection: sqlite3.Connection, table: str, findings: list[Finding]
) -> frozenset[str]:
    """The columns' names in capitals; empty, with a finding, if it is not a plain table."""
    columns = plain_columns(connection, table)
    if columns is None:
        findings.append(
            Finding(table, "not a plain table (a view, virtual or with computed columns); not read")
        )
        return frozenset()
    names = frozenset(name.upper() for name in columns)
    if not names:
        findings.append(Finding(table, "no such table; its records are unknown"))
    return names


def has_columns(
    table: str, columns: frozenset[str], needed: set[str], findings: list[Finding]
) -> bool:
    """Whether all ``needed`` columns are there; otherwise a finding."""
    missing = sorted(needed - columns)
    if missing:
        findings.append(Finding(table, f"no column {', '.join(missing)}; the table is not read"))
    return not missing


def plain_data(columns: frozenset[str]) -> str:
    """SQL: 1 if a row holds plain data, else 0."""
    conditions = [f"({c} IS NOT NULL AND length({c}) > 0)" for c in PLAIN if c in columns]
    return " OR ".join(conditions) or "0"


def impossible_bit(columns: frozenset[str]) -> str:
    """SQL: 1 if a position is not a whole number from 0, or a value neither 0 nor 1."""
    bounds = (("ZSEQUENCEBITPOSITION", "< 0"), ("ZSEQUENCEBITVALUE", "NOT IN (0, 1)"))
    bad = [f"(typeof({c}) <> 'integer' OR {c} {rule})" for c, rule in bounds if c in columns]
    return " OR ".join(bad) or "0"


MOST_GROUPS = 10_000
"""The most balances, or pairs of key and state, read from one table; a daemon has few."""


def read_database(path: Path) -> Database:
    """Read balances and counts in one read-only transaction; memory does not grow with the rows.

    Invalid data are a finding and left out: a missing table or column, rows of the wrong type,
    times outside 2001 … 2099, rows without key or state. Rows with plain data are a serious
    finding. A damaged table is also a finding, and the others are still read.

    Raises:
        UsageError: nothing can be read: not a plain file, not SQLite, locked for 2 s, damaged from
            the start.
    """
    findings: list[Finding] = []
    with open_read_only(path) as connection:
        size = size_of(path)
        balances = tuple(_read_table(BUDGETS, _balances, connection, findings, size))
        counts = tuple(
            c
            for table in (BITS, SKETCHES)
            for c in _read_table(table, _counts, connection, findings, size)
        )
    return Database(path, balances, counts, (*findings, *odd_balances(balances)))


def _read_table(
    table: str, reader: Any, connection: sqlite3.Connection, findings: list[Finding], size: int
) -> Iterator[Any]:
    """Yield from ``reader`` until the table turns out to be damaged, which is a finding."""
    try:
        bound_steps(connection, size=size)
        columns = table_columns(connection, table, findings)
        if columns:
            yield from reader(connection, table, columns, findings)
    except DAMAGE as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise
        message = f"cannot be read to its end ({why(error)}); the rest is not counted"
        findings.append(Finding(table, message))


def _balances(
    connection: sqlite3.Connection, table: str, columns: frozenset[str], findings: list[Finding]
) -> Iterator[Balance]:
    if not has_columns(
        table, columns, {"ZKEY", "ZBALANCE", "ZCREATIONDATE", "ZLASTUPDATE"}, findings
    ):
        return
    number = "Z_PK" if "Z_PK" in columns else "NULL"
    columns_read = f"{number}, ZKEY, ZBALANCE, ZCREATIONDATE, ZLASTUPDATE"
    query = f"SELECT {columns_read} FROM {table} ORDER BY 1 LIMIT {MOST_GROUPS + 1}"  # noqa: S608
    rows = connection.execute(query)
    for n, (number, key, balance, created, updated) in enumerate(rows):
        if n == MOST_GROUPS:
            findings.append(Finding(table, f"more than {MOST_GROUPS} rows; the rest is not read"))
            return
        born, last = from_coredata(created), from_coredata(updated)
        wrong = [
            name
            for name, bad in (
                ("ZKEY", not isinstance(key, str) or not key),
                ("ZBALANCE", not isinstance(balance, int)),
                ("ZCREATIONDATE", born is None),
                ("ZLASTUPDATE", last is None),
            )
            if bad
        ]
        if wrong or born is None or last is None:
            row = f"row {n + 1 if number is None else number}"
            whose = quoted(key) if isinstance(key, str) else row
            rule = "missing, of another type or out of range; left out"
            findings.append(Finding(table, f"{whose}: {', '.join(wrong)} {rule}"))
        else:
            yield Balance(key, balance, born, last)


def _counts(
    connection: sqlite3.Connection, table: str, columns: frozenset[str], findings: list[Finding]
) -> Iterator[RecordCount]:
    if not has_columns(table, columns, NEEDED, findings):
        return
    lacking = [name for name in PLAIN if name not in columns]
    if lacking:
        unknown = "whether plain data is kept elsewhere is unknown"
        findings.append(Finding(table, f"no column {', '.join(lacking)}; {unknown}"))
    groups = f"{KEY} AS k, {STATE} AS s, COUNT(*), MIN({CREATED}), MAX({CREATED}), COUNT({CREATED})"
    sums = f"SUM({plain_data(columns)}), SUM({impossible_bit(columns)})"
    query = (
        f"SELECT {groups}, {sums} FROM {table} GROUP BY k, s ORDER BY k, s LIMIT {MOST_GROUPS + 1}"  # noqa: S608
    )
    rows = connection.execute(query)
    for n, (key, state, count, first, last, timed, plain, wrong) in enumerate(rows):
        if n == MOST_GROUPS:
            message = f"more than {MOST_GROUPS} pairs of key and state; the rest is not counted"
            findings.append(Finding(table, message))
            return
        whose = "rows without a key" if key is None else quoted(key)
        if plain:
            message = f"{whose}: {plain} of {count} rows hold the plain sequence or fragment"
            findings.append(Finding(table, message, serious=True))
        if timed < count:
            message = f"{whose}: {count - timed} of {count} rows have no time in 2001 … 2099"
            findings.append(Finding(table, message))
        if wrong:
            message = f"{whose}: {wrong} of {count} rows have an impossible bit or position"
            findings.append(Finding(table, message))
        if key is None or state is None:
            error = "have no ZKEY" if key is None else "have a ZSUBMITTED other than 0 and 1"
            findings.append(Finding(table, f"{whose}: {count} rows {error}; left out"))
        else:
            yield RecordCount(
                table, key, bool(state), count, from_coredata(first), from_coredata(last), plain
            )


_DAY = timedelta(days=1)
_CLOCK = timedelta(milliseconds=1)


def odd_balances(balances: Iterable[Balance]) -> tuple[Finding, ...]:
    """Inconsistencies of these rows under any configuration.

    Negative balances, duplicate names, updates before the creation, and the jump that Tang et al.
    saw twice and could not explain (§A.2): a balance that equals the days from ZCREATIONDATE to
    ZLASTUPDATE. Ordinary use can also lead to that number, so it is not proof.
    """
    balances = tuple(balances)
    messages = [
        f"{quoted(key)} has {n} rows; each is shown, and which one the daemon uses is unknown"
        for key, n in Counter(b.key for b in balances).items()
        if n > 1
    ]
    for row in balances:
        name, lived = quoted(row.key), row.updated - row.created
        if row.balance < 0:
            messages.append(
                f"{name}: the balance is {row.balance}; "
                "nothing is submitted until it is positive again"
            )
        days = row.balance if 0 <= row.balance < 10**6 else 0  # of more, a timedelta overflows
        if lived < timedelta(0):
            messages.append(f"{name}: last updated before it was created")
        elif lived >= _DAY and abs(lived - days * _DAY) <= _CLOCK:
            messages.append(
                f"{name}: the balance {row.balance} equals (ZLASTUPDATE − ZCREATIONDATE)/86400, "
                "the jump that Tang et al. (§A.2) could not explain; or chance"
            )
    return tuple(Finding(BUDGETS, message) for message in messages)


def check_balances(database: Database, configuration: Configuration) -> tuple[Finding, ...]:
    """Balances that are impossible under ``configuration``.

    A budget starts with SessionAmount and gains SessionAmount for every whole SessionSeconds up to
    ZLASTUPDATE (Figure 19), so it holds at most (⌊(ZLASTUPDATE − ZCREATIONDATE)/SessionSeconds⌋ +
    1)·SessionAmount; more is a serious finding: somebody raised it (anyone with root can, §5.2), or
    it ran under another configuration. Budgets without a row, and rows without a budget, are
    findings. Not claimed: that a balance within the bound is honest, since submitted records are
    deleted from the database within a day.
    """
    findings = []
    for row in database.balances:
        budget = configuration.budgets.get(row.key)
        name = quoted(row.key)
        if budget is None:
            findings.append(Finding(BUDGETS, f"{name}: the configuration has no such budget"))
            continue
        if not (math.isfinite(budget.session_seconds) and budget.session_seconds > 0):
            message = f"{name}: SessionSeconds={budget.session_seconds:g}: nothing to compare with"
            findings.append(Finding(BUDGETS, message))
            continue
        lived = max(0.0, (row.updated - row.created + _CLOCK).total_seconds())
        periods = int(lived // budget.session_seconds)
        most = (periods + 1) * budget.session_amount
        if row.balance > most:
            message = (
                f"{name}: the balance is {row.balance}, but {budget.session_amount} at first and "
                f"{budget.session_amount} every {budget.session_seconds:g} s cannot give more than "
                f"{most} in {periods} periods"
            )
            findings.append(Finding(BUDGETS, message, serious=True))
    keys = {row.key for row in database.balances}
    findings += [
        Finding(BUDGETS, f"{quoted(name)}: the configuration's budget has no row")
        for name in configuration.budgets
        if name not in keys
    ]
    return tuple(findings)
