"""Recorded noise on disk, read row by row: memory does not grow with the file, and nothing is ever unpickled."""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError

__all__ = ["READERS", "TYPES", "Recording"]

TYPES = {"f64": "<f8", "f32": "<f4"}
_LONGEST_LINE = 1 << 20  # characters
_TRIED = 256  # lines of a .csv that are parsed when it is opened
_BATCH = 1 << 16  # values of a .parquet decoded at a time
_BUFFER = 1 << 16  # bytes read at a time, rather than a whole column of a row group

Array = npt.NDArray[np.float64]


class Recording(Protocol):
    """Rows of one length, handed out once each, in order."""

    rows: int
    dim: int

    def take(self, n: int) -> Array:
        """The next ``n`` rows, shape (n, dim), in memory of their own.

        Raises:
            OSError, ValueError, NotImplementedError: the file is not what it said when it was opened.
        """

    def close(self) -> None:
        """Let go of the file."""


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
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("it is an .npz archive: name it so")  # noqa: TRY004 the caller takes ValueError for all of these
    return _Mapped(array)


def _bin(path: Path, dtype: str) -> Recording:
    kind = np.dtype(TYPES[dtype])
    size = path.stat().st_size
    if not size or size % kind.itemsize:
        raise ValueError(f"{size} bytes are not a whole number, above 0, of {dtype} values")
    return _Mapped(np.memmap(path, dtype=kind, mode="r"))


class _Npz:
    """One array of an archive, unpacked as it is read."""

    def __init__(self, path: Path, _: str) -> None:
        self._archive = zipfile.ZipFile(path)
        try:
            names = [name for name in self._archive.namelist() if name.endswith(".npy")]
            name = "samples.npy" if "samples.npy" in names else names[0] if len(names) == 1 else None
            if name is None:
                shown = ", ".join(n.removesuffix(".npy")[:40] for n in names[:8]) or "none"
                raise ValueError(f"arrays={shown}, wanted one, or one called samples: numpy.savez(file, samples=x)")
            self._file: Any = self._archive.open(name)
            version = np.lib.format.read_magic(self._file)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in readers:
                raise ValueError(f".npy version {version}, wanted (1, 0) or (2, 0): save it anew")
            shape, by_column, self._type = readers[version](self._file)
            self.rows, self.dim = _shape(shape, self._type)
            if by_column and self.dim > 1:
                raise ValueError("it is stored column by column: save numpy.ascontiguousarray(x)")
        except RuntimeError as error:  # a password, or a compression that this Python has not got
            self.close()
            raise ValueError(str(error)) from None
        except BaseException:
            self.close()
            raise

    def take(self, n: int) -> Array:
        values = np.empty((n, self.dim), dtype=self._type)
        view = values.data.cast("B")
        while view:
            try:
                got = self._file.readinto(view)
            except zlib.error as error:
                raise ValueError(str(error)) from None
            if not got:
                raise ValueError("it ends before its last row")
            view = view[got:]
        return values.astype(np.float64, copy=False)

    def close(self) -> None:
        self._archive.close()


class _Csv:
    """Comma-separated numbers, one row a line, no header; ``#`` begins a comment."""

    def __init__(self, path: Path, _: str) -> None:
        with path.open(encoding="utf-8-sig") as lines:
            first = np.loadtxt(
                (line for line, _ in zip(_data(lines), range(_TRIED), strict=False)), delimiter=",", ndmin=2
            )
        with path.open(encoding="utf-8-sig") as lines:
            self.rows = sum(1 for _ in _data(lines))
        self.rows, self.dim = _shape((self.rows, first.shape[1]), first.dtype)
        self._file = path.open(encoding="utf-8-sig")
        self._lines = _data(self._file)

    def take(self, n: int) -> Array:
        values = np.loadtxt(self._lines, delimiter=",", ndmin=2, max_rows=n)
        if values.shape != (n, self.dim):
            raise ValueError(f"shape={values.shape}, wanted ({n}, {self.dim})")
        return values

    def close(self) -> None:
        self._file.close()


def _data(lines: Any) -> Iterator[str]:
    """The lines that hold data."""
    while line := lines.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise ValueError(f"a line is longer than {_LONGEST_LINE} characters")
        if line.partition("#")[0].strip():
            yield line


class _Parquet:
    """Numeric columns, one row a line, decoded a batch at a time."""

    def __init__(self, path: Path, _: str) -> None:
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ModuleNotFoundError:
            raise MissingExtraError(
                f"file={path}: needs pyarrow, which is not installed; pip install 'dpaudit[parquet]'"
            ) from None
        types = importlib.import_module("pyarrow.types")
        self._file = parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        schema = self._file.schema_arrow
        self.rows, self.dim = int(self._file.metadata.num_rows), len(schema)
        for field in schema:
            if not (types.is_integer(field.type) or types.is_floating(field.type)):
                self.close()
                raise ValueError(f"column {field.name!r} is {field.type}, wanted real numbers: leave it out")
        if not self.rows or not self.dim:
            self.close()
            raise ValueError(f"shape={(self.rows, self.dim)}, wanted (rows, columns) and not empty: record some")
        self._batches = self._file.iter_batches(batch_size=max(1, _BATCH // self.dim), use_threads=False)
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
