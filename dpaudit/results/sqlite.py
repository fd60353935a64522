"""Read untrusted SQLite files: checks before they are opened, and limits while they are read.

A file's schema may hold views that recurse without end, virtual tables, computed columns and
triggers; its pages may be damaged, or refer to one page many times over; a value may be huge; and
SQLite's files beside it may be links to something else.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line

__all__ = [
    "BESIDE",
    "DAMAGE",
    "beside",
    "bound_steps",
    "check_pages",
    "guard",
    "header",
    "plain_columns",
    "size_of",
    "why",
]

DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises; the second if sqlite3's message quotes bytes not in UTF-8."""

BESIDE = ("-wal", "-shm", "-journal")
"""The endings of the files that SQLite keeps beside a database."""

_MAGIC = b"SQLite format 3\x00"
_STEPS, _STEPS_A_BYTE = 50_000_000, 50
"""Of SQLite's virtual machine, for one query: a row of 50 bytes takes about 300."""
_STEPS_BETWEEN = 1_000_000
_SMALL = 1 << 20  # bytes of a value that any file may have


def beside(path: Path, ending: str) -> Path:
    """SQLite's own file beside ``path``."""
    return path.with_name(path.name + ending)


def header(path: Path, *, follow: bool = True) -> bytes:
    """The first 100 bytes of a database; none of an empty file.

    Raises:
        RefusedError: it is not a plain file, cannot be read, or does not begin as SQLite's files
            do. With ``follow=False`` also: it, or a file of SQLite's beside it, is a symbolic link
            or not a plain file.
    """
    with open_plain(path, follow=follow) as file:
        try:
            head = file.read(100)
        except OSError as error:
            raise RefusedError(f"cannot be read ({error.strerror})") from error
    if head and (len(head) < 100 or not head.startswith(_MAGIC)):
        raise RefusedError("not an SQLite database (its first bytes are others)")
    for other in () if follow else (beside(path, ending) for ending in BESIDE):
        try:
            plain = stat.S_ISREG(other.lstat().st_mode)
        except FileNotFoundError:
            continue
        if not plain:
            raise RefusedError(f"{other.name} beside it is not a plain file")
    return head


def size_of(path: Path) -> int:
    """Bytes of a database and its log; 0 where there is none."""
    total = 0
    for file in (path, beside(path, "-wal")):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total


def guard(connection: sqlite3.Connection, *, size: int, longest: int, writes: bool = False) -> None:
    """Prepare a connection, before its first query, to read a file of ``size`` bytes.

    Nothing is written, unless ``writes``; no function of ours runs from the schema; no value is
    longer than ``longest`` bytes, or than the file; a query stops as :func:`bound_steps` says;
    bytes that are not UTF-8 become escapes. Not claimed: that the schema's tables are tables, see
    :func:`plain_columns`.
    """
    connection.text_factory = _text
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(longest, max(size, _SMALL)))
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    bound_steps(connection, size=size)
    for setting in ("query_only", "ignore_check_constraints"):
        connection.execute(f"PRAGMA {setting} = {'OFF' if writes else 'ON'}").close()
    connection.execute("PRAGMA trusted_schema = OFF").close()
    connection.execute("PRAGMA cell_size_check = ON").close()


def check_pages(connection: sqlite3.Connection) -> None:
    """Check that each page is used once and every row lies within its page.

    Reads the whole file: one second for 500 MB.

    Raises:
        sqlite3.DatabaseError: not so: a small file could hold rows without end.
    """
    ((answer,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if answer != "ok":
        raise sqlite3.DatabaseError(str(answer)[:200])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def bound_steps(connection: sqlite3.Connection, *, size: int) -> None:
    """Stop each query (an error of :data:`DAMAGE`) after more steps than ``size`` bytes can need.

    SQLite does not notice pages that are referred to many times over; twenty levels of them hold
    10^50 rows in 100 kB.
    """
    remaining = 1 + (_STEPS + _STEPS_A_BYTE * size) // _STEPS_BETWEEN

    def used_up() -> int:
        nonlocal remaining
        remaining -= 1
        return remaining < 0

    connection.set_progress_handler(used_up, _STEPS_BETWEEN)


def why(error: Exception) -> str:
    """The message of an error of :data:`DAMAGE`, made printable: SQLite quotes the schema."""
    interrupted = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
    return "it has more rows than a file of its size can hold" if interrupted else one_line(error)


def plain_columns(connection: sqlite3.Connection, table: str) -> Iterator[str] | None:
    """The names of a table's columns, as the file writes them; empty if there is no such table.

    None if it is a view, a virtual table or has computed columns: reading it would run its author's
    expressions.
    """
    column = connection.execute(
        "SELECT type, sql FROM sqlite_master WHERE upper(name) = upper(?)", (table,)
    ).fetchone()
    if column is None:
        return iter(())
    rows = (
        connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        if column[0] == "table"
        else []
    )
    if (
        not rows
        or str(column[1]).lstrip().upper().startswith("CREATE VIRTUAL")
        or any(row[6] for row in rows)
    ):
        return None
    return (str(row[1]) for row in rows)
