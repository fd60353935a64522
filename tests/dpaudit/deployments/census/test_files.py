"""Files as they are written and read; foreign files are refused with a reason."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpaudit.deployments.census import reading
from dpaudit.deployments.census.model import Constraint, Measurement
from dpaudit.deployments.census.reading import (
    find_buckets,
    read_constraints,
    read_measurements,
)
from dpaudit.deployments.census.writing import UNBOUNDED, write_level, write_measurements
from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.hosts.topdown.measurements import NoisyMeasurements, NoisyQuery

GOOD = {
    "geocode": ["01"], "query_name": ["detailed_dpq"], "a": ["detailed"], "b": ["*"],
    "query_shape": [[2, 1]], "value": [[3, -4]], "variance": [2.5],
}  # fmt: skip


def write(path, **changes):
    columns = {name: column for name, column in (GOOD | changes).items() if column is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_what_is_written_is_read(tmp_path):
    rows = [
        Measurement(
            geocode=f"{i:02d}", query="detailed", specs=("detailed", "*"), shape=(3, 1),
            value=np.arange(3) - i, variance=2.5,
        )
        for i in range(2500)
    ]  # fmt: skip
    total = Constraint(
        geocode="01", query="total", specs=("*", "*"), shape=(1, 1), value=np.array([9]), sign="="
    )
    write_level(
        tmp_path / "US_PROD", "State", axes=("a", "b"), measurements=rows, constraints=[total],
        partition="State=01",
    )  # fmt: skip
    (bucket,) = find_buckets([tmp_path])
    assert (bucket.product, bucket.level, bucket.partition) == ("US_PROD", "State", "State=01")
    constraints, measurements = bucket.files
    assert list(read_measurements(constraints)) == list(read_constraints(measurements)) == []
    ((axes, read),) = read_constraints(constraints)
    assert (axes, read.query, read.sign, list(read.value)) == (("a", "b"), "total", "=", [9])
    for row, (_, again) in zip(rows, read_measurements(measurements), strict=True):
        assert (row.geocode, row.query, row.specs, row.shape, row.variance) == (
            again.geocode, again.query, again.specs, again.shape, again.variance,
        )  # fmt: skip
        assert list(row.value) == list(again.value)


def test_columns_as_published_are_read(tmp_path):
    """Other integer widths, dictionaries of texts, a partition's column, plb, null values."""
    path = write(
        tmp_path / "County.parquet" / "DPQuery" / "part-0.parquet",
        geocode=pa.array(["01001", "01003"]).dictionary_encode(),
        query_name=["hhgq_dpq"] * 2, a=["a", None], b=["*"] * 2,
        query_shape=pa.array([[2, 1], [2, 1]], pa.large_list(pa.int8())),
        value=pa.array([[3, -4], None], pa.list_(pa.int16())),
        variance=pa.array([2.5, None], pa.float32()),
        State=["01"] * 2, plb=["1/3"] * 2, sign=pa.nulls(2, pa.string()),
    )  # fmt: skip
    ((axes, row),) = read_measurements(path)
    assert (axes, row.query, row.specs) == (("a", "b"), "hhgq", ("a", "*"))
    assert row.value.dtype == np.int64


