"""The tables of a store, its version, and the migration of an older one.

Rows in the four tables of records are permanent: triggers abort UPDATE and DELETE.
``docs/store.md`` describes every column, for people with a ``sqlite3`` prompt.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import uuid
from collections.abc import Collection
from typing import Any

from dpaudit.codec import convert_value
from dpaudit.errors import StoreError
from dpaudit.experiments.store.rows import object_of
from dpaudit.results.foreign import shown
from dpaudit.results.sqlite import plain_columns
from dpaudit.types import CellResult

__all__ = [
    "APPLICATION_ID",
    "COLUMNS",
    "FILE",
    "LONGEST_VALUE",
    "TRIAL_COLUMNS",
    "VERSION",
    "check_tables",
    "check_unchanged",
    "create_tables",
    "found_version",
    "migrate",
    "objects",
    "put_provenance",
]

FILE = "results.sqlite"
VERSION = 2
APPLICATION_ID = 0x64704175
"""``dpAu``, shown by ``PRAGMA application_id`` and ``file``."""
TRIAL_COLUMNS = ("truth", "guess", "score")
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
        worker TEXT NOT NULL,
        seconds REAL NOT NULL,
        started TEXT,
        finished TEXT,
        provenance INTEGER NOT NULL REFERENCES provenance,
        invocation INTEGER REFERENCES invocations)""",
    "CREATE INDEX attempts_of_cell ON attempts (cell, status)",
    """CREATE TABLE trials (
        attempt INTEGER NOT NULL REFERENCES attempts,
        trial INTEGER NOT NULL,
        truth INTEGER NOT NULL,
        guess INTEGER NOT NULL,
        score REAL,
        PRIMARY KEY (attempt, trial)) WITHOUT ROWID""",
)
_COLUMN = re.compile(r"(\w+) (?:TEXT|INTEGER|REAL)")
COLUMNS = {
    1: {"meta": {"key", "value"}, "cells": {"position", "result"}},
    2: {
        statement.split()[2]: set(_COLUMN.findall(statement))
        for statement in _TABLES
        if statement.startswith("CREATE TABLE")
    },
}
"""By version: the tables that are read, and their columns."""
_SAME = {
    "invocations": "id = NEW.id",
    "provenance": "id = NEW.id OR content = NEW.content",
    "attempts": "id = NEW.id",
}


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables and their triggers and stamp the file; within the caller's transaction."""
    for statement in _TABLES:
        db.execute(statement)
    for table in (*_SAME, "trials"):
        stop = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        db.execute(f"CREATE TRIGGER {table}_stay BEFORE DELETE ON {table} {stop}")
        db.execute(f"CREATE TRIGGER {table}_never_change BEFORE UPDATE ON {table} {stop}")
        # INSERT OR REPLACE deletes silently; for trials this check would double their time
        if table in _SAME:
            when = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {_SAME[table]})"  # noqa: S608
            db.execute(
                f"CREATE TRIGGER {table}_never_replace BEFORE INSERT ON {table} {when} {stop}"
            )
    # a dpaudit of version 1 looks for its version here
    pairs = {"version": str(VERSION), "run": uuid.uuid4().hex}
    db.executemany("INSERT INTO meta VALUES (?, ?)", pairs.items())
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def objects(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Tables, indices, triggers and views as the file defines them, without SQLite's own."""
    rows = db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite|_%' ESCAPE '|'"
    )
    return {tuple(map(str, row)) for row in rows}


def found_version(db: sqlite3.Connection, *, where: str) -> int:
    """The version of the store in ``db``; 0 for a file with nothing in it yet.

    Raises:
        StoreError: it is another application's, or of a version above ours.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application == 0 and not tables:
        return 0
    # version 1 came before stamps, and was made table by table
    if application == 0 and tables <= {"meta", "cells"}:
        check_tables(db, 1, where=where, tables=tables)
        row = (
            db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
            if "meta" in tables
            else None
        )
        if row is None:
            return 0
        version = int(row[0]) if re.fullmatch("[0-9]{1,9}", str(row[0])) else -1
    elif application != APPLICATION_ID:
        raise StoreError(
            f"{where}: results.sqlite is another application's database; choose another folder"
        )
    if version > VERSION:
        raise StoreError(
            f"{where}: results of version {version}; this dpaudit reads up to {VERSION}: "
            "install a newer one"
        )
    if version < 1:
        raise StoreError(
            f"{where}: results.sqlite is not a dpaudit store (version={version}); "
            "choose another folder"
        )
    return version


def check_tables(
    db: sqlite3.Connection, version: int, *, where: str, tables: Collection[str] | None = None
) -> None:
    """Check that the tables of a store of ``version`` (those of ``tables``) are plain ones of ours.

    Raises:
        StoreError: one is missing, lacks a column, or is a view, virtual or has computed columns:
            it is not read.
    """
    for table, wanted in COLUMNS[version].items():
        if tables is not None and table not in tables:
            continue
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
        wanted = objects(ours)
    odd = objects(db) ^ wanted
    if odd:
        kind, name = min(odd)[:2]
        raise StoreError(
            f"{where}: {kind} {shown(name)} is not as dpaudit made it; "
            f"drop what was added to {FILE}, or choose another --out"
        )


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Migrate a store of ``version`` to ours, within the caller's transaction."""
    if version == 1:
        _from_1(db)


def _from_1(db: sqlite3.Connection) -> None:
    """Version 1: ``meta`` with spec and version, ``cells`` with id, position and result."""
    db.execute("ALTER TABLE meta RENAME TO old_meta")
    create_tables(db)
    db.execute("INSERT INTO meta SELECT key, value FROM old_meta WHERE key <> 'version'")
    known: dict[str, int] = {}
    cells = db.execute("SELECT position, result FROM cells ORDER BY rowid").fetchall()
    for position, text in cells:
        result = convert_value(object_of("cells.result", text), CellResult, words=False)
        db.execute(
            "INSERT INTO attempts (cell, position, kind, status, settings, outcome, worker, "
            "seconds, started, provenance) VALUES (?, ?, ?, 'done', ?, ?, '', ?, ?, ?)",
            (
                result.cell,
                position,
                result.kind,
                json.dumps(result.settings),
                json.dumps(result.outcome),
                result.seconds,
                result.provenance.get("started"),
                put_provenance(db, result.provenance, known),
            ),
        )
    db.execute("DROP TABLE cells")
    db.execute("DROP TABLE old_meta")


def put_provenance(db: sqlite3.Connection, provenance: Any, known: dict[str, int]) -> int:
    """The row number of ``provenance`` without its ``started``; each is stored once.

    ``known`` is a cache.
    """
    text = json.dumps(
        {**provenance, "started": None} if "started" in provenance else dict(provenance),
        allow_nan=False,
    )
    if text not in known:
        row = db.execute("SELECT id FROM provenance WHERE content = ?", (text,)).fetchone()
        if row is None:
            row = db.execute(
                "INSERT INTO provenance (content) VALUES (?) RETURNING id", (text,)
            ).fetchone()
        known[text] = int(row[0])
    return known[text]
