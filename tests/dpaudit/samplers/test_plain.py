"""Plain values: what they become, what passes between processes, and what is refused."""

import dataclasses
import math
from collections import Counter, namedtuple

import msgspec
import numpy as np
import pytest

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers.plain import (
    dataset_copy,
    packed,
    packed_dataset,
    plain,
    releases_of,
    unpacked,
    unpacked_dataset,
)

Point = namedtuple("Point", "x y")


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


def test_a_mechanism_may_change_its_copy():
    given = [3, 1, 2]
    dataset_copy(given).sort()
    assert given == [3, 1, 2]


@pytest.mark.parametrize("given", [[1, 2], "abc", {"a": 1, "b": 2, "c": 3}, None, 3.0])
def test_a_wrong_number_of_releases_is_refused(given):
    with pytest.raises(SamplerOutputError, match=r"m returned .*n=3"):
        releases_of(given, 3, who="m")
