"""Reads the daemon's database: balances, numbers of privatised records, and plain data.

The schema is Tang et al.'s, see ``schema``; of ZCMSRECORD the paper says only that it exists. Of
that table we need ZKEY, ZSUBMITTED and ZCREATIONDATE, and look for plain data.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpaudit.findings import Finding
from dpaudit.results.sqlite import DAMAGE, bound_steps, size_of, why
from dpaudit_local.apple.database.balances import odd_balances
from dpaudit_local.apple.database.opening import open_read_only
from dpaudit_local.apple.database.schema import (
    BITS,
    BUDGETS,
    CREATED,
    KEY,
    NEEDED,
    PLAIN,
    SKETCHES,
    STATE,
    from_coredata,
    has_columns,
    impossible_bit,
    plain_data,
    table_columns,
)
from dpaudit_local.apple.model import Balance, Database, RecordCount
from dpaudit_local.apple.quoting import quoted

__all__ = ["read_database"]

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
        balances = tuple(_guarded(BUDGETS, _balances, connection, findings, size))
        counts = tuple(
            c
            for table in (BITS, SKETCHES)
            for c in _guarded(table, _counts, connection, findings, size)
        )
    return Database(path, balances, counts, (*findings, *odd_balances(balances)))


def _guarded(
    table: str, read: Any, connection: sqlite3.Connection, findings: list[Finding], size: int
) -> Iterator[Any]:
    """Yield from ``read`` until the table turns out to be damaged, which is a finding."""
    try:
        bound_steps(connection, size=size)
        columns = table_columns(connection, table, findings)
        if columns:
            yield from read(connection, table, columns, findings)
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
    what = f"{KEY} AS k, {STATE} AS s, COUNT(*), MIN({CREATED}), MAX({CREATED}), COUNT({CREATED})"
    sums = f"SUM({plain_data(columns)}), SUM({impossible_bit(columns)})"
    query = (
        f"SELECT {what}, {sums} FROM {table} GROUP BY k, s ORDER BY k, s LIMIT {MOST_GROUPS + 1}"  # noqa: S608
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
            what = "have no ZKEY" if key is None else "have a ZSUBMITTED other than 0 and 1"
            findings.append(Finding(table, f"{whose}: {count} rows {what}; left out"))
        else:
            yield RecordCount(
                table, key, bool(state), count, from_coredata(first), from_coredata(last), plain
            )
