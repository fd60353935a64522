"""Hostile ``.npy`` files at every door that takes one: a refusal, never an internal error."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hypothesis import given

from dpaudit.audit.epsilon.run import parse_neighbours
from dpaudit.errors import UsageError
from dpaudit.results.arrays import map_npy, read_npy
from dpaudit.samplers.endpoints.file import FileSampler


def saved(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def with_header(text, body=b"", version=b"\1\0"):
    width = 2 if version == b"\1\0" else 4
    return (
        b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode("latin-1") + body
    )


ROWS = np.arange(6.0).reshape(3, 2)
VALID = [
    saved(ROWS), saved(np.asfortranarray(ROWS)), saved(ROWS.astype(">f4")),
    saved(np.arange(5, dtype=np.int16)), saved(ROWS, version=(2, 0)), saved(ROWS, version=(3, 0)),
    saved(np.float64(3)),
    # as other programs write
    with_header('{"shape":(3L,),"descr":"<i1",  "fortran_order":False}', b"abc"),
]  # fmt: skip
WORDS = [
    b"\0", b"(", b"((((", b",", b"'<f8'", b"'|O'", b"[('a','<f8')]", b"'''", b"{", b"}", b"lambda:",
    b"\x1b[2J", b"\n",
]  # fmt: skip
# what numpy's own reader answers with TokenError, TypeError, RecursionError, OverflowError,
# MemoryError, …
HEADERS = [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3,", "(" * 3000,
    "{'descr': " + "[" * 500 + "]" * 500 + ", 'fortran_order': False, 'shape': (3,)}",
    "{'descr': ('<f8', (-1,)), 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999999999,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': 3}",
    "{'descr': '<f8', 'fortran_order': 1, 'shape': (3,)}",
    "{'descr': '|V2000000000', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<c16', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f8', 'descr': '<f8', 'shape': (3,)}",
    "{'descr': '<f8\x1b[2J', 'fortran_order': False, 'shape': (3,)}", "{}", "",
]  # fmt: skip


def doors(path):
    """Every reader of a ``.npy`` file: five commands' arguments end in these four functions."""
    return {
        "read": lambda: read_npy(path, name="query"),
        "neighbours": lambda: parse_neighbours(f"{path};{path.with_name('other.npy')}"),
        "sampler": lambda: drawn(path),
    }


def drawn(path):
    with FileSampler(str(path), seed="1") as sampler:
        return sampler.draw(sampler.available, sampler.dim, timeout=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("npy")
    np.save(made / "other.npy", np.array([7.0, 7.0, 7.0]))
    return made


@given(data=mutations(VALID, words=WORDS))
@fuzzed
def test_mutated_files(data, folder):
    path = folder / "x.npy"
    path.write_bytes(data)
    for door in doors(path).values():
        refuses_or_reads(door, size=len(data))


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("version", [b"\1\0", b"\2\0", b"\3\0"])
def test_headers_that_are_none(header, version, folder):
    path = folder / "h.npy"
    path.write_bytes(with_header(header, bytes(24), version))
    for door in doors(path).values():
        assert not refuses_or_reads(door, size=path.stat().st_size)


# numpy of its own reading: written by Python 2
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("data", VALID)
def test_valid_files_are_read_as_numpy_reads_them(data, folder):
    path = folder / "v.npy"
    path.write_bytes(data)
    expected = np.load(path)
    for array in (read_npy(path, name="query"), map_npy(path)):
        np.testing.assert_array_equal(array, expected)
        assert array.shape == expected.shape
    assert read_npy(path, name="query").dtype.isnative
    if expected.ndim:
        np.testing.assert_array_equal(drawn(path).reshape(expected.shape), expected)


def test_a_file_is_exactly_as_long_as_it_says(folder):
    path = folder / "l.npy"
    for data in (VALID[0][:-1], VALID[0] + b"\0"):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"query=.*has 48 bytes, and 4[79] are there"):
            read_npy(path, name="query")


def test_a_terabyte_that_is_not_there_is_not_allocated(folder):
    path = folder / "t.npy"
    path.write_bytes(
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,)}", bytes(64))
    )
    for door in doors(path).values():
        assert not refuses_or_reads(door, size=200)


def test_pipes_and_folders_are_refused_at_once(folder):
    (folder / "d.npy").mkdir()
    os.mkfifo(folder / "p.npy")
    for name in ("d.npy", "p.npy", "none.npy"):
        for door in doors(folder / name).values():
            assert not refuses_or_reads(door, size=0)
