"""Hostile files of scores (``dpaudit mechanism scores:FILE``): little memory, and a refusal."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hostile.test_npy import HEADERS, WORDS, saved, with_header
from hostile.test_npz import packed, zipped
from hypothesis import given

from dpaudit.audit.epsilon.canary_scores import read_scores
from dpaudit.errors import UsageError

SCORE, MEMBER = np.arange(60.0) / 7, np.arange(60) % 2
TEXT = b"score,member,note\n" + b"".join(
    b"%f,%d,x\n" % pair for pair in zip(SCORE, MEMBER, strict=True)
)
ARCHIVES = [
    packed({"score": SCORE, "member": MEMBER.astype(bool)}),
    packed({"score": SCORE.astype(">f4"), "member": MEMBER, "other": np.array("x")}, save=np.savez),
]
CSV_WORDS = [
    b'"', b'""', b",", b"\n", b"\r", b"\0", b"score", b"member", b"\xff", b"1e999", b"nan",
    b"9" * 500, b"\x1b[2J",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scores")


@given(data=mutations([TEXT, b"\xef\xbb\xbfmember, score\r\n1, -2\r\n\r\n0, .5"], words=CSV_WORDS))
@fuzzed
def test_mutated_text(data, folder):
    path = folder / "s.csv"
    path.write_bytes(data)
    refuses_or_reads(lambda: read_scores(path), size=len(data))


@given(data=mutations(ARCHIVES, words=[*WORDS, b"PK\1\2", b"PK\5\6", b"\xff" * 8]))
@fuzzed
def test_mutated_archives(data, folder):
    path = folder / "s.npz"
    path.write_bytes(data)
    refuses_or_reads(lambda: read_scores(path), size=len(data))


@given(data=mutations([saved(SCORE), saved(MEMBER)], words=WORDS))
@fuzzed
def test_mutated_arrays_in_whole_archives(data, folder):
    path = folder / "a.npz"
    for members in (
        (("score.npy", data), ("member.npy", saved(MEMBER))),
        (("score.npy", saved(SCORE)), ("member.npy", data)),
    ):
        path.write_bytes(zipped(*members))
        refuses_or_reads(lambda: read_scores(path), size=path.stat().st_size)


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_are_none(header, folder):
    path = folder / "h.npz"
    path.write_bytes(
        zipped(("score.npy", with_header(header, bytes(24))), ("member.npy", saved(MEMBER[:3])))
    )
    assert not refuses_or_reads(lambda: read_scores(path), size=path.stat().st_size)


def test_valid_files_are_read(folder):
    for number, data in enumerate([*ARCHIVES, TEXT]):
        path = folder / f"{number}.{'csv' if data is TEXT else 'npz'}"
        path.write_bytes(data)
        assert refuses_or_reads(lambda path=path: read_scores(path), size=len(data))
        score, member = read_scores(path)
        np.testing.assert_allclose(score, SCORE, rtol=1e-5)
        np.testing.assert_array_equal(member, MEMBER)


def test_a_small_file_that_unpacks_to_much(folder):
    rows = 1 << 26
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("score", "member"):
            with archive.open(f"{name}.npy", "w") as stream:
                stream.write(
                    with_header(f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({rows},)}}")
                )
                for _ in range(rows >> 20):
                    stream.write(bytes(1 << 20))
    path = folder / "bomb.npz"
    path.write_bytes(file.getvalue())
    assert not refuses_or_reads(lambda: read_scores(path), size=path.stat().st_size)
    with pytest.raises(UsageError, match=r"67,108,864 scores in \d+,\d+ bytes, at most 1,\d+,\d+"):
        read_scores(path)


def test_many_short_rows_take_little_memory(folder):
    path = folder / "short.csv"
    path.write_bytes(b"score,member\n" + b"1,0\n" * 500_000)
    assert refuses_or_reads(lambda: read_scores(path), size=path.stat().st_size)
    np.savez_compressed(folder / "zeros.npz", score=np.zeros(1 << 20), member=np.zeros(1 << 20))
    assert refuses_or_reads(
        lambda: read_scores(folder / "zeros.npz"), size=(folder / "zeros.npz").stat().st_size
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"score,score,member\n1,2,1\n", "two columns score"),
        (b"score,member\n" + b"1" * (1 << 21), "a line is longer than 1048576"),
        (
            b"score,member\n" + b"1," * 500_000 + b"1\n" + b'"' + b"x\n" * 200_000,
            "neither 0 nor 1|field larger",
        ),
        (b"score,member\n\x1b]52;c;AAAA\x07,1\n", "could not convert"),
        (b"score,member\n1,1\n\xff\n", "utf-8"),
    ],
)
def test_refusals_are_short_and_printable(text, says, folder):
    path = folder / "r.csv"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=says) as caught:
        read_scores(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1200
    assert not refuses_or_reads(lambda: read_scores(path), size=len(text))
