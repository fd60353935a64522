"""Data sets as users have them: read from files, taken apart into records, and put together again.

A data set is a list of records, an array (one record per row), or a data frame. A record is a
number, a text, a row (list, tuple, array) or a dict.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.results.arrays import read_npy
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line
from dpaudit.targets.plain import jsonable, plain

__all__ = ["SUFFIXES", "Records", "json_text", "read_dataset", "records_of", "summarise_dataset"]

SUFFIXES = (".csv", ".parquet", ".json")
"""Files that hold a data set; ``.npy`` files are vectors of query results."""
_LARGEST_FILE = 1 << 30


def read_dataset(path: Path, *, name: str) -> Any:
    """The data set in a file.

    ``.csv`` (with a header) and ``.parquet`` give a list of dicts, one per row; a column of a
    ``.csv`` whose cells are all numbers is read as numbers, an empty cell is ``None``. ``.json``
    gives what it holds, and ``.npy`` an array with one record per row. ``name`` is what errors call
    the option.

    Raises:
        UsageError: it cannot be read, or is no such file.
        MissingExtraError: ``.parquet`` without pyarrow.
    """
    readers: dict[str, Callable[[Path], Any]] = {
        ".csv": _csv,
        ".json": _json,
        ".npy": lambda path: read_npy(path, name=name).astype(np.float64),
        ".parquet": _parquet,
    }
    reader = readers.get(path.suffix)
    if reader is None:
        raise UsageError(
            f"{name}={one_line(path, limit=200)}: a data set is a file {', '.join(readers)}; "
            "convert it"
        )
    try:
        return reader(path)
    except (RefusedError, OSError) as error:
        raise UsageError(f"{name}={path}: {one_line(error)}; check the path") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise UsageError(
            f"{name}={path}: is not a {path.suffix} file ({one_line(error, limit=200)}); "
            "write it again"
        ) from None


def _text(path: Path) -> str:
    with open_plain(path) as file:
        return file.read(_LARGEST_FILE).decode("utf-8-sig")


def _json(path: Path) -> Any:
    return json.loads(_text(path))


def _csv(path: Path) -> list[dict[str, Any]]:
    rows = list(csv.reader(io.StringIO(_text(path), newline="")))
    rows = [row for row in rows if row]
    if not rows:
        raise ValueError("it has no header")
    header = rows.pop(0)
    if len(set(header)) < len(header):
        raise ValueError("two columns have one name")
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"row {i + 1} has {len(row)} cells, the header {len(header)}")
    columns = [_parse_cells([row[j] for row in rows]) for j in range(len(header))]
    return [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]


def _parse_cells(cells: list[str]) -> list[Any]:
    """Cells as whole numbers, or numbers, or text, whatever all of a column are."""
    for kind in (int, float):
        try:
            return [None if cell == "" else kind(cell) for cell in cells]
        except ValueError:
            continue
    return [None if cell == "" else cell for cell in cells]


def _parquet(path: Path) -> Any:
    try:
        reader = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError(
            f"dataset={path}: needs pyarrow, which is not installed; pip install 'dpaudit[parquet]'"
        ) from None
    return plain(reader.read_table(path).to_pylist())


@dataclass(frozen=True, slots=True)
class Records:
    """A data set's records, and how others make a data set of the same form."""

    records: list[Any]
    make: Callable[[Sequence[Any]], Any]


def records_of(dataset: Any) -> Records:
    """The records of a data set.

    Raises:
        UsageError: it has none: it is no list, array or data frame.

    >>> import numpy as np
    >>> of = records_of(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> of.make(of.records[:1])
    array([[1., 2.]])
    """
    if hasattr(dataset, "columns") and hasattr(dataset, "to_dict"):
        return Records(plain(dataset.to_dict("records")), _frame_maker(dataset))
    if isinstance(dataset, np.ndarray) and dataset.ndim in (1, 2) and dataset.dtype.kind != "V":
        return Records(dataset.tolist(), _array_maker(dataset))
    if isinstance(dataset, list):
        return Records(list(dataset), list)
    if isinstance(dataset, tuple):
        return Records(list(dataset), tuple)
    raise UsageError(
        f"dataset of type={type(dataset).__name__}: has no records; pass a list of records, an "
        "array with one per row, or a data frame"
    )


def _array_maker(array: npt.NDArray[Any]) -> Callable[[Sequence[Any]], Any]:
    wide = array.dtype.kind in "biuSU"  # of which a made-up record may need more
    shape = (-1, *array.shape[1:])

    def make(records: Sequence[Any]) -> Any:
        if not records:
            return np.empty((0, *array.shape[1:]), dtype=array.dtype)
        return np.array(list(records), dtype=None if wide else array.dtype).reshape(shape)

    return make


def _frame_maker(frame: Any) -> Callable[[Sequence[Any]], Any]:
    kinds = frame.dtypes.to_dict()

    def make(records: Sequence[Any]) -> Any:
        if not records:
            return frame[:0]
        table = type(frame)(list(records), columns=list(frame.columns))
        for name, kind in kinds.items():
            try:
                table[name] = table[name].astype(kind)
            except (TypeError, ValueError, OverflowError):
                continue  # a NaN among whole numbers
        return table

    return make


def summarise_dataset(dataset: Any) -> str:
    """A data set in a few words: how many records, and the first or the only ones.

    >>> summarise_dataset([1, 2, 2]), summarise_dataset([])
    ('3 records: 1, 2, 2', 'no records')
    """
    try:
        records = records_of(dataset).records
    except UsageError:
        return one_line(repr(dataset), limit=80)
    if not records:
        return "no records"
    texts: list[str] = []
    for text, repeats in groupby(one_line(repr(record), limit=60) for record in records[:10_000]):
        times = len(list(repeats))
        texts += [text] * times if times < 3 else [f"{text} ({times:,} times)"]
    more = "" if len(texts) <= 6 else f", … {one_line(repr(records[-1]), limit=60)}"
    count = "1 record" if len(records) == 1 else f"{len(records):,} records"
    return f"{count}: {', '.join(texts[:6])}{more}"


def json_text(dataset: Any) -> str:
    """A data set as JSON, which :func:`read_dataset` reads; NaN and ∞ as Python writes them."""
    return json.dumps(jsonable(dataset), ensure_ascii=False) + "\n"
