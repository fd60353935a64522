"""Plain values: what they become, what passes between processes, and what is refused."""

import dataclasses
import datetime
import itertools
import json
import math
from collections import Counter, namedtuple
from enum import Enum
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.targets.plain import (
    dataset_copy,
    jsonable,
    of_json,
    packed,
    packed_dataset,
    plain,
    releases_of,
    unpacked,
    unpacked_dataset,
)

Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = 1


@dataclasses.dataclass
class Answer:
    count: int
    said: str


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Point(1, None), {"x": 1, "y": None}),
        (Answer(2, "yes"), {"count": 2, "said": "yes"}),
        ({3, 1, 2}, [1, 2, 3]),
        (bytearray(b"ab"), b"ab"),
        ((1, [2.0, "x"]), (1, [2.0, "x"])),
        (range(3), [0, 1, 2]),
        (np.array(["a", None], dtype=object), ["a", None]),
        (np.array([1 << 60]), [1 << 60]),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        (1 + 2j, (1.0, 2.0)),
        (datetime.timedelta(1), "1 day, 0:00:00"),
        (Fraction(1, 3), "1/3"),
        (Colour.RED, "Colour.RED"),
        (np.ma.masked_array([1.0, 2.0], mask=[False, True]), [1.0, None]),
    ],
)
def test_values_become_plain(given, becomes):
    found = plain(given)
    assert found == becomes
    assert type(found) is type(becomes)


def test_frames_and_arrays_become_columns_and_float64():
    pd = pytest.importorskip("pandas")
    found = plain(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
    assert found["a"].dtype == np.float64
    assert list(found["b"]) == ["x", "y"]
    assert plain(np.array([True, False])).tolist() == [1.0, 0.0]


def test_an_index_that_says_something_is_kept():
    """Which groups there are is what a group-by gives away."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"city": ["Bonn", "Graz", "Bonn"], "n": [1, 2, 3]})
    assert plain(frame.groupby("city").size()) == {"Bonn": 2, "Graz": 1}
    assert plain(frame.groupby("city").sum())["index"] == ["Bonn", "Graz"]
    assert plain(pd.Series([1, 2], index=["a", "a"])) == [("a", 1), ("a", 2)]
    assert list(plain(frame)) == ["city", "n"]
    assert plain(frame["n"]).tolist() == [1, 2, 3]
    assert releases_of(frame["n"][1:], 2, who="m").tolist() == [2, 3]
    assert plain([pd.NA, pd.NaT]) == [None, None]


def test_releases_may_come_one_by_one():
    assert releases_of(iter([1, None]), 2, who="m") == [1, None]
    with pytest.raises(SamplerOutputError, match="m returned 3 releases, wanted n=2"):
        releases_of(itertools.count(), 2, who="m")


@pytest.mark.parametrize("given", [object(), lambda: 0, {"x": object()}])
def test_what_is_not_plain_is_refused_by_its_type(given):
    with pytest.raises(UsageError, match=r"^type=.*features="):
        plain(given)


def test_nesting_without_end_is_refused():
    deep = []
    deep.append(deep)
    with pytest.raises(UsageError, match="nested"):
        plain(deep)


@pytest.mark.parametrize(
    "given",
    [
        {"a": (1, None, True), "b": [b"\0\xff", "ü", -0.0, math.inf], "c": {}},
        1 << 200,
        [-(1 << 63), (1 << 64)],
        {None: 1, 2: "x"},
    ],
)
def test_plain_values_pass_unchanged(given):
    assert repr(unpacked(packed(given))) == repr(given)


def test_arrays_pass_with_every_bit():
    given = np.array([[np.nan, -0.0], [5e-324, np.inf]])
    found = unpacked(packed([given]))[0]
    assert found.shape == (2, 2)
    assert np.array_equal(found.view(np.uint64), given.view(np.uint64))


@pytest.mark.parametrize(
    "wire",
    [
        ["a", [3], b"\0" * 16],
        ["a", [-1], b""],
        ["d", [[["l", []], 1]]],
        ["x", 1],
        [1],
        {"a": 1},
        ["i", "zz"],
    ],
)
def test_other_bytes_are_refused(wire):
    with pytest.raises(ValueError, match=r"."):
        unpacked(msgspec.msgpack.encode(wire))


def test_deep_bytes_are_refused():
    wire = 1
    for _ in range(60):
        wire = ["l", [wire]]
    with pytest.raises(ValueError, match="plain form"):
        unpacked(msgspec.msgpack.encode(wire))


def test_data_sets_keep_their_form():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1, 2], "c": ["x", "y"]})
    found = unpacked_dataset(packed_dataset(frame))
    assert found["n"].tolist() == [1, 2]
    assert found["n"].dtype == frame["n"].dtype
    assert unpacked_dataset(packed_dataset(frame[:0])).columns.tolist() == ["n", "c"]
    whole = np.arange(6).reshape(2, 3)
    found = unpacked_dataset(packed_dataset(whole))
    assert found.dtype == whole.dtype
    assert found.shape == (2, 3)
    assert unpacked_dataset(packed_dataset([{"a": 1}])) == [{"a": 1}]


def test_data_sets_become_json_as_records():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1, 2], "c": ["x", None]})
    assert json.dumps(jsonable(frame)) == '[{"n": 1, "c": "x"}, {"n": 2, "c": NaN}]'
    assert jsonable({"x": [np.eye(2)], 1: (b"\xff", {2})}) == {
        "x": [[[1.0, 0.0], [0.0, 1.0]]],
        "1": ["ff", [2]],
    }
    assert jsonable(np.array([[1, 2]])) == [[1, 2]]


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 40 + "]" * 40, "{", b"\xff", ""])
def test_json_that_is_none_or_too_deep_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        of_json(text)


def test_a_mechanism_may_change_its_copy():
    given = [3, 1, 2]
    dataset_copy(given).sort()
    assert given == [3, 1, 2]


@pytest.mark.parametrize("given", [[1, 2], "abc", {"a": 1, "b": 2, "c": 3}, None, 3.0])
def test_a_wrong_number_of_releases_is_refused(given):
    with pytest.raises(SamplerOutputError, match=r"m returned .*n=3"):
        releases_of(given, 3, who="m")
