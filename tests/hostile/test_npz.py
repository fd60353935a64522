"""Hostile ``.npz`` archives: recordings, data sets; scores are in test_scores.py."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hostile.test_npy import HEADERS, ROWS, VALID, WORDS, drawn, saved, with_header
from hypothesis import given

from dpaudit.errors import UsageError
from dpaudit.results.arrays import Archive
from dpaudit.samplers.endpoints.file import FileSampler
from dpaudit.training.data.mnist import mnist


def packed(arrays, *, save=np.savez_compressed):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def zipped(*members, compression=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


PIXELS = {
    "x_train": np.arange(784 * 2, dtype=np.uint8).reshape(2, 28, 28),
    "y_train": np.array([3, 4], np.uint8),
}
ARCHIVES = [
    packed({"samples": ROWS, "other": np.array(["a"])}),
    packed({"noise": ROWS.astype(">f4")}, save=np.savez),
    packed({"noise": np.arange(500.0)}),
    packed(PIXELS),
    packed(PIXELS, save=np.savez),
]
ZIP_WORDS = [*WORDS, b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"\xff" * 8, b"samples.npy"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("npz") / "mnist.npz"


def doors(path):
    return lambda: drawn(path), lambda: mnist("train", root=str(path.parent))


@given(data=mutations(ARCHIVES, words=ZIP_WORDS))
@fuzzed
def test_mutated_archives(data, path):
    path.write_bytes(data)
    for door in doors(path):
        refuses_or_reads(door, size=len(data))


@given(data=mutations(VALID, words=WORDS))
@fuzzed
def test_mutated_arrays_in_whole_archives(data, path):
    archive = zipped(
        ("x_train.npy", data),
        ("y_train.npy", saved(np.arange(2, dtype=np.uint8))),
        ("samples.npy", data),
    )
    path.write_bytes(archive)
    for door in doors(path):
        refuses_or_reads(door, size=len(archive))


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_are_none(header, path):
    path.write_bytes(zipped(("samples.npy", with_header(header, bytes(24)))))
    assert not refuses_or_reads(lambda: drawn(path), size=path.stat().st_size)


def test_valid_archives_are_read(path):
    for data in ARCHIVES[:3]:
        path.write_bytes(data)
        assert refuses_or_reads(lambda: drawn(path), size=len(data))
    for data in ARCHIVES[3:]:
        path.write_bytes(data)
        assert len(mnist("train", root=str(path.parent)).labels) == 2


def refused(path, data, says):
    path.write_bytes(data)
    with pytest.raises(UsageError, match=says) as caught:
        FileSampler(str(path), seed="1")
    assert str(caught.value).isprintable()
    assert not refuses_or_reads(lambda: drawn(path), size=len(data))


def test_a_zip_bomb_unpacks_to_no_more_than_is_drawn(path):
    rows = 1 << 24  # 128 MiB of zeros in 128 KiB
    member = with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows},)}}")
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x_train.npy", "w") as stream,
    ):
        stream.write(member)
        for _ in range(rows >> 17):
            stream.write(bytes(1 << 20))
    path.write_bytes(file.getvalue())
    size = path.stat().st_size
    assert refuses_or_reads(lambda: some(path), size=size)
    assert not refuses_or_reads(lambda: mnist("train", root=str(path.parent)), size=size)
    with (
        Archive(path) as archive,
        pytest.raises(ValueError, match="unpacks to 134,217,728 bytes, more than 1,000"),
    ):
        archive.read("x_train", most=1000)


def some(path):
    with FileSampler(str(path), seed="1") as sampler:
        return sampler.draw(1000, 1, timeout=1)


def test_names_of_members(path):
    twice = zipped(("a.npy", VALID[0]), ("b.npy", VALID[0])).replace(b"b.npy", b"a.npy")
    refused(path, twice, "two members have one name")
    loud = zipped(("a\x1b[2J.npy", VALID[0]), ("b\r\u202e.npy", VALID[0]))
    refused(path, loud, r"arrays=a.\[2J, b")
    refused(
        path,
        zipped(("x" * 60_000 + ".npy", VALID[0]), ("y.npy", VALID[0])),
        "arrays=x{39}…, y, wanted one",
    )


def test_a_directory_of_a_hundred_thousand_members(path):
    refused(
        path,
        zipped(*((f"{i}.npy", b"") for i in range(30_000))),
        "directory has more than 1,048,576 bytes",
    )


def test_methods_that_are_not_numpys(path):
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refused(
            path,
            zipped(("a.npy", VALID[0]), compression=method),
            r"compression 1[24], wanted 0 or 8",
        )
    locked = bytearray(zipped(("a.npy", VALID[0])))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag that says: encrypted
        locked[locked.index(mark) + at] |= 1
    refused(path, bytes(locked), "password")


def test_a_member_that_says_another_length_than_its_header(path):
    refused(path, zipped(("a.npy", VALID[0][:-8])), "has 48 bytes, and 40 are there")
    lying = bytearray(zipped(("a.npy", VALID[0])))
    struct.pack_into("<I", lying, lying.index(b"PK\1\2") + 24, 1 << 31)
    refused(path, bytes(lying), "cannot unpack to 2,147,483,648")


def test_damage_is_found_by_the_checksum(path):
    data = bytearray(packed(PIXELS, save=np.savez))
    data[data.index(PIXELS["x_train"].tobytes()[:64])] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="CRC"):
        mnist("train", root=str(path.parent))
