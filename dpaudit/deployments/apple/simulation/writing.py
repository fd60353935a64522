"""Writes Apple's formats: a database with the paper's schema, and report files as in Figures 11 and 12."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from dpaudit.deployments.apple.database.coredata import to_coredata
from dpaudit.deployments.apple.database.schema import BITS, BUDGETS, CREATE, SKETCHES
from dpaudit.deployments.apple.model import Balance, Segment

__all__ = ["ENTITIES", "report_name", "report_text", "write_database"]

ENTITIES = {BUDGETS: 9, BITS: 7, SKETCHES: 3}
"""Z_ENT, Core Data's number of a table: as in Figures 1 and 2; that of ZCMSRECORD is ours."""


def report_name(created: datetime, ending: Literal[".dpsub", ".json.anon"]) -> str:
    """A report file's name with its time, which is to be UTC."""
    return f"DifferentialPrivacy_{created:%Y-%m-%d-%H%M%S}_device{ending}"


def report_text(version: int, segments: Iterable[Segment]) -> str:
    """A report file's text."""
    document = {
        "version": version,
        "segments": [
            {"algorithm": s.algorithm, "key": s.key, "parameters": dict(s.parameters), "records": list(s.records)}
            for s in segments
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_database(
    path: Path, *, balances: Iterable[Balance], records: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """A new database with the three tables; each of ``records`` is a table's name and the columns that are not NULL.

    Z_PK counts from 1 in every table, in the order given. The same input gives the same bytes, under one version of SQLite.

    Raises:
        sqlite3.OperationalError: ``path`` exists and has such tables, or cannot be written.
    """
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in CREATE.values():
            connection.execute(statement)
        for balance in balances:
            _insert(
                connection,
                BUDGETS,
                {
                    "Z_OPT": 1,
                    "ZBALANCE": balance.balance,
                    "ZCREATIONDATE": to_coredata(balance.created),
                    "ZLASTUPDATE": to_coredata(balance.updated),
                    "ZKEY": balance.key,
                },
            )
        for table, columns in records:
            _insert(connection, table, columns)


def _insert(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> None:
    cells = {"Z_ENT": ENTITIES[table], **columns}
    names, marks = ", ".join(cells), ", ".join("?" * len(cells))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(cells.values()))  # noqa: S608
