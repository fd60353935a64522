"""Finished and failed cells on disk: one append-only SQLite file per run."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from dpaudit.codec import to_dict
from dpaudit.errors import StoreError
from dpaudit.experiments.store_file import (
    FILE,
    VERSION,
    Budget,
    Lock,
    Provenances,
    acquire,
    bytes_of,
    check_unchanged,
    create_tables,
    holds_store,
    is_running,
    lift_limits,
    object_of,
    open_reader,
    open_writer,
    read_rows,
    reading_errors,
    store_errors,
    transaction,
)
from dpaudit.provenance import hardware, versions
from dpaudit.results.sqlite import bound_steps
from dpaudit.types import CellFailure, CellResult

__all__ = [
    "FILE",
    "VERSION",
    "Attempt",
    "Progress",
    "Store",
    "attempts",
    "invocations",
    "is_running",
    "progress",
    "reading_errors",
]

T = TypeVar("T")

_INSERT = (
    "INSERT INTO attempts (cell, position, kind, status, settings, outcome, error, traceback, "
    "seconds, started, finished, provenance) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_RESULTS = (
    "SELECT cell, kind, settings, outcome, seconds, started, provenance FROM attempts "
    "WHERE attempts.id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) "
    "ORDER BY position, attempts.id LIMIT ?"
)
_FAILURES = (
    "SELECT cell, kind, settings, error, coalesce(traceback, '') AS traceback, "
    "seconds, started, provenance FROM attempts "
    "WHERE attempts.id IN (SELECT max(id) FROM attempts GROUP BY cell) "
    "AND cell NOT IN (SELECT cell FROM attempts WHERE status = 'done') ORDER BY position"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a cell, ``done`` or ``failed``; ``started`` and ``finished`` are UTC."""

    number: int
    cell: str
    position: int
    kind: str
    status: str
    settings: Mapping[str, Any]
    outcome: Mapping[str, Any] | None
    error: str | None
    traceback: str | None
    seconds: float
    started: str | None
    finished: str
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One start of the runner on this folder."""

    started: str
    command: str
    host: str
    process: int
    hardware: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many cells are done, and how many only failed; ``seconds`` are of all attempts."""

    done: int
    failed: int
    attempts: int
    seconds: float
    last: str | None


