"""Files as they are written and read, and which cells of them are known to be zero."""

from __future__ import annotations

import sys
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit_deployments.census import files
from dpaudit_deployments.census.files import (
    UNBOUNDED,
    Constraint,
    Measurement,
    find_buckets,
    read_constraints,
    read_measurements,
    write_level,
    write_measurements,
)
from dpaudit_deployments.census.noise import Known, Rule, read_rules
from dpaudit_deployments.topdown.topdown import NoisyMeasurements, NoisyQuery

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
    about = {"query": "detailed", "specs": ("detailed", "*"), "shape": (3, 1), "variance": 2.5}
    rows = [Measurement(geocode=f"{i:02d}", value=np.arange(3) - i, **about) for i in range(2500)]
    about = {"query": "total", "specs": ("*", "*"), "shape": (1, 1), "sign": "="}
    total = Constraint(geocode="01", value=np.array([9]), **about)
    where = {"axes": ("a", "b"), "partition": "State=01"}
    write_level(tmp_path / "US_PROD", "State", measurements=rows, constraints=[total], **where)
    (bucket,) = find_buckets([tmp_path])
    assert (bucket.product, bucket.level, bucket.partition) == ("US_PROD", "State", "State=01")
    constraints, measurements = bucket.files
    assert list(read_measurements(constraints)) == list(read_constraints(measurements)) == []
    ((axes, read),) = read_constraints(constraints)
    assert (axes, read.query, read.sign, list(read.value)) == (("a", "b"), "total", "=", [9])
    about = attrgetter("geocode", "query", "specs", "shape", "variance")
    for row, (_, again) in zip(rows, read_measurements(measurements), strict=True):
        assert about(again) == about(row)
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
    monkeypatch.setattr(files, "_NUMBERS", 3000)
    sizes = []
    batch = files._batch

    def seen(found, *rest):
        sizes.append(found.num_rows)
        return batch(found, *rest)

    monkeypatch.setattr(files, "_batch", seen)
    assert len(list(read_measurements(path))) == 100
    assert max(sizes) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"variance": None}, "no column variance"),
        ({"variance": [0.0]}, "variance=0.0: must be a number from 1e-6 to 1e10"),
        ({"variance": [float("nan")]}, "variance=nan"),
        ({"variance": [float("inf")]}, "variance=inf"),
        ({"variance": ["much"]}, "much"),
        ({"variance": [[1.0]]}, "x.parquet: "),
        ({"query_shape": [[2]]}, "query_shape must have one number for each of a, b"),
        *(({"query_shape": [s]}, f"query_shape={s} with 2 values") for s in ([3, 1], [-2, -1])),
        ({"value": [[3.5, 1.0]]}, "truncated"),
        *(({"value": [[n, 1]]}, "a value above 2^52") for n in (1 << 60, -(1 << 63))),
        ({"value": [[None, 1]]}, "a list with nulls"),
        ({"value": ["ab"]}, "wanted lists of whole numbers"),
        ({"geocode": ["\x1b[31m"]}, "cannot be printed"),
        *(({"geocode": [text]}, "texts of 1 to 200 letters") for text in ("0" * 300, 7, ["01"])),
        *(({"query_name": [text]}, "texts of 1 to 200 letters") for text in ({"x": 1}, None)),
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


