"""Hostile ``.csv`` and ``.bin`` recordings."""

from __future__ import annotations

import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hostile.test_npy import drawn
from hypothesis import given

VALID = [
    b"1,2\n3,4\n5,6\n",
    b"\xef\xbb\xbf# noise\n1.5,2\n\n3,4 # why\r\n-0,6e-3",
    b"".join(b"%d.25\n" % i for i in range(700)),
]
WORDS = [
    b"#", b",", b",,", b"\0", b"\r", b"\n\n", b"\x0b", b"\x1c", b'"', b'"\n', b"\xff",
    b"\xe2\x80\xa8", b"0x1p3",
]  # fmt: skip
WORDS += [
    b"1e999", b"nan", b"-inf", b"1_0", b"1+2j", b"\x1b[2J", b"9" * 5000, "٣".encode(),
    b"1,2\n" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


@given(data=mutations(VALID, words=WORDS))
@fuzzed
def test_mutated_text(data, folder):
    path = folder / "x.csv"
    path.write_bytes(data)
    refuses_or_reads(lambda: drawn(path), size=len(data))


@given(data=mutations([bytes(64), b"\0\0\0\0\0\0\xf0\x3f" * 9]))
@fuzzed
def test_mutated_values(data, folder):
    path = folder / "x.bin"
    path.write_bytes(data)
    refuses_or_reads(lambda: drawn(path), size=len(data))


@pytest.mark.parametrize(
    "data",
    [
        b"1" * (1 << 22),
        b"," * (1 << 20),
        b'"' + b"1\n" * (1 << 20),
        b"#" * (1 << 22),
        b"\0" * (1 << 20),
        b"1," * (1 << 18) + b"1\n" + b"2\n" * 1000,
        (b"1\n" * 400) + b"\xff\n",
        "\U0001d7d9\n".encode() * 1000 + b"x",
    ],
)
def test_text_that_is_large_where_it_should_not_be(data, folder):
    path = folder / "large.csv"
    path.write_bytes(data)
    assert not refuses_or_reads(lambda: drawn(path), size=len(data))


def test_valid_files_are_read(folder):
    for number, data in enumerate([*VALID, b"1," * (1 << 16) + b"1\n"]):
        path = folder / f"{number}.csv"
        path.write_bytes(data)
        assert refuses_or_reads(lambda path=path: drawn(path), size=len(data))
    path = folder / "zeros.bin"
    path.write_bytes(bytes(800))
    assert refuses_or_reads(lambda: drawn(path), size=800)
