"""Noisy measurement files: their rows, read a few at a time, and written by simulations and hosts.

The published 2020 files (Redistricting, DHC; Parquet written by Spark) have one folder per product,
level and kind::

    US_Person_PL_PROD/County.parquet/DPQuery/State=01/part-….parquet
    US_Person_PL_PROD/County.parquet/Constraint/State=01/part-….parquet

Columns: ``geocode``; ``query_name``, which ends in ``_dpq`` or ``_con``; one column per axis of the
histogram, with ``*`` if it is summed over, its own name or ``detailed`` if it is kept, otherwise a
recode; ``query_shape`` (list), ``value`` (list, C order), ``variance`` (that of one value's noise);
constraints have ``sign``. ``plb`` and partition columns are not needed here.

Source: the Bureau's own reader (uscensusbureau/DAS_2020_GLS_Uncertainty_Evaluation,
``GLS/main_two_pass_alg.py``), the readers of Google (google-research/census-bluedown) and MITRE
(``NMFHistogram.py``), and DAS_2020_Redistricting_Production_Code for what the numbers are. A file
is foreign: nothing is unpickled, texts are printable and short, lists are of the stated shape.

What is not the same in files that are written here: one part per folder, no ``plb``, and axes of
our own where the histogram is not the Bureau's.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.results.foreign import RefusedError, open_plain
from dpaudit.results.text import one_line, printable
from dpaudit_deployments.census.law import MOST_VARIANCE

if TYPE_CHECKING:
    from dpaudit_deployments.topdown.topdown import NoisyMeasurements

__all__ = [
    "ALL",
    "UNBOUNDED",
    "Bucket",
    "Constraint",
    "Integers",
    "Measurement",
    "Row",
    "find_buckets",
    "read_constraints",
    "read_measurements",
    "write_level",
    "write_measurements",
]

Integers = npt.NDArray[np.int64]

ALL = "*"
"""How files write that an axis is summed over."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Row:
    """Numbers about one geography, one per cell of a query.

    ``query`` is the name without the suffix ``_dpq`` or ``_con``. ``specs`` has a word per axis of
    the histogram: ``*`` if the axis is summed over, the axis's own name or ``detailed`` if all its
    levels are kept, otherwise the name of a recode. ``value`` (the product of ``shape``) int64 is
    in C order.
    """

    geocode: str
    query: str
    specs: tuple[str, ...]
    shape: tuple[int, ...]
    value: Integers


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measurement(Row):
    """The noisy answers of a query; ``variance`` is that of one value's noise, as stated."""

    variance: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Constraint(Row):
    """What the true answers keep: ``sign`` is ``=``, ``<=`` or ``>=``, cell by cell."""

    sign: str


def parquet_library(path: Path) -> tuple[Any, Any]:
    """``pyarrow`` and ``pyarrow.parquet``, to read or write ``path``.

    Raises:
        MissingExtraError: not installed.
    """
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"nmf={path}: needs pyarrow, which is not installed; pip install 'dpaudit[parquet]'"
        ) from None


