"""Recorded numbers on disk as a target: no foreign code runs, so they are read in this process.

They are read row by row: memory does not grow with the file, and nothing is ever unpickled.
"""

from __future__ import annotations

import importlib
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError, SamplerOutputError, UsageError
from dpaudit.protocols import Facts, Reply, Request
from dpaudit.results.arrays import Archive, fill, map_npy
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line
from dpaudit.targets.check import TYPES, check_request, plain_f64, require_finite

__all__ = ["READERS", "FileTarget", "RecordedReleases", "lines_of", "open_text"]

_UNREADABLE = (RefusedError, OSError, ValueError, NotImplementedError)
_LONGEST_LINE = 1 << 20  # characters
_TRIED = 256  # lines of a .csv that are parsed when it is opened
_BATCH = 1 << 16  # values of a .parquet decoded at a time
_BUFFER = 1 << 16  # bytes read at a time, rather than a whole column of a row group

Array = npt.NDArray[np.float64]


class FileTarget:
    """``file:samples.npy``: rows of noise from a file, each given once, in order.

    ``.npy`` holds numbers, shape (rows,) or (rows, dim), and is mapped, not loaded; ``.npz`` holds
    one such array, or one called ``samples``; ``.csv`` has comma-separated numbers, one row per
    line, after one header row or none (a row without any number in it; the file is read through
    once when it is opened, to count); ``.parquet`` has numeric
    columns only (``pip install 'dpaudit[parquet]'``); ``.bin`` is little-endian float64 (or
    ``dtype="f32"``), dim 1, mapped. Memory does not grow with the file, and nothing is ever
    unpickled. The file must not change while it is read.
    """

    def __init__(
        self, target: str, *, seed: str = "", dtype: str = "f64", text_mode: bool = False
    ) -> None:
        """Open the file.

        Raises:
            UsageError: no such file, another ending, or not rows of numbers.
            MissingExtraError: ``.parquet`` without pyarrow.
        """
        del seed
        self.name = f"file:{target}"
        self._target = target
        path = Path(target)
        ending = path.suffix.lower()
        if ending not in READERS:
            *most, last = READERS
            raise self._refuse(
                f"a recorded file ends in {', '.join(most)} or {last}; rename or convert it"
            )
        plain_f64(self.name, "f64" if ending == ".bin" and dtype in TYPES else dtype, text_mode)
        if not path.is_file():
            lacks = "not a plain file" if path.exists() else "no such file"
            raise self._refuse(f"{lacks}; check the path")
        self._path, self._dtype = path, dtype
        self._recording = self._read()
        self._next = 0
        self._open = self._used = False

    def _read(self) -> Recording:
        ending = self._path.suffix.lower()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty .csv: refused by its shape
                return READERS[ending](self._path, self._dtype)
        except MissingExtraError:
            raise
        except _UNREADABLE as error:
            raise self._refuse(f"cannot be read as {ending} ({one_line(error)}); fix it") from None

    def _refuse(self, why: str) -> UsageError:
        return UsageError(f"file={self._target}: {why}")

    @property
    def facts(self) -> Facts:
        """Noise, in rows of ``dim`` numbers, ``available`` in all."""
        rows = self._recording
        return Facts({"noise"}, dim=rows.dim, available=rows.rows)

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """From the first row on; ``timeout`` is not needed."""
        del timeout
        if self._used:
            self._recording, self._next = self._read(), 0
        self._open = self._used = True
        try:
            yield self
        finally:
            self._open = False
            self._recording.close()

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """The next ``n`` rows; ``timeout`` is not needed.

        Raises:
            UsageError: ``dim`` is not that of the file.
            SamplerOutputError: fewer rows are left, they cannot be read, or some values are not
                finite.
        """
        check_request(request, {"noise"}, timeout=timeout, name=self.name, role="sampler")
        return Reply(self.read(request.n, request.dim))

    def read(self, n: int, d: int) -> Array:
        """The next ``n`` rows (n, d); errors are those of :meth:`ask`."""
        if not self._open:
            raise UsageError(f"sampler {self.name}: not open; ask inside `with`")
        dim, rows = self._recording.dim, self._recording.rows
        if d != dim:
            raise UsageError(f"d={d}: {self.name} has rows of {dim}; ask for d={dim}")
        left = rows - self._next
        if n > left:
            raise SamplerOutputError(
                f"sampler {self.name} has {left} of its {rows} rows left, wanted n={n}; "
                "ask for fewer samples or record more"
            )
        try:
            values = self._recording.take(n)
        except _UNREADABLE as error:
            raise SamplerOutputError(
                f"sampler {self.name} cannot be read from row {self._next} on ({one_line(error)}); "
                "fix it"
            ) from None
        self._next += n
        return require_finite(values, self.name)


