"""One runner per folder; SQLite connections that write durably or only read; clear errors."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dpaudit.errors import DpauditError, StoreError
from dpaudit.experiments.store.schema import FILE, LONGEST_VALUE, check_tables, holds_store
from dpaudit.results.foreign import RefusedError
from dpaudit.results.locks import HeldError, Lock, is_held
from dpaudit.results.sqlite import DAMAGE, beside, check_pages, guard, header, size_of, why
from dpaudit.results.text import error_text

__all__ = [
    "Lock",
    "acquire",
    "as_written",
    "bytes_of",
    "is_running",
    "reading",
    "telling",
    "transaction",
    "trust",
    "writing",
]

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
def telling(where: str) -> Iterator[None]:
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
def as_written(*folders: Path) -> Iterator[None]:
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


def writing(path: Path) -> sqlite3.Connection:
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


def trust(db: sqlite3.Connection) -> None:
    """Lift the limits of a connection that writes, once its tables and triggers are known."""
    db.set_progress_handler(None, 0)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)


def reading(path: Path, *, where: str) -> sqlite3.Connection:
    """A connection that only reads.

    Works while a runner writes, and where neither file nor folder can be written. The file is not
    trusted: only plain tables are read, and queries end (:mod:`dpaudit.results.sqlite`).

    Raises:
        StoreError: it is no store, or of another version.
        RefusedError: it is no plain file, or none of SQLite's.
    """
    header(path, follow=False)
    db = _opened(path)
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


def _opened(path: Path) -> sqlite3.Connection:
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
        return _in_memory(sqlite3.connect(Path(folder) / path.name, isolation_level=None))


def _in_memory(db: sqlite3.Connection) -> sqlite3.Connection:
    """A copy of ``db``, which is closed."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(db):
        db.backup(copy)
    guard(copy, size=bytes_of(copy), longest=LONGEST_VALUE, writes=True)
    return copy


def bytes_of(db: sqlite3.Connection) -> int:
    """The size of a database, on disk or in memory."""
    (pages,), (size,) = (db.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size"))
    return int(pages * size)
