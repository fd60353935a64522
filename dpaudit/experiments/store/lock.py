"""One runner a folder: a lock on ``.lock`` that the kernel lets go of when its process dies, however it dies."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dpaudit.errors import StoreError
from dpaudit.results.locks import HeldError, Lock, is_held

__all__ = ["Lock", "acquire", "is_running"]

_FILE = ".lock"
_PATIENCE = 0.2  # seconds; `dpaudit runs list` holds a lock for microseconds while it looks
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def acquire(folder: Path) -> Lock:
    """The folder's lock, held until it is closed; the folder is made if need be.

    Raises:
        StoreError: another process holds it, the folder cannot be written, its file system has no locks, or its ``.lock`` is
            something else, such as a symbolic link.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder / _FILE, patience=_PATIENCE)
    except HeldError as error:
        by = f" ({error})" if str(error) else ""
        raise StoreError(f"out={folder}: another run is using it{by}; wait for it or choose another --out") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EEXIST) and os.path.lexists(folder / _FILE):
            rule = f"its {_FILE} is not a lock file of dpaudit; move that away or choose another --out"
        elif error.errno in _NO_LOCKS:  # a network file system: SQLite could not keep its word there either
            rule = f"its file system has no locks ({error.strerror}); choose an --out on a local disk"
        else:
            rule = f"cannot be written ({error.strerror}); choose another --out"
        raise StoreError(f"out={folder}: {rule}") from error


def is_running(folder: Path) -> bool:
    """Whether some process on this machine holds the folder's lock now; False where nobody may tell."""
    return is_held(folder / _FILE)
