"""The file formats of images, read without unpickling or writing: IDX, ``.npz``, tar."""

from __future__ import annotations

import gzip
import math
import struct
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.arrays import Archive
from dpaudit.results.foreign import RefusedError

__all__ = ["read_idx", "read_npz", "read_tar", "reading"]

_IDX_UINT8 = b"\x00\x00\x08"
_BROKEN = (
    *(OSError, EOFError, ValueError, KeyError, MemoryError, RuntimeError, OverflowError),
    *(RefusedError, tarfile.TarError, zlib.error, struct.error),
)


@contextmanager
def reading(data: str, path: Path) -> Iterator[None]:
    """Turn a reader's exception at a broken file into a UsageError that names ``path``."""
    try:
        yield
    except UsageError:
        raise
    except _BROKEN as error:
        raise UsageError(
            f"data={data}: {path} cannot be read as {data} ({error}); fetch it again"
        ) from error


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of an IDX file of bytes, plain or (``.gz``) compressed.

    A zero, a zero, 8 for unsigned bytes, the number of dimensions; each dimension as a big-endian
    32-bit number; then the values, and nothing after them (http://yann.lecun.com/exdb/mnist/).

    Raises:
        OSError, EOFError, ValueError, zlib.error: unreadable, or not that format to the last byte.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
        raw = _Bounded(stream, path).read()
    if raw[:3] != _IDX_UINT8 or len(raw) < 4:
        raise ValueError(
            f"it begins with {raw[:4].hex() or 'nothing'}, an IDX file of bytes with 000008"
        )
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise ValueError(f"it ends within its header of {start} bytes")
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise ValueError(
            f"its header says {shape}, {math.prod(shape)} values; it holds {len(raw) - start}"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


class _Bounded:
    """A stream of the file at ``path`` that unpacks to at most four times the file and 16 MiB."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
        self._stream, self._most = stream, 4 * path.stat().st_size + (16 << 20)
        self._left = self._most

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._most:,} bytes")
        return data


def read_npz(path: Path, *names: str) -> tuple[npt.NDArray[np.generic], ...]:
    """The arrays ``names`` of an ``.npz``; the others are not read.

    Raises:
        KeyError: one is not there.
        RefusedError, OSError, ValueError: unreadable, damaged, not numbers, or more than eight
            times the file and 32 MiB.
    """
    with Archive(path) as archive:
        return tuple(archive.read(name, most=8 * archive.size + (32 << 20)) for name in names)


def read_tar(path: Path, names: tuple[str, ...], *, size: int) -> Iterator[tuple[str, bytes]]:
    """The files ``names`` (without folders) of a ``.tar.gz``, in its order, as name and content.

    Nothing is written to disk. The archive is read to its end, where gzip's checksum is.

    Raises:
        OSError, EOFError, tarfile.TarError, zlib.error: unreadable.
        ValueError: a file of another size than ``size`` bytes, or not all of them, once each.
    """
    wanted = set(names)
    with gzip.open(path) as stream:
        bounded: Any = _Bounded(stream, path)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name not in wanted or not member.isreg():
                    continue
                if member.size != size:
                    raise ValueError(f"{member.name} has {member.size} bytes, not {size}")
                wanted.remove(name)
                content = archive.extractfile(member)
                yield name, content.read() if content else b""
        while bounded.read(1 << 20):
            pass
    if wanted:
        raise ValueError(f"it has no {', '.join(sorted(wanted))}")
