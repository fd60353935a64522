"""Atomic files, read without unpickling, and locks against a second process."""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from dpaudit.errors import UsageError
from dpaudit.results.files import write_file
from dpaudit.results.locks import HeldError, Lock
from dpaudit.results.text import tell

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


def write_atomically(
    path: Path, write: Callable[[IO[bytes]], object], *, what: str = "out"
) -> None:
    """Write ``path`` with ``write``, completely or not at all.

    Raises:
        UsageError: the folder cannot be made or written, or the disk is full; ``what`` names the
            option.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, write)
    except OSError as error:
        raise UsageError(
            f"{what}={path}: cannot be written ({error.strerror}); choose another place"
        ) from error


def read_tensors(source: Path | IO[bytes], *, name: str) -> Any:
    """Tensors and plain values from a file of ``torch.save``, on the CPU; executes nothing in it.

    ``name`` is the file as its user knows it, ``option=path``.

    Raises:
        UsageError: there is no such file, or it holds something else.
    """
    try:
        with warnings.catch_warnings():
            # torch warns of foreign formats, which are refused anyway
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file; dpaudit train MODEL makes one") from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror})") from error
    except _UNREADABLE as error:  # torch's own message would advise unpickling
        raise UsageError(
            f"{name}: holds more, or other, than tensors and plain values, and was not loaded"
        ) from error


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of ``path``, ``.NAME.dpaudit-lock`` next to it; stderr says if it waits.

    Raises:
        UsageError: another process holds it and ``wait`` is False, or it cannot be made.
    """
    name = path.with_name(f".{path.name}.dpaudit-lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = Lock(name)
        except HeldError as held:
            if not wait:
                by = f" ({held})" if str(held) else ""
                raise UsageError(
                    f"out={path}: another process is writing it{by}; "
                    "wait for it or choose another --out"
                ) from None
            tell(f"{path}: waiting for the process that holds {name}")
            lock = Lock(name, patience=None)
    except OSError as error:
        raise UsageError(
            f"out={path}: cannot be written ({error.strerror}: {name}); choose another place"
        ) from error
    with lock:
        yield
