"""Opens somebody's SQLite file so that nothing beside it or in it can change."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dpaudit.deployments.apple.quoting import path_text
from dpaudit.errors import UsageError

__all__ = ["DAMAGE", "bound_steps", "open_read_only", "why"]

DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises; the second where sqlite3's own message quotes bytes that are no UTF-8."""

_MAGIC = b"SQLite format 3\x00"
_WAL = 2  # bytes 18 and 19 of the header: the versions needed to write and to read
_PATIENCE = 2.0
_LONGEST_VALUE = 1 << 20
_STEPS, _STEPS_A_BYTE = 50_000_000, 50
"""Of SQLite's machine, for one table: a row of 50 bytes takes about 300."""
_STEPS_BETWEEN = 1_000_000


@contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in one read transaction; neither the file nor its folder is written to.

    SQLite itself would: in WAL mode a reader makes ``-shm`` and ``-wal`` files, and after a crash the first reader rolls
    the ``-journal`` back. So a file in WAL mode that nobody has open is read as immutable; one with a ``-wal`` or
    ``-shm`` beside it, or with a journal to be rolled back, is read from a copy in a private temporary folder; any
    other is opened with ``mode=ro``, which takes only a shared lock. Locked by a writer, it is waited for 2 s at most.

    Not claimed: that a file that is both immutable to us and changed under us is always noticed (size, time of change and
    inode are compared before and after).

    Raises:
        UsageError: no plain file, empty, not SQLite, locked, changed while it was read, or no right to read it.
    """
    before = _state(path)
    wal = _header(path)
    beside = {ending: _size(path, ending) for ending in ("-wal", "-shm", "-journal")}
    if not wal:
        try:
            with _connected(path, "mode=ro") as connection:
                yield connection
                return
        except _HotJournalError:
            pass
    elif not beside["-wal"] and beside["-shm"] is None:
        with _connected(path, "mode=ro&immutable=1") as connection:
            yield connection
        _unchanged(path, before)
        return
    with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
        copy = Path(folder) / "copy.sqlite"
        _copy(path, copy)
        _unchanged(path, before)
        with _connected(copy, "mode=rw", name=path) as connection:
            yield connection


def bound_steps(connection: sqlite3.Connection) -> None:
    """From now on give up (an error of :data:`DAMAGE`) after more steps than a file of this size has rows for.

    SQLite does not notice pages that are referred to many times over; twenty levels of them hold 10^50 rows in 100 kB.
    """
    pages, size = (int(connection.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_count", "page_size"))
    left = 1 + (_STEPS + _STEPS_A_BYTE * pages * size) // _STEPS_BETWEEN

    def used_up() -> int:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(used_up, _STEPS_BETWEEN)


def why(error: Exception) -> str:
    """What an error of :data:`DAMAGE` says."""
    interrupted = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
    return "it has more rows than a file of its size can hold" if interrupted else str(error)


class _HotJournalError(Exception):
    """A transaction was cut off and must be rolled back before reading."""


def _refuse(path: Path, why: str) -> UsageError:
    return UsageError(f"database={path_text(path)}: {why}")


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise _refuse(path, f"cannot be read ({getattr(error, 'strerror', None) or error}); check the path") from None
    if not stat.S_ISREG(found.st_mode):
        raise _refuse(path, "not a plain file; give the database file itself")
    return found.st_ino, found.st_size, found.st_mtime_ns


def _unchanged(path: Path, before: tuple[int, int, int]) -> None:
    if _state(path) != before:
        raise _refuse(path, "changed while it was read; stop the daemon or copy the file, then read again")


def _header(path: Path) -> bool:
    """Whether the file is in WAL mode."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise _refuse(path, f"cannot be read ({error.strerror}); it needs the owner's rights") from None
    if not head:
        raise _refuse(path, "an empty file; it holds no table")
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise _refuse(path, "not an SQLite database (its first bytes are others); give the daemon's database file")
    return _WAL in (head[18], head[19])


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _size(path: Path, ending: str) -> int | None:
    try:
        return _beside(path, ending).stat().st_size
    except OSError:
        return None


def _copy(path: Path, copy: Path) -> None:
    try:
        shutil.copyfile(path, copy)
        for ending in ("-wal", "-journal"):
            if _size(path, ending):
                shutil.copyfile(_beside(path, ending), _beside(copy, ending))
    except OSError as error:
        raise _refuse(path, f"cannot be copied to be read ({error.strerror}); see to rights and space") from None


@contextmanager
def _connected(path: Path, how: str, *, name: Path | None = None) -> Iterator[sqlite3.Connection]:
    shown = name or path
    try:
        uri = f"{Path(os.path.abspath(path)).as_uri()}?{how}"
        with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            connection.execute("PRAGMA query_only = ON").close()
            connection.execute("PRAGMA trusted_schema = OFF").close()
            connection.execute("BEGIN").close()
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            bound_steps(connection)
            yield connection
    except DAMAGE as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise _HotJournalError from None
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            raise _refuse(
                shown, f"locked by another program for {_PATIENCE:g} s; stop it, or read a copy of the file"
            ) from None
        raise _refuse(shown, f"cannot be read as SQLite ({why(error)}); it is damaged or not complete") from None