class RecordedReleases:
    """``file:at-0.npy;at-1.npy``: releases at the first and at the second neighbour, one per row.

    Each file is as for a sampler (:class:`FileTarget`); both have rows of one length. A
    release is given once, in the order recorded. ``neighbours`` are the query results that the
    releases were made of; without them they are two arrays of length 0, which stand for the files.
    Not claimed: that the releases are independent, or were made as said.
    """

    def __init__(self, target: str, *, neighbours: tuple[Array, Array] | None = None) -> None:
        """Open both files.

        Raises:
            UsageError: not two files, one of them twice, one that cannot be read, or rows of
                different lengths.
        """
        self.name = f"file:{target}"
        paths = [path.strip() for path in target.split(";")]
        if len(paths) != 2 or "" in paths or paths[0] == paths[1]:
            raise UsageError(
                f"mechanism={self.name}: needs two files, of releases at the first and at the "
                "second neighbour; write 'file:at-0.npy;at-1.npy'"
            )
        self._files = tuple(FileTarget(path) for path in paths)
        lengths = [file.facts.dim for file in self._files]
        if lengths[0] != lengths[1]:
            raise UsageError(
                f"mechanism={self.name}: rows of {lengths[0]} and of {lengths[1]} numbers; "
                "releases have one length"
            )
        self._neighbours = neighbours or (np.empty(0), np.empty(0))
        self.facts = Facts(
            {"releases"},
            available=min(file.facts.available or 0 for file in self._files),
            neighbours=self._neighbours,
        )

    @contextmanager
    def open(self, *, timeout: float) -> Iterator[Self]:
        """From the first rows on; ``timeout`` is not needed."""
        with self._files[0].open(timeout=timeout), self._files[1].open(timeout=timeout):
            yield self

    def ask(self, request: Request, *, timeout: float) -> Reply:
        """The next ``n`` releases at the input, one of the ``neighbours`` of :attr:`facts`.

        Raises:
            UsageError: it is another value.
            SamplerOutputError: fewer are left, they cannot be read, or some are not finite.
        """
        check_request(request, {"releases"}, timeout=timeout, name=self.name, role="mechanism")
        value = np.asarray(request.input)
        for file, recorded in zip(self._files, self._neighbours, strict=True):
            if request.input is recorded or (recorded.size and np.array_equal(value, recorded)):
                return Reply(file.read(request.n, file.facts.dim or 0))
        raise UsageError(
            f"value={value.tolist()}: {self.name} has releases at its two neighbours only"
        )


class Recording(Protocol):
    """Rows of one length, each read once, in order."""

    rows: int
    dim: int

    def take(self, n: int) -> Array:
        """The next ``n`` rows, shape (n, dim), in memory of their own.

        Raises:
            OSError, ValueError, NotImplementedError: the file is not what its header said.
        """

    def close(self) -> None:
        """Close the file."""


def _shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind not in "iuf":
        raise ValueError(f"dtype={dtype}, wanted real numbers: save it as float64")
    if len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(f"shape={shape}, wanted (rows,) or (rows, dim) and not empty: reshape it")
    return shape[0], shape[1] if len(shape) == 2 else 1


class _Mapped:
    """An array in memory or mapped from the file."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.rows, self.dim = _shape(array.shape, array.dtype)
        self._array = array.reshape(self.rows, self.dim)
        self._next = 0

    def take(self, n: int) -> Array:
        self._next += n
        return np.array(self._array[self._next - n : self._next], dtype=np.float64, order="C")

    def close(self) -> None:
        del self._array


def _npy(path: Path, _: str) -> Recording:
    return _Mapped(map_npy(path))


def _bin(path: Path, dtype: str) -> Recording:
    kind = np.dtype(TYPES[dtype])
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size or size % kind.itemsize:
            raise ValueError(f"{size} bytes are not a whole number, above 0, of {dtype} values")
        return _Mapped(np.memmap(file, dtype=kind, mode="r"))


class _Npz:
    """One array of an archive, unpacked as it is read."""

    def __init__(self, path: Path, _: str) -> None:
        self._archive = Archive(path)
        try:
            names = self._archive.names
            name = "samples" if "samples" in names else names[0] if len(names) == 1 else None
            if name is None:
                shown = ", ".join(one_line(n, limit=40) for n in names[:8]) or "none"
                raise ValueError(
                    f"arrays={shown}, wanted one, or one called samples: "
                    "numpy.savez(file, samples=x)"
                )
            header, self._file = self._archive.open(name)
            self._type = header.dtype
            self.rows, self.dim = _shape(header.shape, header.dtype)
            if header.by_column and self.dim > 1:
                raise ValueError("it is stored column by column: save numpy.ascontiguousarray(x)")
        except BaseException:
            self.close()
            raise

    def take(self, n: int) -> Array:
        values = np.empty((n, self.dim), dtype=self._type)
        fill(values, self._file)
        return values.astype(np.float64, copy=False)

    def close(self) -> None:
        self._archive.close()


class _Csv:
    """Comma-separated numbers, one row per line, after a header or none; ``#`` begins a comment."""

    def __init__(self, path: Path, _: str) -> None:
        with open_text(path) as file:
            first = _parsed(_Rows(file), _TRIED)
        with open_text(path) as file:
            rows = sum(1 for _ in _Rows(file))
        self.rows, self.dim = _shape((rows, first.shape[1]), first.dtype)
        self._file = open_text(path)
        self._rows = _Rows(self._file)

    def take(self, n: int) -> Array:
        values = _parsed(self._rows, n)
        if values.shape != (n, self.dim):
            raise ValueError(f"shape={values.shape}, wanted ({n}, {self.dim})")
        return values

    def close(self) -> None:
        self._file.close()


