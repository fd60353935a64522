"""The file of a store: tables, one runner per folder, connections, rows that are checked.

A connection writes durably, or only reads. Rows in the three tables of records are permanent:
triggers abort UPDATE and DELETE. ``docs/store.md`` describes every column, for people with a
``sqlite3`` prompt.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import re
import shutil
import sqlite3
import tempfile
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dpaudit.codec import convert_value
from dpaudit.errors import DpauditError, StoreError
from dpaudit.results.foreign import RefusedError, quoted, read_json
from dpaudit.results.locks import HeldError, Lock, is_held
from dpaudit.results.sqlite import (
    DAMAGE,
    beside,
    check_pages,
    guard,
    header,
    plain_columns,
    size_of,
    why,
)
from dpaudit.results.text import error_text

__all__ = [
    "FILE",
    "VERSION",
    "Budget",
    "Lock",
    "Provenances",
    "acquire",
    "bytes_of",
    "check_unchanged",
    "create_tables",
    "holds_store",
    "is_running",
    "lift_limits",
    "object_of",
    "open_reader",
    "open_writer",
    "read_rows",
    "reading_errors",
    "store_errors",
    "transaction",
]

T = TypeVar("T")
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
        kind = f"of version {version}" if ours else "another application's database"
        raise StoreError(
            f"{where}: {FILE} is {kind}, and this dpaudit reads stores of version {VERSION} only; "
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
        table, required = statement.split()[2], set(_COLUMN.findall(statement))
        columns = plain_columns(db, table)
        if columns is None:
            raise StoreError(
                f"{where}: {table} is not a plain table; it is not read: restore {FILE}"
            )
        if missing := required - set(columns):
            raise StoreError(f"{where}: {table} has no column {min(missing)}; restore {FILE}")


def check_unchanged(db: sqlite3.Connection, *, where: str) -> None:
    """Check that the file has our tables and triggers, and no others.

    Writing to others would run the SQL of their author.

    Raises:
        StoreError: it has more, fewer or others.
    """
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as ours:
        create_tables(ours)
        expected = _objects(ours)
    odd = _objects(db) ^ expected
    if odd:
        kind, name = min(odd)[:2]
        raise StoreError(
            f"{where}: {kind} {quoted(name)} is not as dpaudit made it; "
            f"drop what was added to {FILE}, or choose another --out"
        )


_LOCK = ".lock"
_PATIENCE = 0.2  # seconds; `dpaudit runs list` holds a lock for microseconds while it looks
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def acquire(folder: Path) -> Lock:
    """The folder's lock, held until it is closed; the folder is made if need be.

    Raises:
        StoreError: another process holds it, the folder cannot be written, its file system has no
            locks, or its ``.lock`` is something else, such as a symbolic link.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder / _LOCK, patience=_PATIENCE)
    except HeldError as error:
        by = f" ({error})" if str(error) else ""
        raise StoreError(
            f"out={folder}: another run is using it{by}; wait for it or choose another --out"
        ) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EEXIST) and os.path.lexists(folder / _LOCK):
            rule = (
                f"its {_LOCK} is not a lock file of dpaudit; move that away or choose another --out"
            )
        elif error.errno in _NO_LOCKS:  # a network file system, where SQLite is not durable either
            rule = (
                f"its file system has no locks ({error.strerror}); choose an --out on a local disk"
            )
        else:
            rule = f"cannot be written ({error.strerror}); choose another --out"
        raise StoreError(f"out={folder}: {rule}") from error


def is_running(folder: Path) -> bool:
    """Whether a process on this machine holds the folder's lock; False if that is not readable."""
    return is_held(folder / _LOCK)


_WAIT = 30.0  # seconds for another connection's lock
_TRIES = 20


