"""Read arrays of numbers from untrusted ``.npy`` and ``.npz`` files.

Nothing is unpickled and no header is evaluated: it is matched against the few forms that one plain
array of numbers has. What it declares is compared with the size of the file before anything is
allocated. Text of the file that gets into an error is made printable.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1.0 to 3.0.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line

__all__ = ["Archive", "Header", "fill", "map_npy", "read_npy"]

Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 12
_MOST_DIMENSIONS = 32
_LARGEST_DIRECTORY = 1 << 20  # bytes of an archive's directory, some 10,000 members
_PIECE = 1 << 20  # bytes unpacked at a time
_EXPANSION = 1100  # DEFLATE makes at most 1,032 bytes of one
_ITEM = r"""['"](descr|fortran_order|shape)['"]\s*:\s*('[^']*'|"[^"]*"|True|False|\([\dL,\s]*\))"""
_HEADER = re.compile(rf"\{{\s*{_ITEM}\s*,\s*{_ITEM}\s*,\s*{_ITEM}\s*(?:,\s*)?\}}\s*", re.ASCII)
_NUMBERS = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f(?:2|4|8|12|16))", re.ASCII)
_EXTENT = re.compile(r"\s*(\d{1,19})L?\s*", re.ASCII)
_BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error),
    *(EOFError, KeyError, OverflowError, RuntimeError),  # RuntimeError: a password, or unsupported
)


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says of its array.

    It is not empty and has at most 32 dimensions; ``dtype`` is a real number's or bool. ``offset``
    is where the values start, ``by_column`` whether the first index varies fastest.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_column: bool
    offset: int

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return self.count * self.dtype.itemsize


def read_npy(path: Path, *, name: str) -> Array:
    """The array of real numbers or bools in a ``.npy`` file, in this machine's byte order.

    It is read into memory: as many bytes as the file has. ``name`` is what errors call the file.

    Raises:
        UsageError: it cannot be read, is not such a file to the last byte, or does not fit in
            memory.
    """
    with _told(path, name), open_plain(path) as file:
        header = _header(file, os.fstat(file.fileno()).st_size)
        return _read(file, header)


def map_npy(path: Path) -> Array:
    """The array of a ``.npy`` file, mapped for reading; the file must not shrink meanwhile.

    Raises:
        RefusedError, OSError, ValueError: as :func:`read_npy`, but without the file's name.
    """
    with open_plain(path) as file:
        header = _header(file, os.fstat(file.fileno()).st_size)
        return np.memmap(
            file,
            dtype=header.dtype,
            mode="r",
            offset=header.offset,
            shape=header.shape,
            order="F" if header.by_column else "C",
        )


class Archive:
    """The arrays of a ``.npz``, each unpacked on request. A context manager; or :meth:`close` it.

    Members are stored or deflated, none encrypted; the directory has at most 1 MiB and no duplicate
    names. ``size`` is the file's in bytes, ``names`` are the arrays' in order.
    """

    def __init__(self, path: Path) -> None:
        """Open it and read its directory.

        Raises:
            RefusedError, OSError, ValueError: it cannot be read, or is not such an archive.
        """
        self._file = _Guarded(path)
        try:
            self.size = self._file.size
            with _plain_words():
                self._zip = zipfile.ZipFile(self._file)
            members = [info.filename for info in self._zip.infolist()]
            if len(set(members)) != len(members):
                raise ValueError("two members have one name; write it again with numpy.savez")
            self.names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
        except BaseException:
            self._file.close()
            raise

    def open(self, name: str) -> tuple[Header, io.BufferedIOBase]:
        """The header of array ``name``, and the stream of its values, to be read with :func:`fill`.

        Raises:
            KeyError: there is no such array.
            ValueError: it is not one array of numbers, or cannot be as long as it says.
        """
        if name not in self.names:
            raise KeyError(name)
        info = self._zip.getinfo(f"{name}.npy")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(
                f"compression {info.compress_type}, wanted 0 or 8: write it with numpy.savez"
            )
        if info.compress_size > self.size or info.file_size > _EXPANSION * info.compress_size:
            raise ValueError(f"{info.compress_size:,} bytes cannot unpack to {info.file_size:,}")
        with _plain_words():
            stream: Any = self._zip.open(info)  # typeshed says IO; it is a BufferedIOBase
            return _header(stream, info.file_size), stream

    def read(self, name: str, *, most: int) -> Array:
        """The array ``name`` in memory, in this machine's byte order, its checksum verified.

        Raises:
            KeyError: there is no such array.
            ValueError: as :meth:`open`, it unpacks to more than ``most`` bytes, or is damaged.
        """
        header, stream = self.open(name)
        with contextlib.closing(stream):
            if header.size > most:
                raise ValueError(
                    f"{one_line(name, limit=40)} unpacks to {header.size:,} bytes, more than "
                    f"{most:,} from a file of {self.size:,}; save it with numpy.savez, uncompressed"
                )
            return _read(stream, header)

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fill(values: Array, stream: io.BufferedIOBase) -> None:
    """Fill the C-contiguous ``values`` with the next bytes of ``stream``.

    Raises:
        ValueError: the stream is too short, or damaged.
    """
    view = values.reshape(-1).view(np.uint8)
    while view.size:
        with _plain_words():
            got = stream.readinto(view[:_PIECE].data)
        if not got:
            raise ValueError("it ends before its last value")
        view = view[got:]


class _Guarded(io.FileIO):
    """A plain file that reads at most 1 MiB at once, whatever size its directory claims."""

    def __init__(self, path: Path) -> None:
        with open_plain(path) as file:
            super().__init__(os.dup(file.fileno()))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1) -> bytes:
        length = self.size - self.tell() if size is None or size < 0 else size
        if length > _LARGEST_DIRECTORY:
            raise ValueError(f"its directory has more than {_LARGEST_DIRECTORY:,} bytes")
        return super().read(max(length, 0)) or b""


def _read(stream: io.BufferedIOBase, header: Header) -> Array:
    try:
        values = np.empty(header.count, dtype=header.dtype)
    except MemoryError:
        raise ValueError(f"{header.size:,} bytes do not fit in memory") from None
    fill(values, stream)
    with _plain_words():
        if stream.read(1):  # at the end of an archive's member its checksum is compared
            raise ValueError("bytes after its last value")
    if not header.dtype.isnative:
        values = values.byteswap(inplace=True).view(header.dtype.newbyteorder("="))
    return values.reshape(header.shape, order="F" if header.by_column else "C")


def _header(stream: io.BufferedIOBase, size: int) -> Header:
    """The header of a file or member; ``size``, in bytes, must be exactly what it calls for."""
    start = _exactly(stream, 8)
    if start[:6] != _MAGIC:
        raise ValueError("it does not start as a .npy file does: write it with numpy.save")
    if start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise ValueError(
            f".npy version {start[6]}.{start[7]}, wanted 1.0, 2.0 or 3.0: write it with numpy.save"
        )
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(_exactly(stream, width), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(
            f"a header of {length:,} bytes, at most {_LONGEST_HEADER:,}: write it with numpy.save"
        )
    match = _HEADER.fullmatch(_exactly(stream, length).decode("latin-1"))
    fields = dict(zip(match.groups()[::2], match.groups()[1::2], strict=True)) if match else {}
    if len(fields) != 3:
        raise ValueError("its header is not that of one plain array of numbers: save it as float64")
    descr, order = fields["descr"][1:-1], fields["fortran_order"]
    if not _NUMBERS.fullmatch(descr) or order not in ("True", "False"):
        raise ValueError(
            f"dtype={one_line(descr, limit=40)}, wanted real numbers: save it as float64"
        )
    shape, offset = _shape(fields["shape"]), 8 + width + length
    header = Header(shape=shape, dtype=_dtype(descr), by_column=order == "True", offset=offset)
    if header.offset + header.size != size:
        raise ValueError(
            f"shape={header.shape} of {header.dtype} has {header.size:,} bytes, "
            f"and {size - header.offset:,} are there"
        )
    return header


def _dtype(descr: str) -> np.dtype[Any]:
    try:
        return np.dtype(descr)
    except TypeError:
        raise ValueError(
            f"dtype={descr}, which this machine does not have: save it as float64"
        ) from None


def _shape(text: str) -> tuple[int, ...]:
    *extents, last = text[1:-1].split(",") if text[:1] == "(" else ["?"]
    if last.strip() or not extents:  # (2, 3) and (), not (2), which is not a tuple
        extents = [*extents, last] if extents else ["?"] if last.strip() else []
    matches = [_EXTENT.fullmatch(extent) for extent in extents]
    shape = tuple(int(each[1]) for each in matches if each)
    if len(shape) != len(matches) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"shape={one_line(text, limit=40)} is none: write it with numpy.save")
    if 0 in shape:
        raise ValueError(f"shape={shape}, wanted one that is not empty: save some values")
    return shape


def _exactly(stream: io.BufferedIOBase, size: int) -> bytes:
    with _plain_words():
        data = stream.read(size)
    if len(data) != size:
        raise ValueError("it ends within its header")
    return data


@contextlib.contextmanager
def _plain_words() -> Iterator[None]:
    """Turn whatever :mod:`zipfile` raises into a ValueError with a printable message."""
    try:
        yield
    except UnicodeError:
        raise ValueError("a name that is not UTF-8") from None
    except _BROKEN_ARCHIVE as error:
        raise ValueError(one_line(error) or type(error).__name__) from None


@contextlib.contextmanager
def _told(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (RefusedError, OSError) as error:
        raise UsageError(f"{name}={path}: {one_line(error)}; check the path") from None
    except ValueError as error:
        raise UsageError(
            f"{name}={path}: is not a .npy file of numbers ({one_line(error)}); "
            "write one with numpy.save"
        ) from None