def test_memory_is_for_a_few_rows_at_a_time(tmp_path, monkeypatch):
    path = write(
        tmp_path / "x.parquet",
        **{k: v * 100 for k, v in GOOD.items() if k not in ("value", "query_shape")},
        value=[[1] * 1000] * 100, query_shape=[[1000, 1]] * 100,
    )  # fmt: skip
    monkeypatch.setattr(reading, "_NUMBERS", 3000)
    sizes = []
    batch = reading._batch

    def seen(found, *rest):
        sizes.append(found.num_rows)
        return batch(found, *rest)

    monkeypatch.setattr(reading, "_batch", seen)
    assert len(list(read_measurements(path))) == 100
    assert max(sizes) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"variance": None}, "no column variance"),
        ({"variance": [0.0]}, "variance=0.0: must be a number from 1e-6 to 1e10"),
        ({"variance": [1e300]}, "variance=1e+300"),
        ({"variance": [float("nan")]}, "variance=nan"),
        ({"variance": [float("inf")]}, "variance=inf"),
        ({"variance": ["much"]}, "much"),
        ({"query_shape": [[2]]}, "query_shape must have one number for each of a, b"),
        ({"query_shape": [[3, 1]]}, "query_shape=[3, 1] with 2 values"),
        ({"query_shape": [[-2, -1]]}, "query_shape=[-2, -1] with 2 values"),
        ({"value": [[3.5, 1.0]]}, "truncated"),
        ({"value": [[1 << 60, 1]]}, "a value above 2^52"),
        ({"value": [[-(1 << 63), 1]]}, "a value above 2^52"),
        ({"value": [[None, 1]]}, "a list with nulls"),
        ({"value": ["ab"]}, "wanted lists of whole numbers"),
        ({"geocode": ["\x1b[31m"]}, "cannot be printed"),
        ({"geocode": ["0" * 300]}, "texts of 1 to 200 letters"),
        ({"geocode": [7]}, "texts of 1 to 200 letters"),
        ({"geocode": [["01"]]}, "texts of 1 to 200 letters"),
        ({"query_name": [{"x": 1}]}, "texts of 1 to 200 letters"),
        ({"variance": [[1.0]]}, "x.parquet: "),
        ({"query_name": [None]}, "texts of 1 to 200 letters"),
        ({"a": None, "b": None}, "0 columns for axes"),
    ],
)
def test_a_file_that_is_no_measurement_file_is_refused(tmp_path, changes, why):
    path = write(tmp_path / "x.parquet", **changes)
    with pytest.raises(UsageError) as error:
        list(read_measurements(path))
    text = str(error.value)
    assert why in text
    assert str(path) in text
    assert text.isprintable()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 99 + b"PAR1", b"\x80\x04N."])
def test_what_is_no_parquet_is_refused(tmp_path, content):
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"nmf=.*x\.parquet: "):
        list(read_measurements(path))


def test_a_cut_file_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet")
    whole = path.read_bytes()
    for keep in (10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:keep])
        with pytest.raises(UsageError):
            list(read_measurements(path))


def test_too_many_numbers_per_row_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", value=[[0] * 50], query_shape=[[50, 1]])
    monkeypatch.setattr(reading, "MOST_CELLS", 10)
    monkeypatch.setattr(reading, "_batch", None)
    with pytest.raises(UsageError, match="a query of 50 cells, at most 10"):
        list(read_measurements(path))


def test_a_constraint_needs_a_known_sign(tmp_path):
    path = write(tmp_path / "x.parquet", query_name=["total_con"], sign=["~"])
    with pytest.raises(UsageError, match="sign='~'"):
        list(read_constraints(path))


def test_files_are_found_by_name_folder_and_pattern(tmp_path):
    one = write(tmp_path / "P" / "State.parquet" / "DPQuery" / "State=01" / "part-0.parquet")
    other = write(tmp_path / "P" / "County.parquet")
    (tmp_path / "P" / "State.parquet" / "_SUCCESS").write_text("")
    both = {("P", "State", "State=01"): (one,), ("P", "County", ""): (other,)}

    def places(*paths):
        return {(b.product, b.level, b.partition): b.files for b in find_buckets(paths)}

    assert places(tmp_path) == places(tmp_path / "P", one) == both
    assert places(str(tmp_path / "P" / "*.parquet")) == both
    assert places(one) == {("P", "State", "State=01"): (one,)}
    for nothing in (tmp_path / "none", tmp_path / "*.csv"):
        with pytest.raises(UsageError, match="no Parquet file there"):
            find_buckets([nothing])


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_FILES", 1)
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet")
    with pytest.raises(UsageError, match="more than 1 files"):
        find_buckets([tmp_path])


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpaudit\[parquet\]'"):
        list(read_measurements(path))


def test_the_hosts_measurements_have_their_zeros_as_bounds(tmp_path):
    query = NoisyQuery(
        level="State", query="age", geocodes=("01", "02"), cells=("0", "1"),
        values=np.array([[5, -2], [7, 1]]), scale=3.0, variance=9.0, zeros=np.array([False, True]),
    )  # fmt: skip
    write_measurements(tmp_path / "host", NoisyMeasurements(queries=(query,)))
    (bucket,) = find_buckets([tmp_path])
    constraints, measurements = bucket.files
    assert [list(row.value) for _, row in read_measurements(measurements)] == [[5, -2], [7, 1]]
    assert [list(c.value) for _, c in read_constraints(constraints)] == [[UNBOUNDED, 0]] * 2
    assert [c.sign for _, c in read_constraints(constraints)] == ["<=", "<="]
