"""Opens a third party's SQLite file without changing it or its folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError
from dpaudit.results.sqlite import BESIDE, DAMAGE, beside, guard, header, size_of, why
from dpaudit_local.apple.quoting import path_text

__all__ = ["open_read_only"]

_WAL = 2  # bytes 18 and 19 of the header: the versions needed to write and to read
_PATIENCE = 2.0
_LONGEST_VALUE = 1 << 20


@contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in one read transaction; neither the file nor its folder is written to.

    SQLite itself would write: in WAL mode a reader makes ``-shm`` and ``-wal`` files, and after a
    crash the first reader rolls the ``-journal`` back. So a file in WAL mode that no program has
    open is read as immutable; one with a ``-wal`` or ``-shm`` next to it, or with a journal to be
    rolled back, is read from a copy in a private temporary folder; any other is opened with
    ``mode=ro``, which takes only a shared lock. If a writer has locked it, we wait at most 2 s.

    Not claimed: that a change of a file that we read as immutable is always noticed (size,
    modification time and inode are compared before and after).

    Raises:
        UsageError: not a plain file, empty, not SQLite, locked, changed while it was read, or not
            readable.
    """
    before = _state(path)
    wal = _in_wal_mode(path)
    sizes = {ending: _size(path, ending) for ending in BESIDE}
    if not wal:
        try:
            with _connect(path, "mode=ro") as connection:
                yield connection
                return
        except _HotJournalError:
            pass
    elif not sizes["-wal"] and sizes["-shm"] is None:
        with _connect(path, "mode=ro&immutable=1") as connection:
            yield connection
        _check_unchanged(path, before)
        return
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        copy = Path(folder) / "copy.sqlite"
        _copy(path, copy)
        _check_unchanged(path, before)
        with _connect(copy, "mode=rw", name=path) as connection:
            yield connection


class _HotJournalError(Exception):
    """A transaction was interrupted and must be rolled back before reading."""


def _refuse(path: Path, why: str) -> UsageError:
    return UsageError(f"database={path_text(path)}: {why}")


def _state(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise _refuse(
            path, f"cannot be read ({getattr(error, 'strerror', None) or error}); check the path"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise _refuse(path, "not a plain file; give the database file itself")
    return status.st_ino, status.st_size, status.st_mtime_ns


def _check_unchanged(path: Path, before: tuple[int, int, int]) -> None:
    if _state(path) != before:
        raise _refuse(
            path, "changed while it was read; stop the daemon or copy the file, then read again"
        )


def _in_wal_mode(path: Path) -> bool:
    try:
        head = header(path)
    except RefusedError as error:
        raise _refuse(path, f"{error}; give the daemon's database file, as its owner") from None
    if not head:
        raise _refuse(path, "an empty file; it holds no table")
    return _WAL in (head[18], head[19])


def _size(path: Path, ending: str) -> int | None:
    try:
        return beside(path, ending).stat().st_size
    except OSError:
        return None


def _copy(path: Path, copy: Path) -> None:
    try:
        shutil.copyfile(path, copy)
        for ending in ("-wal", "-journal"):
            if _size(path, ending):
                shutil.copyfile(beside(path, ending), beside(copy, ending))
    except OSError as error:
        raise _refuse(
            path, f"cannot be copied ({error.strerror}); check permissions and disk space"
        ) from None


@contextmanager
def _connect(path: Path, how: str, *, name: Path | None = None) -> Iterator[sqlite3.Connection]:
    place = name or path
    try:
        uri = f"{Path(os.path.abspath(path)).as_uri()}?{how}"
        with closing(
            sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        ) as connection:
            guard(connection, size=size_of(path), longest=_LONGEST_VALUE)
            connection.execute("BEGIN").close()
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            yield connection
    except DAMAGE as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise _HotJournalError from None
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            raise _refuse(
                place,
                f"locked by another program for {_PATIENCE:g} s; stop it, or read a copy",
            ) from None
        raise _refuse(
            place, f"cannot be read as SQLite ({why(error)}); it is damaged or incomplete"
        ) from None