def test_what_is_no_parquet_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet")
    whole = path.read_bytes()
    cut = [whole[:keep] for keep in (0, 4, 10, len(whole) // 2, len(whole) - 5)]
    for content in (*cut, b"PAR1" + b"\0" * 99 + b"PAR1", b"\x80\x04N."):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"nmf=.*x\.parquet: "):
            list(read_measurements(path))


def test_too_many_numbers_per_row_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", value=[[0] * 50], query_shape=[[50, 1]])
    monkeypatch.setattr(files, "MOST_CELLS", 10)
    monkeypatch.setattr(files, "_batch", None)
    with pytest.raises(UsageError, match="a query of 50 cells, at most 10"):
        list(read_measurements(path))


def test_a_constraint_needs_a_known_sign(tmp_path):
    path = write(tmp_path / "x.parquet", query_name=["total_con"], sign=["~"])
    with pytest.raises(UsageError, match="sign='~'"):
        list(read_constraints(path))


def test_files_are_found_by_name_folder_and_pattern(tmp_path, monkeypatch):
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
    monkeypatch.setattr(files, "MOST_FILES", 1)
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


AXES = ("hhgq", "votingage", "cenrace")


def measurement(*specs, shape, query="q", geocode="01"):
    return Measurement(
        geocode=geocode, query=query, specs=specs, shape=shape, variance=4.0,
        value=np.zeros(int(np.prod(shape)), dtype=np.int64),
    )  # fmt: skip


def constraint(*specs, shape, value, sign="=", geocode="01"):
    return Constraint(
        geocode=geocode, query="c", specs=specs, shape=shape, value=np.array(value), sign=sign
    )


NURSING = constraint("gqNursingTotal", "nonvoting", "*", shape=(1, 1, 1), value=[0])
DETAILED = measurement("detailed", "detailed", "detailed", shape=(8, 2, 3))


def zeros(row, *constraints, rules=(), level="County"):
    known = Known(tuple(rules))
    for one in constraints:
        known.add(AXES, one)
    return known.zeros(level, AXES, row).reshape(row.shape)


def test_nobody_below_18_in_nursing_facilities():
    found = zeros(DETAILED, NURSING)
    wanted = np.zeros((8, 2, 3), dtype=bool)
    wanted[3, 0] = True
    assert (found == wanted).all()
    assert not zeros(measurement("hhgq", "*", "*", shape=(8, 1, 1)), NURSING).any()
    assert not zeros(measurement("*", "*", "*", shape=(1, 1, 1)), NURSING).any()


def test_upper_bounds_of_zero_are_zeros_and_other_bounds_are_not():
    bounds = constraint(
        "hhgq", "*", "*", shape=(8, 1, 1), value=[9, 0, 5, 5, 5, 0, 0, 0], sign="<="
    )
    found = zeros(DETAILED, bounds)
    assert found.all(axis=(1, 2)).tolist() == [False, True, False, False, False, True, True, True]
    assert found.any(axis=(1, 2)).tolist() == found.all(axis=(1, 2)).tolist()
    # the three noninstitutional kinds are cells 5 to 7, the institutional ones 1 to 4
    recoded = measurement("hhinstlevels", "*", "*", shape=(3, 1, 1))
    assert zeros(recoded, bounds).reshape(-1).tolist() == [False, False, False]
    every = constraint("hhinstlevels", "*", "*", shape=(3, 1, 1), value=[9, 5, 0], sign="<=")
    assert zeros(DETAILED, every).all(axis=(1, 2)).tolist() == [False] * 5 + [True] * 3
    lower = constraint("hhgq", "*", "*", shape=(8, 1, 1), value=[0] * 8, sign=">=")
    assert not zeros(DETAILED, lower).any()


def test_a_constraint_of_another_table_or_geography_is_left_alone():
    known = Known()
    known.add(("h1",), constraint("*", shape=(1,), value=[0]))
    assert not known.zeros("County", AXES, DETAILED).any()
    elsewhere = measurement("detailed", "detailed", "detailed", shape=(8, 2, 3), geocode="02")
    assert not zeros(elsewhere, NURSING).any()


def test_a_new_bucket_begins_without_geographies():
    known = Known()
    known.add(AXES, NURSING)
    known.add(AXES, constraint("*", "*", "*", shape=(1, 1, 1), value=[77]))
    assert known.zeros("County", AXES, DETAILED).any()
    known.begin()
    assert not known.zeros("County", AXES, DETAILED).any()
    assert known.total("01") is None


def test_a_recode_that_is_not_known_matches_itself_alone():
    strange = constraint("mine", "*", "*", shape=(2, 1, 1), value=[0, 7], sign="<=")
    assert not zeros(DETAILED, strange).any()
    own = measurement("mine", "votingage", "*", shape=(2, 2, 1))
    assert zeros(own, strange)[:, :, 0].tolist() == [[True, True], [False, False]]


def test_two_constraints_of_a_geography_add_up():
    bounds = constraint("hhgq", "*", "*", shape=(8, 1, 1), value=[9, 0, *[5] * 6], sign="<=")
    assert zeros(DETAILED, NURSING, bounds).sum() == 3 + 6


def test_totals_are_known_of_exact_constraints_only():
    known = Known()
    known.add(AXES, constraint("*", "*", "*", shape=(1, 1, 1), value=[77]))
    known.add(AXES, constraint("*", "*", "*", shape=(1, 1, 1), value=[99], sign="<=", geocode="02"))
    assert (known.total("01"), known.total("02"), known.total("03")) == (77, None, None)


def test_rules_hold_where_the_axes_are_kept():
    rule = Rule(cells={"hhgq": [3], "votingage": [0]})
    assert (zeros(DETAILED, rules=[rule]) == zeros(DETAILED, NURSING)).all()
    assert not zeros(measurement("hhgq", "*", "*", shape=(8, 1, 1)), rules=[rule]).any()
    only = Rule(cells={"hhgq": [1]}, level="State", query="q")
    assert not zeros(DETAILED, rules=[only]).any()
    assert zeros(DETAILED, rules=[only], level="State").sum() == 6
    recoded = measurement("hhinstlevels", "*", "*", shape=(3, 1, 1))
    assert zeros(recoded, rules=[only], level="State").sum() == 1  # the query's own cells


def test_a_table_of_rules_is_read(tmp_path):
    path = tmp_path / "zeros.toml"
    path.write_text('[[zero]]\ncells = { hhgq = [3], votingage = [0] }\n[[zero]]\nlevel = "State"\n'
                    "cells = { hhgq = [1, 2] }\n")  # fmt: skip
    first, second = read_rules(path)
    assert first == Rule(cells={"hhgq": [3], "votingage": [0]})
    assert (second.level, second.cells) == ("State", {"hhgq": [1, 2]})


@pytest.mark.parametrize(
    "text",
    ["", "[[zero]]\n", "[[zero]]\ncells = {}\n", "[[zero]]\ncells = { a = [] }\n",
     "[[zero]]\ncells = { a = [-1] }\n", "[[zero]]\ncells = { a = ['x'] }\n",
     "[[zero]]\nwhich = 1\ncells = { a = [1] }\n", "nonsense", "\x00"],
)  # fmt: skip
def test_a_broken_table_is_refused(tmp_path, text):
    path = tmp_path / "zeros.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"zeros=.*zeros\.toml"):
        read_rules(path)
