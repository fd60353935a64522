"""The database's tables as Tang et al. show them (Figures 1 and 2), and SQL for the cells of them that can be believed."""

from __future__ import annotations

import sqlite3

from dpaudit.deployments.apple.database.coredata import LATEST
from dpaudit.deployments.apple.model import Finding
from dpaudit.results.sqlite import plain_columns

__all__ = [
    "BITS",
    "BUDGETS",
    "CREATE",
    "CREATED",
    "KEY",
    "NEEDED",
    "PLAIN",
    "SKETCHES",
    "STATE",
    "has_columns",
    "impossible_bit",
    "plain_data",
    "table_columns",
]

BUDGETS, BITS, SKETCHES = "ZPRIVACYBUDGETRECORD", "ZOBHRECORD", "ZCMSRECORD"

CREATE = {
    BUDGETS: "CREATE TABLE ZPRIVACYBUDGETRECORD ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZBALANCE INTEGER, "
    "ZCREATIONDATE TIMESTAMP, ZLASTUPDATE TIMESTAMP, ZKEY VARCHAR )",
    BITS: "CREATE TABLE ZOBHRECORD ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZREPORTVERSION INTEGER, "
    "ZSUBMITTED INTEGER, ZSEQUENCEBITPOSITION INTEGER, ZSEQUENCEBITVALUE INTEGER, ZFRAGMENTBITPOSITION INTEGER, "
    "ZFRAGMENTBITVALUE INTEGER, ZFRAGMENTPOSITION INTEGER, ZFRAGMENTWIDTH INTEGER, ZCREATIONDATE TIMESTAMP, ZKEY VARCHAR, "
    "ZPLAINSEQUENCE VARCHAR, ZPLAINFRAGMENT VARCHAR )",
    SKETCHES: "CREATE TABLE ZCMSRECORD ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZREPORTVERSION INTEGER, "
    "ZSUBMITTED INTEGER, ZSEQUENCEHASHINDEX INTEGER, ZSEQUENCESKETCH VARCHAR, ZFRAGMENTSKETCH VARCHAR, "
    "ZFRAGMENTPOSITION INTEGER, ZCREATIONDATE TIMESTAMP, ZKEY VARCHAR, ZPLAINSEQUENCE VARCHAR, ZPLAINFRAGMENT VARCHAR )",
}
"""Of the first two the paper has the schema. ZCMSRECORD's is ours, by the pattern of ZOBHRECORD: the function's index, and
what stands after it in a report, before and behind the colon; and which fragment it is."""

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


def table_columns(connection: sqlite3.Connection, table: str, findings: list[Finding]) -> frozenset[str]:
    """The columns' names in capitals; nothing, and a finding, where it is no plain table."""
    columns = plain_columns(connection, table)
    if columns is None:
        findings.append(Finding(table, "not a plain table (a view, virtual or with computed columns); not read"))
        return frozenset()
    names = frozenset(name.upper() for name in columns)
    if not names:
        findings.append(Finding(table, "no such table; nothing is known of its records"))
    return names


def has_columns(table: str, columns: frozenset[str], needed: set[str], findings: list[Finding]) -> bool:
    """Whether all ``needed`` are there; a finding where not."""
    missing = sorted(needed - columns)
    if missing:
        findings.append(Finding(table, f"no column {', '.join(missing)}; the table is not read"))
    return not missing


def plain_data(columns: frozenset[str]) -> str:
    """SQL: 1 where a row holds plain data, else 0."""
    return " OR ".join(f"({c} IS NOT NULL AND length({c}) > 0)" for c in PLAIN if c in columns) or "0"


def impossible_bit(columns: frozenset[str]) -> str:
    """SQL: 1 where a position is no whole number from 0, or a value is neither 0 nor 1."""
    bounds = (("ZSEQUENCEBITPOSITION", "{0} < 0"), ("ZSEQUENCEBITVALUE", "{0} NOT IN (0, 1)"))
    return " OR ".join(f"(typeof({c}) <> 'integer' OR {bad.format(c)})" for c, bad in bounds if c in columns) or "0"
