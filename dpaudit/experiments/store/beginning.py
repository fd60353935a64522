"""What a store begins with: the experiment, the shard, and who opened it."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dpaudit.errors import StoreError
from dpaudit.experiments.grid import written_spec
from dpaudit.experiments.store.rows import object_of
from dpaudit.experiments.store.schema import create_tables
from dpaudit.provenance import hardware, versions
from dpaudit.results.foreign import RefusedError, shown

__all__ = ["as_text", "begin", "check_same", "note_invocation", "spanned"]


def begin(db: sqlite3.Connection, spec: Mapping[str, Any], shard: str) -> None:
    """Make the tables of a new store of ``spec``, or of that ``shard`` of it (empty: of all)."""
    for table in ("meta", "cells"):  # a run of version 1 that died before it wrote its spec
        db.execute(f"DROP TABLE IF EXISTS {table}")
    create_tables(db)
    # a merge makes the cells again from a shard's spec; their ids depend on the order in it
    text = json.dumps(spec, sort_keys=not shard)
    db.execute("INSERT INTO meta VALUES ('spec', ?)", (text,))
    if shard:
        db.execute("INSERT INTO meta VALUES ('shard', ?)", (shard,))


def check_same(
    db: sqlite3.Connection, spec: Mapping[str, Any], shard: str, *, where: str, resume: bool
) -> None:
    """Check that an existing store is of ``spec`` and ``shard``, and may be resumed.

    Raises:
        StoreError: it is not, or ``resume`` is False.
    """
    row = db.execute("SELECT value FROM meta WHERE key = 'spec'").fetchone()
    part = db.execute("SELECT value FROM meta WHERE key = 'shard'").fetchone()
    # sorted, as it is kept, or in the spec's order, as texts of older ones were
    known = [spanned(json.loads(json.dumps(spec, sort_keys=order))) for order in (True, False)]
    if row is None or spanned(object_of("meta.spec", row[0])) not in known:
        raise StoreError(
            f"{where}: holds another experiment or other settings; choose another --out"
        )
    if (part[0] if part else "") != shard:
        held = f"shard {shown(part[0])}" if part else "the whole experiment"
        raise StoreError(
            f"{where}: holds {held}, not {f'shard {shard}' if shard else 'the whole'}; "
            "choose another --out"
        )
    if not resume:
        raise StoreError(
            f"{where}: holds a run already; add --resume to continue it, or choose another --out"
        )


def spanned(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a spec spans: no texts, and no field that is off or empty, which older ones lack."""
    try:
        plain = written_spec(spec)
    except (AttributeError, TypeError, ValueError) as error:
        raise RefusedError("meta.spec has axes that dpaudit does not write") from error
    return {
        k: v
        for k, v in plain.items()
        if k not in ("title", "story")
        and (v not in (None, False, "", [], {}) or isinstance(v, float))
    }


def note_invocation(db: sqlite3.Connection, command: str) -> int:
    """Keep who opened the store, with what command; its row number."""
    row = db.execute(
        "INSERT INTO invocations (started, command, host, process, hardware, versions) "
        "VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
        (
            datetime.now(UTC).isoformat(timespec="seconds"),
            as_text(command),
            socket.gethostname(),
            os.getpid(),
            hardware(),
            json.dumps(versions()),
        ),
    ).fetchone()
    return int(row[0])


def as_text(value: str) -> str:
    """Text that UTF-8 can hold: another process may have written halves of characters."""
    return value.encode("utf-8", "backslashreplace").decode()
