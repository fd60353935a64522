"""Lock files that the kernel releases when the process that holds them ends."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import time
from pathlib import Path
from typing import Self

from dpaudit.results.text import one_line

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["HeldError", "Lock", "is_held"]

_LONGEST = 300
_OURS = re.compile(rb"(process \d+ on [^\n]*\n)?")
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"))


class HeldError(BlockingIOError):
    """Another process holds the lock; the message names it if the file does, else it is empty."""


class Lock:
    """The lock file ``path``, held until :meth:`close`, the end of a ``with`` or of the process.

    Formal guarantee: at most one open :class:`Lock` per file, among the processes of a machine.
    Only a regular file with one name that is empty, or holds the text of a dpaudit lock, is ever
    written to; a symbolic link is not followed. The file stays when the lock is released.
    """

    def __init__(self, path: Path, *, patience: float | None = 0.0, mode: int = 0o666) -> None:
        """Take the lock, waiting ``patience`` seconds at most (None: no limit).

        A missing file is made with ``mode``.

        Raises:
            HeldError: another process holds it.
            OSError: it cannot be made or locked, is not a lock file, or the system has no ``fcntl``
                (Windows).
        """
        if fcntl is None:
            why = "This system has no file locks for dpaudit; use Linux or macOS"
            raise OSError(errno.ENOSYS, why, str(path))
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, mode)
        try:
            self._check(path)
            self._take(patience)
            self._check(path)
            with contextlib.suppress(OSError):  # a full disk: the lock holds without the text
                holder = f"process {os.getpid()} on {one_line(socket.gethostname())}\n"
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, holder.encode(), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock. May be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def _check(self, path: Path) -> None:
        facts = os.fstat(self._fd)
        if not (
            stat.S_ISREG(facts.st_mode) and facts.st_nlink <= 1 and _OURS.fullmatch(self._words())
        ):
            raise OSError(errno.EEXIST, "Not a lock file of dpaudit", str(path))

    def _take(self, patience: float | None) -> None:
        if patience is None:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            return
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise HeldError(one_line(self._words().decode(errors="replace"))) from None
            time.sleep(0.02)

    def _words(self) -> bytes:
        return os.pread(self._fd, _LONGEST, 0)


def is_held(path: Path) -> bool:
    """Whether a process of this machine holds the lock file now; False if that cannot be told."""
    if fcntl is None:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False
