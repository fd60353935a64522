"""Durable files of mode 0600, and a party's journal: each release's state, by compare-and-set."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dpaudit.errors import MessageError, UsageError
from dpaudit.results.files import clear_leftovers, sync_folder, write_file
from dpaudit.results.locks import HeldError, Lock

__all__ = ["Journal", "durable_write", "file_digest", "journal_folder", "npy_header", "write_all"]

_PIECE = 8 << 20


def durable_write(path: Path, data: Any | Iterable[Any], *, replace: bool = True) -> None:
    """Write ``data``, a buffer (not copied) or an iterable of buffers, to ``path``; mode 0600.

    As :func:`~dpaudit.results.files.write_file`: when this returns the file survives power loss,
    and until then ``path`` is what it was. With ``replace=False`` an existing file is left alone.

    Raises:
        UsageError: it cannot be written, or exists already and ``replace`` is false.
    """

    def parts(file: BinaryIO) -> None:
        for part in _buffers(data):
            write_all(file.fileno(), part)

    try:
        write_file(path, parts, mode=0o600, replace=replace)
    except FileExistsError as error:
        raise UsageError(f"file={path}: exists already, and is not overwritten") from error
    except OSError as error:
        raise UsageError(f"file={path}: cannot be written ({error.strerror})") from error


def _buffers(data: Any) -> Iterable[memoryview]:
    try:
        yield memoryview(data)
        return
    except TypeError:
        pass
    for part in data:
        yield memoryview(part)


def npy_header(dim: int, dtype: str) -> bytes:
    """The first bytes of an ``.npy`` file of ``dim`` little-endian values of ``dtype``."""
    header = io.BytesIO()
    descr = np.dtype(dtype).newbyteorder("<").str
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": (dim,)}
    )
    return header.getvalue()


def write_all(fd: int, part: memoryview) -> None:
    """Write every byte of a contiguous ``part``, in as many system calls as it takes."""
    rest = part.cast("B") if part.nbytes else memoryview(b"")
    while rest:
        rest = rest[os.write(fd, rest[:_PIECE]) :]


def file_digest(path: Path) -> bytes | None:
    """The file's SHA-256; None if there is no such file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except FileNotFoundError:
        return None


_SCHEMA = 1
_LONGEST_ID = 128
_LARGEST_FACTS = 1 << 20