def open_text(path: Path, *, newline: str | None = None) -> io.TextIOWrapper:
    """A plain file of UTF-8 text, with or without a byte order mark; ``newline`` as for ``open``.

    Raises:
        RefusedError: it cannot be opened, or is not a plain file.
    """
    return io.TextIOWrapper(open_plain(path), encoding="utf-8-sig", newline=newline)


def lines_of(file: io.TextIOBase) -> Iterator[str]:
    """The lines of ``file``.

    Raises:
        ValueError: one has 2^20 characters or more, or is not UTF-8.
    """
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise ValueError(f"a line is longer than {_LONGEST_LINE} characters")
        yield line


class _Rows:
    """The lines that hold numbers: without comments, and without a header in the first of them.

    A header is a row of cells none of which is a number, and whose quotes end on its line.
    ``number`` is that of the line given last, from 1.
    """

    def __init__(self, file: io.TextIOBase) -> None:
        self._lines = enumerate(lines_of(file), 1)
        self._headed = False
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for number, line in self._lines:
            self.number = number
            data = line.partition("#")[0].strip()
            if data and not self._headed:
                self._headed = True
                data = "" if _is_header(data) else data
            if data:
                return line
        raise StopIteration


def _is_header(line: str) -> bool:
    return line.count('"') % 2 == 0 and not any(map(_is_number, line.split(",")))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parsed(rows: _Rows, n: int) -> Array:
    """The next ``n`` rows of numbers, or as many as there are.

    Raises:
        ValueError: with the number of the line.
    """
    try:
        return np.loadtxt(islice(rows, n), delimiter=",", ndmin=2)
    except ValueError as error:
        why = str(error).partition(" at row ")[0]
        raise ValueError(f"line {rows.number}: {why}") from None


class _Parquet:
    """Numeric columns, decoded a batch of rows at a time."""

    def __init__(self, path: Path, _: str) -> None:
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ModuleNotFoundError:
            raise MissingExtraError(
                f"file={path}: needs pyarrow, which is not installed; "
                "pip install 'dpaudit[parquet]'"
            ) from None
        types = importlib.import_module("pyarrow.types")
        self._file = parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        schema = self._file.schema_arrow
        self.rows, self.dim = int(self._file.metadata.num_rows), len(schema)
        for field in schema:
            if not (types.is_integer(field.type) or types.is_floating(field.type)):
                self.close()
                raise ValueError(
                    f"column {one_line(field.name, limit=40)!r} is {one_line(field.type)}, "
                    "wanted real numbers: leave it out"
                )
        if not self.rows or not self.dim:
            self.close()
            raise ValueError(
                f"shape={(self.rows, self.dim)}, wanted (rows, columns) and not empty: record some"
            )
        size = max(1, _BATCH // self.dim)
        self._batches = self._file.iter_batches(batch_size=size, use_threads=False)
        self._batch: Any = None

    def take(self, n: int) -> Array:
        values, got = np.empty((n, self.dim)), 0
        while got < n:
            if self._batch is None or not self._batch.num_rows:
                self._batch = next(self._batches, None)
                if self._batch is None:
                    raise ValueError("it ends before its last row")
            part = self._batch.slice(0, n - got)
            for column, cells in enumerate(part.columns):
                values[got : got + part.num_rows, column] = cells.to_numpy(zero_copy_only=False)
            got += part.num_rows
            self._batch = self._batch.slice(part.num_rows)
        return values

    def close(self) -> None:
        self._file.close(force=True)


READERS = {".npy": _npy, ".npz": _Npz, ".csv": _Csv, ".parquet": _Parquet, ".bin": _bin}