MOST_FILES = 200_000
MOST_CELLS = 1 << 22
"""The most cells of a query; the largest published one has 1,227,744."""
_MOST_AXES = 16
_MOST_LETTERS = 200
_NUMBERS = 1 << 21  # in one batch
_SHAPES = 1 << 15
_LARGEST = 1 << 52
_LEAST_VARIANCE = 1e-6
_THRIFT = 1 << 26
_NO_AXES = {"sign", "State", "County", "plb"}
_COLUMNS = ("geocode", "query_name", "query_shape", "value", "variance")
_SIGNS = ("=", "<=", ">=")
_LEVEL = ".parquet"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Files about the same geographies: of one product, one level and one partition."""

    product: str
    level: str
    partition: str
    files: tuple[Path, ...]


def find_buckets(paths: Sequence[str | Path]) -> list[Bucket]:
    """The files that ``paths`` name (files, folders, or patterns such as ``'*.parquet'``).

    Sorted by product, level and partition. The level is the name of the folder ``LEVEL.parquet``
    that holds the file, or the name of the file itself.

    Raises:
        UsageError: there is no such file, or more than 200,000.
    """
    by_place: dict[tuple[str, str, str], dict[Path, None]] = {}
    number = 0
    for path in paths:
        for file in _files(path):
            number += 1
            if number > MOST_FILES:
                raise UsageError(
                    f"nmf={printable(path, limit=200)}: more than {MOST_FILES:,} files; "
                    "audit them in parts"
                )
            by_place.setdefault(_place(file), {})[file] = None
    return [Bucket(*place, tuple(files)) for place, files in sorted(by_place.items())]


def _files(path: str | Path) -> Iterator[Path]:
    name = os.fspath(path)
    base = Path(name)
    paths = [base] if base.exists() else sorted(map(Path, glob(name, recursive=True)))
    files = [file for one in paths for file in _below(one)]
    if not files:
        raise UsageError(
            f"nmf={printable(name, limit=200)}: no Parquet file there; name a file, a folder, "
            "or a quoted pattern such as 'County.parquet/*/*/*.parquet'"
        )
    yield from (f.absolute() for f in files)


def _below(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob(f"*{_LEVEL}") if not file.is_dir())


def _place(file: Path) -> tuple[str, str, str]:
    """Product, level and partition."""
    parents = list(file.parents)
    at = next((i for i, p in enumerate(parents) if p.name.endswith(_LEVEL)), None)
    partition = "/".join(p.name for p in reversed(parents) if "=" in p.name)
    level = file.stem if at is None else parents[at].name.removesuffix(_LEVEL)
    product = parents[0 if at is None else at + 1].name
    limit = _MOST_LETTERS
    return one_line(product, limit=limit), one_line(level, limit=limit), one_line(partition)


def read_measurements(path: Path) -> Iterator[tuple[tuple[str, ...], Measurement]]:
    """The axes and the rows of a file that are noisy measurements, in its order.

    A row whose value is null (not measured) is left out.

    Raises:
        UsageError: it cannot be read, or is not a noisy measurement file.
        MissingExtraError: pyarrow is not installed.
    """
    for axes, row, variance, _ in _raw_rows(path, "_dpq"):
        if not _LEAST_VARIANCE <= variance <= MOST_VARIANCE:
            raise _refuse(path, f"variance={variance}: must be a number from 1e-6 to 1e10")
        yield axes, Measurement(variance=variance, **row)


def read_constraints(path: Path) -> Iterator[tuple[tuple[str, ...], Constraint]]:
    """The axes and the rows of a file that are constraints.

    Raises:
        UsageError, MissingExtraError: as for :func:`read_measurements`.
    """
    for axes, row, _, sign in _raw_rows(path, "_con"):
        if sign not in _SIGNS:
            raise _refuse(path, f"sign={sign!r}: must be one of {', '.join(_SIGNS)}")
        yield axes, Constraint(sign=sign, **row)


def _refuse(path: Path, why: object) -> UsageError:
    return UsageError(
        f"nmf={printable(path, limit=400)}: {one_line(why)}; "
        "name noisy measurement files as the Bureau publishes them"
    )


_Raw = tuple[tuple[str, ...], dict[str, Any], float, str]


def _raw_rows(path: Path, suffix: Literal["_dpq", "_con"]) -> Iterator[_Raw]:
    arrow, parquet = parquet_library(path)
    try:
        with open_plain(path) as handle:
            file = parquet.ParquetFile(
                handle,
                pre_buffer=False,
                buffer_size=1 << 16,
                thrift_string_size_limit=_THRIFT,
                thrift_container_size_limit=_THRIFT,
            )
            axes = _axes(file.schema_arrow, arrow)
            columns = [n for n in (*_COLUMNS, "sign", *axes) if n in file.schema_arrow.names]
            if suffix == "_con" and "sign" not in columns:
                return
            for group in range(file.num_row_groups):
                batches = file.iter_batches(
                    _batch_size(file, group, arrow),
                    row_groups=[group],
                    columns=columns,
                    use_threads=False,
                )
                for batch in batches:
                    yield from _batch(batch, axes, suffix, arrow)
    except (RefusedError, OSError, ValueError, NotImplementedError, arrow.ArrowException) as error:
        if isinstance(error, UsageError):
            raise
        raise _refuse(path, error) from None


def _axes(schema: Any, arrow: Any) -> tuple[str, ...]:
    missing = [name for name in _COLUMNS if name not in schema.names]
    if missing:
        raise RefusedError(f"no column {', '.join(missing)}")
    if len(set(schema.names)) != len(schema.names):
        raise RefusedError("two columns of one name")
    axes = tuple(
        field.name
        for field in schema
        if field.name not in (*_COLUMNS, *_NO_AXES) and _is_text(field.type, arrow.types)
    )
    for name in axes:
        _text(name)
    if not 0 < len(axes) <= _MOST_AXES:
        raise RefusedError(f"{len(axes)} columns for axes of the histogram, wanted 1 to 16")
    return axes


def _is_text(kind: Any, types: Any) -> bool:
    inner = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(inner) or types.is_large_string(inner))


def _batch_size(file: Any, group: int, arrow: Any) -> int:
    """Rows per batch: about two million numbers, by the largest query of the row group.

    The sizes in the file's header are not used: pyarrow aborts on broken ones.
    """
    most = 1
    for batch in file.iter_batches(_SHAPES, row_groups=[group], columns=["query_shape"]):
        column = batch.column("query_shape")
        shapes = _lists(column, arrow)
        for i in range(len(column)):
            shape = shapes(i)
            most = max(most, 0 if shape is None else math.prod(shape.tolist()))
    if most > MOST_CELLS:
        raise RefusedError(f"a query of {most:,} cells, at most {MOST_CELLS:,}")
    return max(1, min(_SHAPES, _NUMBERS // most))


def _batch(
    batch: Any, axes: tuple[str, ...], suffix: Literal["_dpq", "_con"], arrow: Any
) -> Iterator[_Raw]:
    names = batch.column("query_name").to_pylist()
    geocodes = batch.column("geocode").to_pylist()
    signed = "sign" in batch.schema.names
    signs = batch.column("sign").to_pylist() if signed else [None] * len(names)
    specs = list(zip(*(batch.column(axis).to_pylist() for axis in axes), strict=True))
    variances = batch.column("variance").cast(arrow.float64()).to_pylist()
    shapes, values = (_lists(batch.column(name), arrow) for name in ("query_shape", "value"))
    for i, name in enumerate(names):
        sign = signs[i]
        if (sign is not None) != (suffix == "_con"):
            continue
        shape, value = shapes(i), values(i)
        if value is None:
            if suffix == "_dpq":
                continue
            raise RefusedError("a constraint without value")
        row = {
            "geocode": _text(geocodes[i]),
            "query": _text(name).removesuffix(suffix),
            "specs": tuple(ALL if spec is None else _text(spec) for spec in specs[i]),
            "shape": _checked_shape(shape, value, axes),
            "value": value,
        }
        yield axes, row, variances[i] if variances[i] is not None else math.nan, sign or ""


def _checked_shape(shape: Any, value: Any, axes: tuple[str, ...]) -> tuple[int, ...]:
    if shape is None or len(shape) != len(axes):
        raise RefusedError(f"query_shape must have one number for each of {', '.join(axes)}")
    sizes = tuple(int(n) for n in shape)
    if min(sizes) < 1 or math.prod(sizes) != len(value) or len(value) > MOST_CELLS:
        raise RefusedError(
            f"query_shape={list(sizes)} with {len(value):,} values: must be as many, "
            f"at most {MOST_CELLS:,}"
        )
    if max(-int(value.min()), int(value.max())) > _LARGEST:
        raise RefusedError("a value above 2^52")
    return sizes


def _text(text: object) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= _MOST_LETTERS:
        raise RefusedError(f"geocodes, names, axes: must be texts of 1 to {_MOST_LETTERS} letters")
    return _printed(text)


@lru_cache(maxsize=4096)
def _printed(text: str) -> str:
    if printable(text) != text:
        raise RefusedError(f"a text with characters that cannot be printed ({printable(text)!r})")
    return text


def _lists(column: Any, arrow: Any) -> Any:
    """A function from the index of a row to its list as int64, None for null."""
    if not (arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type)):
        raise RefusedError(f"a column of type {column.type}, wanted lists of whole numbers")
    offsets, valid = np.asarray(column.offsets), np.asarray(column.is_valid())
    if column.values.null_count:
        raise RefusedError("a list with nulls in it")
    flat = column.values.cast(arrow.int64()).to_numpy(zero_copy_only=False)
    return lambda i: flat[offsets[i] : offsets[i + 1]] if valid[i] else None


UNBOUNDED = 2**31 - 1
"""The upper bound of a cell that is not bounded."""
_ROWS = 1024
_AXIS = "cell"


def write_level(
    folder: Path,
    level: str,
    *,
    axes: Sequence[str],
    measurements: Iterable[Measurement],
    constraints: Iterable[Constraint] = (),
    partition: str = "",
) -> None:
    """Write ``LEVEL.parquet/DPQuery`` and ``…/Constraint`` into ``folder``, the latter if any.

    ``axes`` name the columns of ``specs``. ``partition``, such as ``State=01``, is a folder below.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    place = folder / f"{level}.parquet"
    _write(place / "DPQuery" / partition, axes, measurements, "_dpq")
    bounds = list(constraints)
    if bounds:
        _write(place / "Constraint" / partition, axes, bounds, "_con")


