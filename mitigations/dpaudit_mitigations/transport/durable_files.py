"""Files of mode 0600 that are there whole or not at all, also after ``kill -9`` and power loss."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from dpaudit.errors import UsageError
from dpaudit.results.files import write_file

__all__ = ["durable_write", "write_all"]

_PIECE = 8 << 20


def durable_write(path: Path, data: Any | Iterable[Any], *, replace: bool = True) -> None:
    """Write ``data``, a buffer (bytes, a contiguous array: not copied) or an iterable of buffers, to ``path``; mode 0600.

    As :func:`~dpaudit.results.files.write_file`: when this returns the file survives power loss, and until then ``path`` is
    what it was. With ``replace=False`` a file that is there already is left alone.

    Raises:
        UsageError: it cannot be written, or is there already and ``replace`` is false.
    """

    def parts(file: BinaryIO) -> None:
        for part in _buffers(data):
            write_all(file.fileno(), part)

    try:
        write_file(path, parts, mode=0o600, replace=replace)
    except FileExistsError as error:
        raise UsageError(f"file={path}: is there already, and is not overwritten") from error
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


def write_all(fd: int, part: memoryview) -> None:
    """Write every byte of a contiguous ``part``, however many a system call takes."""
    left = part.cast("B") if part.nbytes else memoryview(b"")
    while left:
        left = left[os.write(fd, left[:_PIECE]) :]