def journal_folder(path: Path) -> Path:
    """The folder of a party's journal, made with mode 0700 if missing.

    Raises:
        UsageError: it cannot be made, or others may write to it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"journal={path}: cannot be created ({error.strerror})") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"journal={path}: is writable by others; chmod 700 {path}")
    return path


class Journal:
    """States of releases in one SQLite file.

    Formal guarantee: when :meth:`advance` returns, the new state survives ``kill -9`` and power
    loss (write-ahead log, ``synchronous=FULL``, given a disk that keeps what it has synced); it
    moves from exactly the state named, once, whoever else tries; one process at a time has the
    journal, and a killed one releases it. Not claimed: anything about other files, which must be
    written (:func:`durable_write`) before the state that needs them.

    Thread-safe; each call is a transaction of its own.
    """

    def __init__(self, path: Path, *, kind: str) -> None:
        """Open the journal at ``path``, or make it; ``kind`` is its owner (``two-servers/answer``).

        Removes unfinished files of killed writers from its folder.

        Raises:
            UsageError: another process has it, it is of another kind or schema, or cannot be used.
        """
        self.path = path
        self._mutex = threading.Lock()
        self._lock = _exclusive(path)
        try:
            clear_leftovers(path.parent)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=5
            )
            self._prepare(kind)
            sync_folder(path.parent)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise UsageError(f"journal={path}: cannot be used ({error})") from error
        except BaseException:
            self.close()
            raise

    def state(self, release: str) -> str | None:
        """The state of ``release``; None if it has never been seen."""
        row = self._one("SELECT state FROM releases WHERE id = ?", release)
        return None if row is None else str(row[0])

    def facts(self, release: str) -> dict[str, Any]:
        """What :meth:`advance` has noted of ``release`` so far."""
        row = self._one("SELECT facts FROM releases WHERE id = ?", release)
        return {} if row is None else dict(json.loads(row[0]))

    def releases(self, state: str | None = None) -> list[str]:
        """All releases, or those in ``state``, oldest first."""
        with self._mutex:
            rows = self._db.execute(
                "SELECT id FROM releases WHERE ?1 IS NULL OR state = ?1 ORDER BY rowid", (state,)
            ).fetchall()
        return [str(row[0]) for row in rows]

    def advance(self, release: str, old: str | None, new: str, **facts: Any) -> None:
        """Move ``release`` from ``old`` (None: never seen) to ``new``; add ``facts`` (JSON values).

        Raises:
            MessageError: it is in another state; nothing has changed.
            UsageError: a name or fact that cannot be kept, or the disk is full.
        """
        if not 1 <= len(release) <= _LONGEST_ID or not release.isprintable() or not new:
            raise UsageError(
                f"release: takes 1 to {_LONGEST_ID} printable characters, and a named state"
            )
        try:
            added = json.dumps(facts, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise UsageError(f"journal: a fact of {release} is not JSON; use hex") from error
        if len(added) > _LARGEST_FACTS:
            raise UsageError(f"journal: facts of {release} exceed {_LARGEST_FACTS:,} bytes")
        with self._mutex:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    self._move(release, old, new, facts)
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise UsageError(f"journal={self.path}: cannot be written ({error})") from error

    def close(self) -> None:
        """Release the journal. May be called repeatedly."""
        with self._mutex:
            if hasattr(self, "_db"):
                self._db.close()
            self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _one(self, query: str, release: str) -> Any:
        with self._mutex:
            return self._db.execute(query, (release,)).fetchone()

    def _move(self, release: str, old: str | None, new: str, facts: dict[str, Any]) -> None:
        row = self._db.execute(
            "SELECT state, facts FROM releases WHERE id = ?", (release,)
        ).fetchone()
        current = None if row is None else row[0]
        if current != old:
            raise MessageError(
                f"release {release}: is {current or 'new'}, not {old or 'new'}; cannot become {new}"
            )
        now = time.time()
        if row is None:
            text = json.dumps(facts, sort_keys=True)
            self._db.execute(
                "INSERT INTO releases VALUES (?, ?, ?, ?, ?)", (release, new, text, now, now)
            )
            return
        text = json.dumps(json.loads(row[1]) | facts, sort_keys=True)
        if len(text) > _LARGEST_FACTS:
            raise UsageError(f"journal: facts of {release} exceed {_LARGEST_FACTS:,} bytes")
        self._db.execute(
            "UPDATE releases SET state = ?, facts = ?, changed = ? WHERE id = ?",
            (new, text, now, release),
        )

    def _prepare(self, kind: str) -> None:
        mode = self._db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise UsageError(f"journal={self.path}: no write-ahead log here; use a local disk")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("BEGIN IMMEDIATE")
        tables = {
            row[0]
            for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if not tables:
            self._db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._db.execute(
                "CREATE TABLE releases (id TEXT PRIMARY KEY, state TEXT NOT NULL, "
                "facts TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL)"
            )
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?)", [("schema", str(_SCHEMA)), ("kind", kind)]
            )
        elif "meta" not in tables or "releases" not in tables:
            raise UsageError(f"journal={self.path}: another program's database; use another file")
        meta = dict(self._db.execute("SELECT key, value FROM meta").fetchall())
        self._db.execute("COMMIT")
        if meta.get("schema") != str(_SCHEMA):
            raise UsageError(
                f"journal={self.path}: of schema {meta.get('schema')}, this dpaudit reads "
                f"{_SCHEMA}; use the version that made it"
            )
        if meta.get("kind") != kind:
            raise UsageError(
                f"journal={self.path}: is of {meta.get('kind')}, not of {kind}; use another"
            )


def _exclusive(path: Path) -> Lock:
    """Lock the file ``path``.lock; the lock ends with the process."""
    try:
        return Lock(path.with_name(path.name + ".lock"), mode=0o600)
    except HeldError as error:
        raise UsageError(f"journal={path}: another process uses it; stop that first") from error
    except OSError as error:
        raise UsageError(f"journal={path}: its folder cannot be used ({error.strerror})") from error