def write_measurements(folder: Path, noisy: NoisyMeasurements) -> None:
    """Write the noisy measurements of the host ``topdown`` as files, structural zeros as bounds.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    for level in dict.fromkeys(query.level for query in noisy.queries):
        measurements, constraints = [], []
        for query in noisy.queries:
            if query.level != level:
                continue
            name, size = query.query, len(query.cells)
            same: dict[str, Any] = {"specs": (name if size > 1 else ALL,), "shape": (size,)}
            measurements += [
                Measurement(geocode=code, query=name, value=row, variance=query.variance, **same)
                for code, row in zip(query.geocodes, query.values, strict=True)
            ]
            if query.zeros.any():
                same |= {"query": f"{name}_zeros", "sign": "<="}
                same["value"] = np.where(query.zeros, 0, UNBOUNDED)
                constraints += [Constraint(geocode=code, **same) for code in query.geocodes]
        write_level(
            folder, level, axes=(_AXIS,), measurements=measurements, constraints=constraints
        )


def _write(folder: Path, axes: Sequence[str], rows: Iterable[Row], suffix: str) -> None:
    arrow, parquet = parquet_library(folder)
    fields = [("geocode", arrow.string()), ("query_name", arrow.string())]
    fields += [("sign", arrow.string())] if suffix == "_con" else []
    fields += [(axis, arrow.string()) for axis in axes]
    fields += [
        ("query_shape", arrow.list_(arrow.int32())),
        ("value", arrow.list_(arrow.int64())),
        ("variance", arrow.float32()),
    ]
    schema = arrow.schema(fields)
    folder.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetWriter(folder / "part-0.parquet", schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(_record(row, axes, suffix))
            if len(batch) == _ROWS:
                writer.write_table(arrow.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(arrow.Table.from_pylist(batch, schema))


def _record(row: Row, axes: Sequence[str], suffix: str) -> dict[str, Any]:
    record: dict[str, Any] = {
        "geocode": row.geocode,
        "query_name": row.query + suffix,
        "query_shape": row.shape,
        "value": row.value,
        **dict(zip(axes, row.specs, strict=True)),
    }
    if isinstance(row, Measurement):
        return record | {"variance": row.variance}
    return record | {"variance": 0.0, "sign": row.sign if isinstance(row, Constraint) else "="}
