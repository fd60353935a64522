"""Writing noisy measurement files, for simulations and for the host ``topdown``.

The layout and the columns are those of the published 2020 files (see ``reading``). What is not the
same: one part per folder, no ``plb``, and axes of our own where the histogram is not the Bureau's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit_deployments.census.model import ALL, Constraint, Measurement, Row
from dpaudit_deployments.census.parquet import parquet_library

if TYPE_CHECKING:
    from dpaudit_deployments.topdown.measurements import NoisyMeasurements

__all__ = ["UNBOUNDED", "write_level", "write_measurements"]

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
    kept = list(constraints)
    if kept:
        _write(place / "Constraint" / partition, axes, kept, "_con")


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
            same: dict[str, Any] = {
                "specs": (query.query if len(query.cells) > 1 else ALL,),
                "shape": (len(query.cells),),
            }
            bounds = np.where(query.zeros, 0, UNBOUNDED)
            for geocode, value in zip(query.geocodes, query.values, strict=True):
                measurements.append(
                    Measurement(
                        geocode=geocode,
                        query=query.query,
                        value=value,
                        variance=query.variance,
                        **same,
                    )
                )
                if query.zeros.any():
                    name = f"{query.query}_zeros"
                    constraints.append(
                        Constraint(geocode=geocode, query=name, value=bounds, sign="<=", **same)
                    )
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
