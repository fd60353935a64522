"""The tables of a store and its version.

Rows in the three tables of records are permanent: triggers abort UPDATE and DELETE.
``docs/store.md`` describes every column, for people with a ``sqlite3`` prompt.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3

from dpaudit.errors import StoreError
from dpaudit.results.foreign import shown
from dpaudit.results.sqlite import plain_columns

__all__ = [
    "APPLICATION_ID",
    "FILE",
    "LONGEST_VALUE",
    "VERSION",
    "check_tables",
    "check_unchanged",
    "create_tables",
    "holds_store",
]

FILE = "results.sqlite"
VERSION = 3
APPLICATION_ID = 0x64704175
"""``dpAu``, shown by ``PRAGMA application_id`` and ``file``."""
LONGEST_VALUE = 1 << 28
"""Bytes of one value, and of one row."""

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE invocations (
        id INTEGER PRIMARY KEY,
        started TEXT NOT NULL,
        command TEXT NOT NULL,
        host TEXT NOT NULL,
        process INTEGER NOT NULL,
        hardware TEXT NOT NULL,
        versions TEXT NOT NULL)""",
    "CREATE TABLE provenance (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE)",
    """CREATE TABLE attempts (
        id INTEGER PRIMARY KEY,
        cell TEXT NOT NULL,
        position INTEGER NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
        settings TEXT NOT NULL,
        outcome TEXT CHECK ((status = 'done') = (outcome IS NOT NULL)),
        error TEXT CHECK ((status = 'failed') = (error IS NOT NULL)),
        traceback TEXT,
        seconds REAL NOT NULL,
        started TEXT,
        finished TEXT NOT NULL,
        provenance INTEGER NOT NULL REFERENCES provenance)""",
    "CREATE INDEX attempts_of_cell ON attempts (cell, status)",
)
_COLUMN = re.compile(r"(\w+) (?:TEXT|INTEGER|REAL)")
_SAME = {
    "invocations": "id = NEW.id",
    "provenance": "id = NEW.id OR content = NEW.content",
    "attempts": "id = NEW.id",
}


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables and their triggers and stamp the file; within the caller's transaction."""
    for statement in _TABLES:
        db.execute(statement)
    for table, same in _SAME.items():
        stop = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        db.execute(f"CREATE TRIGGER {table}_stay BEFORE DELETE ON {table} {stop}")
        db.execute(f"CREATE TRIGGER {table}_never_change BEFORE UPDATE ON {table} {stop}")
        # INSERT OR REPLACE deletes silently
        when = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608
        db.execute(f"CREATE TRIGGER {table}_never_replace BEFORE INSERT ON {table} {when} {stop}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def holds_store(db: sqlite3.Connection, *, where: str) -> bool:
    """Whether ``db`` holds a store of ours; False for a file with nothing in it yet.

    Raises:
        StoreError: it is another application's, or of another version.
    """
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application == 0 and not _objects(db):
        return False
    if (application, version) != (APPLICATION_ID, VERSION):
        ours = application == APPLICATION_ID
        what = f"of version {version}" if ours else "another application's database"
        raise StoreError(
            f"{where}: {FILE} is {what}, and this dpaudit reads stores of version {VERSION} only; "
            "start a new run in another folder"
        )
    return True


def _objects(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Tables, indices, triggers and views as the file defines them, without SQLite's own."""
    rows = db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite|_%' ESCAPE '|'"
    )
    return {tuple(map(str, row)) for row in rows}


def check_tables(db: sqlite3.Connection, *, where: str) -> None:
    """Check that the tables of a store are plain ones of ours.

    Raises:
        StoreError: one is missing, lacks a column, or is a view, virtual or has computed columns:
            it is not read.
    """
    for statement in _TABLES:
        if not statement.startswith("CREATE TABLE"):
            continue
        table, wanted = statement.split()[2], set(_COLUMN.findall(statement))
        columns = plain_columns(db, table)
        if columns is None:
            raise StoreError(
                f"{where}: {table} is not a plain table; it is not read: restore {FILE}"
            )
        if missing := wanted - set(columns):
            raise StoreError(f"{where}: {table} has no column {min(missing)}; restore {FILE}")


def check_unchanged(db: sqlite3.Connection, *, where: str) -> None:
    """Check that the file has our tables and triggers, and no others.

    Writing to others would run the SQL of their author.

    Raises:
        StoreError: it has more, fewer or others.
    """
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as ours:
        create_tables(ours)
        wanted = _objects(ours)
    odd = _objects(db) ^ wanted
    if odd:
        kind, name = min(odd)[:2]
        raise StoreError(
            f"{where}: {kind} {shown(name)} is not as dpaudit made it; "
            f"drop what was added to {FILE}, or choose another --out"
        )