class Store:
    """Results of one experiment in ``folder/results.sqlite``, for one thread; a context manager.

    Formal guarantee: after :meth:`add` or :meth:`add_all` returns, what was added survives
    ``kill -9`` and power loss (SQLite's WAL with ``synchronous=FULL``), as far as the disk keeps
    what it confirmed; it is there whole or not at all; one process at a time holds the folder.
    Records are only ever added.
    """

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: Lock | None = None
    ) -> None:
        """Use :meth:`open` or :meth:`read`."""
        self.folder = folder
        self._db = connection
        self._lock = lock
        self._provenances: dict[str, int] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        spec: dict[str, Any],
        command: str = "",
        cells: int | None = None,
        resume: bool = False,
    ) -> Store:
        """A store for ``spec``, opened by ``command``, with room for ``cells`` cells.

        With ``resume`` also that of an interrupted run of the same ``spec``.

        Raises:
            StoreError: the folder holds another experiment, or this one and ``resume`` is False; it
                is in use, cannot be written, or is of another version.
        """
        lock = acquire(folder)
        where = f"out={folder}"
        db = None
        try:
            with store_errors(where):
                db = open_writer(folder / FILE)
                new = not holds_store(db, where=where)
                if not new:
                    check_unchanged(db, where=where)
                    _check_same(db, spec, where=where, resume=resume)
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                with transaction(db):
                    if new:
                        create_tables(db)
                        text = json.dumps(spec, sort_keys=True)
                        db.execute("INSERT INTO meta VALUES ('spec', ?)", (text,))
                    if cells is not None:
                        db.execute("INSERT OR REPLACE INTO meta VALUES ('cells', ?)", (str(cells),))
                    _note_invocation(db, command)
                lift_limits(db)
        except BaseException:
            if db is not None:
                db.close()
            lock.close()
            raise
        return cls(folder, db, lock)

    @classmethod
    def read(cls, folder: Path) -> Store:
        """An existing store, for reading, also while a runner writes or nothing can be written.

        Raises:
            StoreError: there is none, or it is of another version.
        """
        path, where = folder / FILE, f"dir={folder}"
        with store_errors(where):
            if not os.path.lexists(path):
                raise StoreError(
                    f"{where}: holds no results; dpaudit run NAME --out {folder} makes some"
                )
            return cls(folder, open_reader(path, where=where))

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a SELECT on the tables that ``docs/store.md`` describes.

        Raises:
            StoreError: the file is damaged, or gone; or the rows hold more than eight times the
                file's bytes and 32 MiB.
        """
        return self._select(sql, parameters)[1]

    def rows(self, cls: type[T], sql: str, parameters: Sequence[Any] = ()) -> list[T]:
        """The rows of a SELECT as ``cls``, whose fields are among the columns.

        JSON is read where a field is a mapping; ``provenance``, which needs ``started`` in the same
        row, becomes the whole one.

        Raises:
            StoreError: as :meth:`query`, or a value is not of its field's type.
        """
        names, rows = self._select(sql, parameters)
        stored = self.query("SELECT id, content FROM provenance") if "provenance" in names else []
        with store_errors(f"dir={self.folder}"):
            provenances = Provenances(stored, budget=Budget(bytes_of(self._db)))
            return read_rows(cls, names, rows, provenances)

    def _select(
        self, sql: str, parameters: Sequence[Any]
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The names of the columns, and the rows."""
        with store_errors(f"dir={self.folder}"):
            size = bytes_of(self._db)
            if self._lock is None:
                bound_steps(self._db, size=size)
            budget = Budget(size)
            cursor = self._db.execute(sql, parameters)
            names = tuple(column[0] for column in cursor.description or ())
            return names, [budget.charge(row) for row in cursor]

    @property
    def spec(self) -> dict[str, Any]:
        """The experiment as it was run."""
        with store_errors(f"dir={self.folder}"):
            return object_of("meta.spec", self._meta("spec") or "{}")

    @property
    def cells(self) -> int | None:
        """How many cells the experiment has; None if that is not stored."""
        number = self._meta("cells")
        return None if number is None or not re.fullmatch("[0-9]{1,18}", number) else int(number)

    def _meta(self, key: str) -> str | None:
        rows = self.query("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def add(self, result: CellResult | CellFailure, *, position: int) -> None:
        """Keep one cell; returns when it is on disk.

        Raises:
            StoreError: as :meth:`add_all`.
        """
        self.add_all([(position, result)])

    def add_all(self, items: Sequence[tuple[int, CellResult | CellFailure]]) -> None:
        """Keep cells with their positions, in one transaction; returns when they are on disk.

        Raises:
            StoreError: the disk is full or broken (none of them is kept, all before is).
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        known = dict(self._provenances)
        with store_errors(f"out={self.folder}"), transaction(self._db):
            for position, item in items:
                self._insert(position, item, now, known)
        self._provenances = known  # only now: a failed transaction took its provenance with it

    def _insert(
        self, position: int, item: CellResult | CellFailure, now: str, known: dict[str, int]
    ) -> None:
        settings = _json(item.settings)
        if isinstance(item, CellResult):
            columns: tuple[str | None, ...] = ("done", settings, _json(item.outcome), None, None)
        else:
            columns = ("failed", settings, None, _as_text(item.error), _as_text(item.traceback))
        provenance = _put_provenance(self._db, to_dict(item.provenance), known)
        times = (float(item.seconds), item.provenance.get("started"), now)
        self._db.execute(_INSERT, (item.cell, position, item.kind, *columns, *times, provenance))

    def finished(self) -> set[str]:
        """Ids of the cells that are done."""
        rows = self.query("SELECT DISTINCT cell FROM attempts WHERE status = 'done'")
        return {str(cell) for (cell,) in rows}

    def results(self, *, most: int | None = None) -> list[CellResult]:
        """Finished cells in the experiment's order, ``most`` at most.

        A cell's first success counts.
        """
        return self.rows(CellResult, _RESULTS, (-1 if most is None else most,))

    def failures(self) -> list[CellFailure]:
        """The last failure of each cell that never succeeded, in the experiment's order."""
        return self.rows(CellFailure, _FAILURES)

    def close(self) -> None:
        """Let go of the folder."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attempts(store: Store, *, cell: str = "") -> list[Attempt]:
    """All attempts at the cells whose id begins with ``cell``, in the order in which they ended."""
    return store.rows(
        Attempt,
        "SELECT id AS number, cell, position, kind, status, settings, outcome, error, traceback, "
        "seconds, started, finished, provenance FROM attempts "
        "WHERE cell >= ? AND substr(cell, 1, ?) = ? ORDER BY id",
        (cell, len(cell), cell),
    )


def invocations(store: Store) -> list[Invocation]:
    """Every start of the runner, first to last."""
    return store.rows(
        Invocation,
        "SELECT started, command, host, process, hardware, versions FROM invocations ORDER BY id",
    )


def progress(store: Store) -> Progress:
    """How far the run is."""
    (far,) = store.rows(
        Progress,
        "SELECT done, cells - done AS failed, attempts, seconds, last FROM "
        "(SELECT count(DISTINCT cell) AS cells, "
        "count(DISTINCT CASE status WHEN 'done' THEN cell END) AS done, count(*) AS attempts, "
        "total(seconds) AS seconds, max(finished) AS last FROM attempts)",
    )
    return far


def _check_same(
    db: sqlite3.Connection, spec: Mapping[str, Any], *, where: str, resume: bool
) -> None:
    """Check that an existing store is of ``spec``, and may be resumed.

    Raises:
        StoreError: it is not, or ``resume`` is False.
    """
    row = db.execute("SELECT value FROM meta WHERE key = 'spec'").fetchone()
    if row is None or _without_texts(object_of("meta.spec", row[0])) != _without_texts(
        json.loads(json.dumps(spec))
    ):
        raise StoreError(
            f"{where}: holds another experiment or other settings; choose another --out"
        )
    if not resume:
        raise StoreError(
            f"{where}: holds a run already; add --resume to continue it, or choose another --out"
        )


def _without_texts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a spec's cells: all but its texts."""
    return {k: v for k, v in spec.items() if k not in ("title", "story")}


def _note_invocation(db: sqlite3.Connection, command: str) -> None:
    """Keep who opened the store, with what command."""
    db.execute(
        "INSERT INTO invocations (started, command, host, process, hardware, versions) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            datetime.now(UTC).isoformat(timespec="seconds"),
            _as_text(command),
            socket.gethostname(),
            os.getpid(),
            hardware(),
            json.dumps(versions()),
        ),
    )


def _put_provenance(db: sqlite3.Connection, provenance: Any, known: dict[str, int]) -> int:
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


def _as_text(value: str) -> str:
    """Text that UTF-8 can hold: another process may have written halves of characters."""
    return value.encode("utf-8", "backslashreplace").decode()


def _json(value: Any) -> str:
    return json.dumps(to_dict(value), allow_nan=False)
