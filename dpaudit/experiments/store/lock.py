"""One runner a folder: a lock on ``.lock`` that the kernel lets go of when its process dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

from dpaudit.errors import StoreError

__all__ = ["acquire", "is_running"]

_FILE = ".lock"
_PATIENCE = 0.2  # seconds; `dpaudit runs list` holds a lock for microseconds while it looks


def acquire(folder: Path) -> IO[str]:
    """The folder's lock, held until the file is closed; the folder is made if need be.

    Raises:
        StoreError: another process holds it, the folder cannot be written, or its file system has no locks.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"out={folder}: cannot be written ({error.strerror}); choose another --out") from error
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() < until:
                time.sleep(0.02)
                continue
            lock.seek(0)
            who = lock.readline(200).strip()
            lock.close()
            by = f" ({who})" if who.isprintable() and who else ""
            raise StoreError(
                f"out={folder}: another run is using it{by}; wait for it or choose another --out"
            ) from error
        except OSError as error:  # a network file system without locks: SQLite could not keep its word there either
            lock.close()
            raise StoreError(
                f"out={folder}: its file system has no locks ({error.strerror}); choose an --out on a local disk"
            ) from error
    with contextlib.suppress(OSError):  # a full disk: the lock holds without the words
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
    return lock


def is_running(folder: Path) -> bool:
    """Whether some process on this machine holds the folder's lock now; False where nobody may tell."""
    try:
        with (folder / _FILE).open("r", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except OSError:
        return False
    return False
