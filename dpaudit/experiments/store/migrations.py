"""Which version a file is of, and how an older one becomes ours: in one transaction, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Collection
from typing import Any

from dpaudit.errors import StoreError
from dpaudit.experiments.store.schema import APPLICATION_ID, COLUMNS, FILE, VERSION, create_tables, objects
from dpaudit.results.foreign import RefusedError, read_json, shown
from dpaudit.results.sqlite import plain_columns

__all__ = ["check_tables", "check_unchanged", "found_version", "migrate", "put_provenance"]


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
    if application == 0 and tables <= {"meta", "cells"}:  # version 1 came before stamps, and was made table by table
        check_tables(db, 1, where=where, tables=tables)
        row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() if "meta" in tables else None
        if row is None:
            return 0
        version = int(row[0]) if re.fullmatch("[0-9]{1,9}", str(row[0])) else -1
    elif application != APPLICATION_ID:
        raise StoreError(f"{where}: results.sqlite is another application's database; choose another folder")
    if version > VERSION:
        raise StoreError(
            f"{where}: results of version {version}; this dpaudit reads up to {VERSION}: pip install --upgrade dpaudit"
        )
    if version < 1:
        raise StoreError(f"{where}: results.sqlite is not a dpaudit store (version={version}); choose another folder")
    return version


def check_tables(db: sqlite3.Connection, version: int, *, where: str, tables: Collection[str] | None = None) -> None:
    """Whether the tables of a store of ``version`` (those of ``tables``) are plain ones with our columns.

    Raises:
        StoreError: one is missing, lacks a column, or is a view, virtual or has computed columns: it is not read.
    """
    for table, wanted in COLUMNS[version].items():
        if tables is not None and table not in tables:
            continue
        columns = plain_columns(db, table)
        if columns is None:
            raise StoreError(f"{where}: {table} is not a plain table; it is not read: restore {FILE}")
        if missing := wanted - set(columns):
            raise StoreError(f"{where}: {table} has no column {min(missing)}; restore {FILE}")


def check_unchanged(db: sqlite3.Connection, *, where: str) -> None:
    """Whether the file has our tables and triggers, and no others: what is written to others would run their author's SQL.

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
            f"{where}: {kind} {shown(name)} is not as dpaudit made it; drop what was added to {FILE}, or choose another --out"
        )


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring a store of ``version`` to ours, within the caller's transaction."""
    if version == 1:
        _from_1(db)


def _from_1(db: sqlite3.Connection) -> None:
    """Version 1: ``meta`` with spec and version, ``cells`` with a cell's id, position and whole result."""
    db.execute("ALTER TABLE meta RENAME TO old_meta")
    create_tables(db)
    db.execute("INSERT INTO meta SELECT key, value FROM old_meta WHERE key <> 'version'")
    known: dict[str, int] = {}
    for position, text in db.execute("SELECT position, result FROM cells ORDER BY rowid").fetchall():
        result = _old_result(text)
        started = result["provenance"].get("started")
        db.execute(
            "INSERT INTO attempts (cell, position, kind, status, settings, outcome, worker, seconds, started, provenance) "
            "VALUES (?, ?, ?, 'done', ?, ?, '', ?, ?, ?)",
            (
                result["cell"],
                position,
                result["kind"],
                json.dumps(result["settings"]),
                json.dumps(result["outcome"]),
                result["seconds"],
                started,
                put_provenance(db, result["provenance"], known),
            ),
        )
    db.execute("DROP TABLE cells")
    db.execute("DROP TABLE old_meta")


def _old_result(text: Any) -> dict[str, Any]:
    result = read_json(text) if isinstance(text, str) else None
    needed: dict[str, Any] = {
        "cell": str,
        "kind": str,
        "settings": dict,
        "outcome": dict,
        "seconds": (int, float),
        "provenance": dict,
    }
    if not isinstance(result, dict) or not all(isinstance(result.get(k), kind) for k, kind in needed.items()):
        raise RefusedError("cells has a result that is none")
    return result


def put_provenance(db: sqlite3.Connection, provenance: Any, known: dict[str, int]) -> int:
    """The row of ``provenance``, its ``started`` apart, in the table of them; each is there once. ``known`` is a cache."""
    text = json.dumps({**provenance, "started": None} if "started" in provenance else dict(provenance), allow_nan=False)
    if text not in known:
        row = db.execute("SELECT id FROM provenance WHERE content = ?", (text,)).fetchone()
        if row is None:
            row = db.execute("INSERT INTO provenance (content) VALUES (?) RETURNING id", (text,)).fetchone()
        known[text] = int(row[0])
    return known[text]
