"""Files that are there whole or not at all, also after ``kill -9`` and power loss."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpaudit.errors import UsageError

__all__ = ["clear_leftovers", "durable_write", "sync_folder", "write_all"]

_PREFIX, _SUFFIX = ".dpaudit-", ".tmp"
_PIECE = 8 << 20


def durable_write(path: Path, data: Any | Iterable[Any], *, replace: bool = True) -> None:
    """Write ``data``, a buffer (bytes, a contiguous array: not copied) or an iterable of buffers, to ``path``; mode 0600.

    Written to a temporary file beside it, synced, renamed, and the folder synced: when this returns the file survives
    power loss, and until then ``path`` is what it was. With ``replace=False`` a file that is there already is left alone.

    Raises:
        UsageError: it cannot be written, or is there already and ``replace`` is false.
    """
    temporary = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for part in _buffers(data):
                write_all(fd, part)
            os.fsync(fd)
        finally:
            os.close(fd)
        if replace:
            os.rename(temporary, path)
        else:
            os.link(temporary, path)
            os.unlink(temporary)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise UsageError(f"file={path}: is there already, and is not overwritten") from error
    except OSError as error:
        raise UsageError(f"file={path}: cannot be written ({error.strerror})") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def clear_leftovers(folder: Path) -> int:
    """Remove what writers that were killed left in ``folder``; how many. Nobody may be writing there."""
    found = [p for p in folder.glob(f"{_PREFIX}*{_SUFFIX}") if p.is_file() and not p.is_symlink()]
    for path in found:
        path.unlink()
    return len(found)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _buffers(data: Any) -> Iterable[memoryview]:
    try:
        yield memoryview(data)
        return
    except TypeError:
        pass
    for part in data:
        yield memoryview(part)


def write_all(fd: int, part: memoryview) -> None:
    """Write every byte of a contiguous ``part``, however many a system call takes."""
    left = part.cast("B") if part.nbytes else memoryview(b"")
    while left:
        left = left[os.write(fd, left[:_PIECE]) :]
