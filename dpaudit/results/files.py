"""Write files atomically: whole or absent, also after ``kill -9`` and power loss."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["clear_leftovers", "sync_folder", "write_file"]

_PREFIX, _SUFFIX = ".dpaudit-", ".tmp"
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def write_file(
    path: Path,
    content: str | bytes | Callable[[BinaryIO], object],
    *,
    mode: int | None = None,
    replace: bool = True,
) -> Path:
    r"""Write text (UTF-8), bytes, or what ``content`` writes into an open file, to ``path``.

    A new file in the same folder is written, synced and renamed, and the folder synced: when this
    returns the file survives power loss, and until then ``path`` is what it was. No link is
    followed: one at ``path`` is replaced. With ``replace=False`` an existing ``path`` is left alone
    (on a file system without hard links a reader may then see an empty file for a moment). ``mode``
    is set as given (0o600 for a secret), except on Windows; without it the umask decides. Lone
    surrogates become ``\udcxx``.

    Raises:
        FileExistsError: ``path`` exists and ``replace`` is false.
        OSError: it cannot be written, or is a device, a pipe or a folder; it is unchanged.
    """
    if path.exists() and not path.is_file():  # such as /dev/stdout, which a rename would replace
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    part = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    try:
        with open(os.open(part, flags, 0o666 if mode is None else mode), "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(part, path)
        else:
            _name(part, path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # renamed, or never made
            os.unlink(part)
    return path


def clear_leftovers(folder: Path) -> int:
    """Remove what killed writers left in ``folder``, and count it. Nobody may be writing there."""
    leftovers = [
        p for p in folder.glob(f"{_PREFIX}*{_SUFFIX}") if p.is_file() and not p.is_symlink()
    ]
    for path in leftovers:
        path.unlink()
    return len(leftovers)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable; does nothing on Windows, which cannot open a folder."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _name(part: Path, path: Path) -> None:
    """Give the finished file its name, unless something has it."""
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600))
        os.replace(part, path)