@contextlib.contextmanager
def store_errors(where: str) -> Iterator[None]:
    """SQLite's errors as a :class:`StoreError` with a fix; ``where`` is ``out=…`` or ``dir=…``."""
    try:
        yield
    except (*DAMAGE, RefusedError, OSError, OverflowError) as error:
        text = why(error)
        damaged = StoreError(
            f"{where}: {FILE} is not a dpaudit store, or is damaged ({text}); "
            "restore it, or start a new run in another folder"
        )
        if isinstance(error, RefusedError):  # its text may quote the file
            raise damaged from error
        if "append-only" in text:
            raise StoreError(
                f"{where}: {text}: what is in a store stays; start a new run in another folder"
            ) from error
        if "full" in text or "disk I/O" in text or "File too large" in text or "No space" in text:
            raise StoreError(
                f"{where}: {FILE} cannot be written ({text}); what was stored is kept: "
                "make room, then repeat the command with --resume"
            ) from error
        if "readonly" in text or "unable to open" in text or isinstance(error, OSError):
            raise StoreError(
                f"{where}: {FILE} cannot be opened ({text}); check its permissions"
            ) from error
        if "locked" in text or "busy" in text or "locking protocol" in text:
            raise StoreError(
                f"{where}: {FILE} is in use by another program ({text}); close that one"
            ) from error
        raise damaged from error


@contextlib.contextmanager
def reading_errors(*folders: Path) -> Iterator[None]:
    """What the code that shows stores of these folders raises, as a :class:`StoreError`."""
    try:
        yield
    except DpauditError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        RefusedError,
        TypeError,
        ValueError,
    ) as error:
        raise StoreError(
            f"dir={' or '.join(map(str, folders))}: {FILE} is not as dpaudit wrote it "
            f"({error_text(error, limit=200)}); restore it, or start a new run in another folder"
        ) from error


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; on disk when it ends without an error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk makes SQLite roll back by itself
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


def open_writer(path: Path) -> sqlite3.Connection:
    """A connection that writes; the file is made if need be, never through a link.

    Raises:
        RefusedError: there, or next to it, is something other than an SQLite file of ours.
    """
    if os.path.lexists(path):
        header(path, follow=False)
    db = sqlite3.connect(path, isolation_level=None, timeout=_WAIT)
    try:
        guard(db, size=size_of(path), longest=LONGEST_VALUE, writes=True)
        check_pages(db)
    except BaseException:
        db.close()
        raise
    return db


def lift_limits(db: sqlite3.Connection) -> None:
    """Lift the limits of a connection that writes, once its tables and triggers are known."""
    db.set_progress_handler(None, 0)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)


def open_reader(path: Path, *, where: str) -> sqlite3.Connection:
    """A connection that only reads.

    Works while a runner writes, and where neither file nor folder can be written. The file is not
    trusted: only plain tables are read, and queries end (:mod:`dpaudit.results.sqlite`).

    Raises:
        StoreError: not a store, or one of another version.
        RefusedError: not a plain file, or not one of SQLite's.
    """
    header(path, follow=False)
    db = _open_untrusted(path)
    try:
        check_pages(db)
        if not holds_store(db, where=where):
            raise StoreError(
                f"{where}: holds no results yet; its run has only begun, or died at once"
            )
        check_tables(db, where=where)
    except BaseException:
        db.close()
        raise
    return db


def _open_untrusted(path: Path) -> sqlite3.Connection:
    address = path.resolve().as_uri()
    db = sqlite3.connect(f"{address}?mode=rw", uri=True, isolation_level=None, timeout=_WAIT)
    try:
        guard(db, size=size_of(path), longest=LONGEST_VALUE)
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        if "readonly" not in str(error) and "unable to open" not in str(error):
            raise
    except BaseException:
        db.close()
        raise
    else:
        return db
    log = beside(path, "-wal")
    # nobody can write here, and everything is in the one file
    if not log.exists() or log.stat().st_size == 0:
        db = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True, isolation_level=None)
        guard(db, size=size_of(path), longest=LONGEST_VALUE)
        return db
    # SQLite must write next to it to read its log
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        # a writer that moves its log into the file meanwhile leaves half of each
        for _ in range(_TRIES):
            before = path.stat()
            for file in (path, log):
                shutil.copyfile(file, Path(folder) / file.name)
            if path.stat().st_mtime_ns == before.st_mtime_ns:
                break
        return _copy_in_memory(sqlite3.connect(Path(folder) / path.name, isolation_level=None))


