"""The tables of a store, version 2. What is in the four tables of records stays: triggers abort UPDATE and DELETE.

``docs/store.md`` describes every column, for people with a ``sqlite3`` prompt.
"""

from __future__ import annotations

import sqlite3
import uuid

__all__ = ["APPLICATION_ID", "COLUMNS", "FILE", "LONGEST_VALUE", "TRIAL_COLUMNS", "VERSION", "create_tables", "objects"]

FILE = "results.sqlite"
VERSION = 2
APPLICATION_ID = 0x64704175
"""``dpAu``, as ``PRAGMA application_id`` and ``file`` show it."""
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
COLUMNS = {
    1: {"meta": {"key", "value"}, "cells": {"position", "result"}},
    2: {
        "meta": {"key", "value"},
        "invocations": {"id", "started", "command", "host", "process", "hardware", "versions"},
        "provenance": {"id", "content"},
        "attempts": {
            *("id", "cell", "position", "kind", "status", "settings", "outcome", "error", "traceback", "worker"),
            *("seconds", "started", "finished", "provenance"),
        },
        "trials": {"attempt", "trial", *TRIAL_COLUMNS},
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
        if table in _SAME:  # INSERT OR REPLACE deletes without asking; for trials the question would double their time
            when = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {_SAME[table]})"  # noqa: S608 (our own names)
            db.execute(f"CREATE TRIGGER {table}_never_replace BEFORE INSERT ON {table} {when} {stop}")
    pairs = {"version": str(VERSION), "run": uuid.uuid4().hex}  # a dpaudit of version 1 looks for its version here
    db.executemany("INSERT INTO meta VALUES (?, ?)", pairs.items())
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def objects(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Tables, indices, triggers and views as the file defines them, without SQLite's own."""
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite|_%' ESCAPE '|'")
    return {tuple(map(str, row)) for row in rows}
