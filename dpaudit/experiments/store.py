"""Finished cells on disk: one SQLite file, each cell durable before the next one starts."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any

from dpaudit.errors import StoreError
from dpaudit.types import CellResult, to_dict

__all__ = ["Store"]

_VERSION = 1
_FILE = "results.sqlite"


class Store:
    """Results of one experiment in ``folder/results.sqlite``.

    Formal guarantee: after :meth:`add` returns, the cell survives ``kill -9`` and power loss (SQLite with
    ``synchronous=FULL``); a cell is there whole or not at all; one process at a time holds the folder.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: Any) -> None:
        """Use :meth:`create`, :meth:`resume` or :meth:`read`."""
        self.folder = folder
        self._db = connection
        self._lock = lock

    @classmethod
    def create(cls, folder: Path, *, spec: dict[str, Any]) -> Store:
        """A new store for ``spec``.

        Raises:
            StoreError: the folder holds a run already, is in use, or cannot be written.
        """
        return cls._open(folder, spec, resume=False)

    @classmethod
    def resume(cls, folder: Path, *, spec: dict[str, Any]) -> Store:
        """The store of an interrupted run of the same ``spec``, or a new one if there is none.

        Raises:
            StoreError: it belongs to another experiment, is in use, or comes from a newer dpaudit.
        """
        return cls._open(folder, spec, resume=True)

    @classmethod
    def _open(cls, folder: Path, spec: dict[str, Any], *, resume: bool) -> Store:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("w")
        except OSError as error:
            raise StoreError(f"out={folder}: cannot be written ({error.strerror}); choose another --out") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise StoreError(f"out={folder}: another run is using it; wait for it or choose another --out") from error
        path = folder / _FILE
        there = path.exists()
        db = _connect(path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        with db:
            db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            db.execute(
                "CREATE TABLE IF NOT EXISTS cells "
                "(cell TEXT PRIMARY KEY, position INTEGER NOT NULL, result TEXT NOT NULL)"
            )
        store = cls(folder, db, lock)
        text = json.dumps(spec, sort_keys=True)
        old = store._meta("spec") if there else None
        if old is None:
            with db:
                db.executemany("INSERT INTO meta VALUES (?, ?)", [("spec", text), ("version", str(_VERSION))])
            return store
        try:
            store._check_version()
            if old != text:
                raise StoreError(f"out={folder}: holds another experiment or other settings; choose another --out")
            if not resume:
                raise StoreError(f"out={folder}: holds a run already; add --resume to go on, or choose another --out")
        except StoreError:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, folder: Path) -> Store:
        """An existing store, for reading.

        Raises:
            StoreError: there is none, or it comes from a newer dpaudit.
        """
        path = folder / _FILE
        if not path.is_file():
            raise StoreError(f"dir={folder}: holds no results; dpaudit run NAME --out {folder} makes some")
        store = cls(folder, _connect(path), None)
        store._check_version()
        return store

    def _check_version(self) -> None:
        version = self._meta("version")
        if version is None or int(version) > _VERSION:
            raise StoreError(f"dir={self.folder}: results of version {version}; this dpaudit reads up to {_VERSION}")

    def _meta(self, key: str) -> str | None:
        try:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"dir={self.folder}: {_FILE} is not a dpaudit store ({error})") from error
        return None if row is None else str(row[0])

    @property
    def spec(self) -> dict[str, Any]:
        """The experiment as it was run."""
        found: dict[str, Any] = json.loads(self._meta("spec") or "{}")
        return found

    def finished(self) -> set[str]:
        """Ids of the cells that are done."""
        return {row[0] for row in self._db.execute("SELECT cell FROM cells")}

    def add(self, result: CellResult, *, position: int) -> None:
        """Keep one finished cell; returns when it is on disk."""
        with self._db:
            self._db.execute(
                "INSERT INTO cells VALUES (?, ?, ?)",
                (result.cell, position, json.dumps(to_dict(result), allow_nan=False)),
            )

    def results(self) -> list[CellResult]:
        """All finished cells in the experiment's order."""
        rows = self._db.execute("SELECT result FROM cells ORDER BY position")
        return [CellResult(**json.loads(row[0])) for row in rows]

    def close(self) -> None:
        """Let go of the folder."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path)
    except sqlite3.Error as error:
        raise StoreError(f"out={path.parent}: {path.name} cannot be opened ({error})") from error
