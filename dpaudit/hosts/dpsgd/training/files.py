"""Files that are whole or not there, read without unpickling, and locks against a second process."""

from __future__ import annotations

import fcntl
import os
import pickle
import secrets
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch

from dpaudit.errors import UsageError

__all__ = ["locked", "read_tensors", "write_atomically"]

_UNREADABLE = (  # what torch.load raises on broken, foreign or hostile files
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    AssertionError,
    AttributeError,
    ArithmeticError,
    BufferError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, what: str = "out") -> None:
    """Give ``path`` what ``write`` puts into an open file, all of it or, whatever happens, none.

    Written to a new file beside it, synced to the disk and renamed.

    Raises:
        UsageError: the folder cannot be made or written, or the disk is full; ``what`` names the option.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{what}={path}: cannot be written ({error.strerror}); choose another place") from error
    finally:
        with suppress(OSError):  # there is none where nothing could be written
            part.unlink()


def read_tensors(source: Path | IO[bytes], *, name: str) -> Any:
    """Tensors and plain values from a file of ``torch.save``, onto the CPU; anything else in it is refused, not run.

    ``name`` is the file as its user knows it, ``option=path``.

    Raises:
        UsageError: there is no such file, or it holds something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on foreign formats, which are refused all the same
            return torch.load(source, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file; dpaudit train MODEL makes one") from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror})") from error
    except _UNREADABLE as error:  # torch's own words would advise to unpickle it all the same
        raise UsageError(f"{name}: holds more, or other, than tensors and plain values, and was not loaded") from error


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file ``path``; the system lets go of it with the process. Waiting is said on stderr.

    Raises:
        UsageError: another process holds it and ``wait`` is False, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise UsageError(f"out={path}: cannot be written ({error.strerror}); choose another place") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise UsageError(
                    f"out={path}: another process holds this lock, so it is at work here; wait for it or choose another --out"
                ) from None
            print(f"{path}: waiting for the process that holds this lock", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
