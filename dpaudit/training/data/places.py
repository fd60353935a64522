"""Where data files lie, and how they are read: IDX, ``.npz``, tar, without unpickling."""

from __future__ import annotations

import gzip
import math
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.results.arrays import Archive
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line

__all__ = [
    "cache_folder",
    "data_folder",
    "fetch_file",
    "find_file",
    "read_idx",
    "read_npz",
    "read_tar",
    "reading",
]


class DownloadBar:
    """Counts bytes; draws nothing if stderr is no terminal, or before the first byte."""

    def __init__(self, name: str) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(one_line(name, limit=100), total=None)

    @property
    def total(self) -> float | None:
        """Bytes to come; None where the server does not say."""
        return self._bar.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._task, total=size or None)
        self._bar.start()

    def update(self, count: int) -> None:
        """``count`` more bytes have come."""
        self._bar.advance(self._task, count)

    def reset(self) -> None:
        """Start again at no bytes."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """Remove the bar from the screen."""
        self._bar.stop()

    def __enter__(self) -> DownloadBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def data_folder(root: str = "") -> Path | None:
    """The folder ``root``, else the one that ``DPAUDIT_DATA`` names; None without either.

    Raises:
        UsageError: what is named is no folder.
    """
    for name, value in (("data_root", root), ("DPAUDIT_DATA", os.environ.get("DPAUDIT_DATA", ""))):
        if value:
            folder = Path(value).expanduser()
            if not os.path.isdir(folder):
                raise UsageError(
                    f"{name}={value}: is no folder; name one that is there, "
                    "or leave it out to download"
                )
            return folder
    return None


def cache_folder() -> Path:
    """Where downloads are kept: ``DPAUDIT_CACHE``, else the user's cache; it need not exist.

    Raises:
        MissingExtraError: no ``DPAUDIT_CACHE``, and pooch, which knows where users' caches are, is
            not installed.
    """
    named = os.environ.get("DPAUDIT_CACHE", "")
    return Path(named).expanduser() if named else Path(_pooch().os_cache("dpaudit"))


def find_file(relative: str, *, root: str = "") -> Path | None:
    """The file ``relative`` (``weights/resnet20-12fca82f.th``) where data is kept, or None.

    One place is searched: ``root``, without it ``DPAUDIT_DATA``, without that the cache. The
    content is not looked at.

    Raises:
        UsageError: ``root`` or ``DPAUDIT_DATA`` is no folder.
        MissingExtraError: as for :func:`cache_folder`.
    """
    path = (data_folder(root) or cache_folder()) / relative
    return path if os.path.isfile(path) else None


def fetch_file(relative: str, *, url: str, sha256: str) -> Path:
    """The file ``relative`` of the cache, downloaded from ``url`` if need be.

    The checksum (``sha256``, hex) is compared on every call. A download goes to a file of another
    name, which takes its place only when the checksum is right, so an incomplete one is never taken
    for the whole. Downloads are announced on stderr, with a progress bar on a terminal.

    Raises:
        UsageError: the host cannot be reached or refuses, the cache cannot be written, or the
            checksum is wrong.
        MissingExtraError: pooch is not installed.
    """
    pooch = _pooch()
    path = cache_folder() / relative
    try:
        with DownloadBar(path.name) as bar:
            get = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)
            pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=get)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"file={relative}: could not be fetched from {url} to {path} ({error}); "
            f"fetch it by hand to {relative} in a folder of yours (sha256 {sha256}) "
            "and name that folder with --data-root or DPAUDIT_DATA"
        ) from error
    return path


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise MissingExtraError(
            "data: downloads need pooch, which is not installed; pip install 'dpaudit[opacus]', "
            "or name a folder that has the files with --data-root or DPAUDIT_DATA"
        ) from error
    return pooch


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
    missing = set(names)
    with gzip.open(path) as stream:
        bounded: Any = _Bounded(stream, path)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name not in missing or not member.isreg():
                    continue
                if member.size != size:
                    raise ValueError(f"{member.name} has {member.size} bytes, not {size}")
                missing.remove(name)
                content = archive.extractfile(member)
                yield name, content.read() if content else b""
        while bounded.read(1 << 20):
            pass
    if missing:
        raise ValueError(f"it has no {', '.join(sorted(missing))}")