def _copy_in_memory(db: sqlite3.Connection) -> sqlite3.Connection:
    """A copy of ``db``, which is closed."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(db):
        db.backup(copy)
    guard(copy, size=bytes_of(copy), longest=LONGEST_VALUE, writes=True)
    return copy


def bytes_of(db: sqlite3.Connection) -> int:
    """The size of a database, on disk or in memory."""
    (pages,), (size,) = (db.execute(f"PRAGMA page_{name}").fetchone() for name in ("count", "size"))
    return int(pages * size)


_MOST_FACTS = 100  # keys of a provenance, which every result has a dict of
_FACTOR, _SLACK = 8, 32 << 20


class Budget:
    """How much text a query may read from a file of ``size`` bytes: 8 times that, and 32 MiB."""

    def __init__(self, size: int) -> None:
        self._left = _FACTOR * size + _SLACK

    def charge(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """``row``, which counts at least four bytes.

        Raises:
            RefusedError: that is too much.
        """
        self._left -= 4 + sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if self._left < 0:
            raise RefusedError("gives more than a file of its size can hold")
        return row


class _Facts(Struct, frozen=True):
    """What every provenance must hold if it has it at all."""

    versions: Mapping[str, str] = msgspec.field(default_factory=dict)


class Provenances:
    """Every provenance of a run by its number, read on demand; results share what is in it.

    ``rows`` are (number, JSON text); the text of each one asked for counts against ``budget``.
    """

    def __init__(self, rows: Sequence[tuple[Any, ...]], *, budget: Budget) -> None:
        self._texts = dict(rows)
        self._budget = budget
        self._read: dict[Any, dict[str, Any]] = {}

    def at(self, number: object, started: object) -> dict[str, Any]:
        """That of one attempt, with its own start in its place.

        Raises:
            RefusedError: there is none, it is not a JSON object, its versions are not an object of
                texts, or it is larger than any that dpaudit writes.
        """
        text = self._texts.get(number)
        if number not in self._read:
            provenance = object_of("provenance", text)
            convert_value(provenance, _Facts, words=False)
            if len(provenance) > _MOST_FACTS:
                raise RefusedError(f"provenance has more than {_MOST_FACTS} keys")
            self._read[number] = provenance
        self._budget.charge((text,))
        provenance = self._read[number]
        return {**provenance, "started": started} if "started" in provenance else dict(provenance)


def object_of(name: str, text: object) -> dict[str, Any]:
    """The JSON object in a column.

    Raises:
        RefusedError: not a JSON object; the message begins with ``name``.
    """
    if not isinstance(text, str):
        raise RefusedError(f"{name}={quoted(text)} is not JSON text")
    try:
        value = read_json(text)
    except RefusedError as error:
        raise RefusedError(f"{name}: {error}") from error
    if not isinstance(value, dict):
        raise RefusedError(f"{name}={quoted(value)} is not a JSON object")
    return value


def read_rows(
    cls: type[T],
    names: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    provenances: Provenances,
) -> list[T]:
    """``rows``, whose columns are ``names``, as ``cls``, whose fields are among them.

    JSON is read where a field is a mapping. ``provenance``, a number that needs ``started`` in the
    same row, becomes the whole provenance.

    Raises:
        RefusedError: a value is not of its field's type, or infinite; the message says which.
    """
    objects = _json_fields(cls)  # type: ignore[arg-type]  # mypy: no class is hashable
    records = []
    for row in rows:
        values = dict(zip(names, row, strict=True))
        for name, value in values.items():
            if isinstance(value, float) and math.isinf(value):
                raise RefusedError(f"{name}={value} is not a finite number")
        for name in objects:
            if name == "provenance":
                values[name] = provenances.at(values[name], values["started"])
            elif values[name] is not None:
                values[name] = object_of(name, values[name])
        records.append(values)
    return convert_value(records, list[cls], words=False)  # type: ignore[valid-type]


@functools.cache
def _json_fields(cls: type) -> tuple[str, ...]:
    """The fields that hold JSON objects."""
    return tuple(
        name
        for name, kind in typing.get_type_hints(cls).items()
        if Mapping in (typing.get_origin(part) for part in (kind, *typing.get_args(kind)))
    )
