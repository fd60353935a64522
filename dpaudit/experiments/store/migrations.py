"""Which version a file is of, and how an older one becomes ours: in one transaction, whole or not at all."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from dpaudit.errors import StoreError
from dpaudit.experiments.store.schema import APPLICATION_ID, VERSION, create_tables

__all__ = ["found_version", "migrate", "put_provenance"]


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
        row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() if "meta" in tables else None
        if row is None:
            return 0
        version = int(row[0]) if str(row[0]).isdigit() else -1
    elif application != APPLICATION_ID:
        raise StoreError(f"{where}: results.sqlite is another application's database; choose another folder")
    if version > VERSION:
        raise StoreError(
            f"{where}: results of version {version}; this dpaudit reads up to {VERSION}: pip install --upgrade dpaudit"
        )
    if version < 1:
        raise StoreError(f"{where}: results.sqlite is not a dpaudit store (version={version}); choose another folder")
    return version


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
        result = json.loads(text)
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


def put_provenance(db: sqlite3.Connection, provenance: Any, known: dict[str, int]) -> int:
    """The row of ``provenance``, its ``started`` apart, in the table of them; each is there once. ``known`` is a cache."""
    text = json.dumps({**provenance, "started": None} if "started" in provenance else dict(provenance), allow_nan=False)
    if text not in known:
        row = db.execute("SELECT id FROM provenance WHERE content = ?", (text,)).fetchone()
        if row is None:
            row = db.execute("INSERT INTO provenance (content) VALUES (?) RETURNING id", (text,)).fetchone()
        known[text] = int(row[0])
    return known[text]
