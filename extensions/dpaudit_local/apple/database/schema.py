"""The database's tables as in Tang et al. (Figures 1 and 2): SQL for valid cells, and times.

ZCMSRECORD's columns are ours, modelled on ZOBHRECORD: the paper has the schema of the other two.
"""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime, timedelta

from dpaudit.findings import Finding
from dpaudit.results.sqlite import plain_columns

__all__ = [
    "BITS",
    "BUDGETS",
    "CREATED",
    "EPOCH",
    "KEY",
    "LATEST",
    "NEEDED",
    "PLAIN",
    "SKETCHES",
    "STATE",
    "from_coredata",
    "has_columns",
    "impossible_bit",
    "plain_data",
    "table_columns",
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
        findings.append(Finding(table, "no such table; nothing is known of its records"))
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
    held = [f"({c} IS NOT NULL AND length({c}) > 0)" for c in PLAIN if c in columns]
    return " OR ".join(held) or "0"


def impossible_bit(columns: frozenset[str]) -> str:
    """SQL: 1 if a position is not a whole number from 0, or a value neither 0 nor 1."""
    bounds = (("ZSEQUENCEBITPOSITION", "< 0"), ("ZSEQUENCEBITVALUE", "NOT IN (0, 1)"))
    bad = [f"(typeof({c}) <> 'integer' OR {c} {rule})" for c, rule in bounds if c in columns]
    return " OR ".join(bad) or "0"
