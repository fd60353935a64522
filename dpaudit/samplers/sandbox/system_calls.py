"""System calls that Python has no name for. Linux only.

Numbers given out since Linux 5.0 are the same on every processor.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["call", "prctl", "syscall"]

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """A function of the C library that returns a negative number on failure.

    Raises:
        OSError: it failed.
    """
    done: int = getattr(_libc, name)(*arguments)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def syscall(number: int, *arguments: object) -> int:
    """A system call by its number; whole numbers are passed in full width.

    Raises:
        OSError: it failed.
    """
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)]
    return call("syscall", *wide)


def prctl(option: int, *arguments: int) -> int:
    """``prctl(2)``; missing arguments are 0.

    Raises:
        OSError: it failed.
    """
    values = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return call("prctl", ctypes.c_int(option), *values)
