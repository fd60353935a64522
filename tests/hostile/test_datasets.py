"""Hostile IDX files and archives of images; ``.npz`` ones are in test_npz.py."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile

import pytest
from hostile.fuzzing import fuzzed, refuses_or_reads
from hostile.mutated_bytes import mutations
from hypothesis import given

from dpaudit.errors import UsageError
from dpaudit.training.data.formats import read_idx, read_tar, reading


def idx(*shape):
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def tarred(*files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


IMAGES = [idx(2, 3, 3) + bytes(18), idx(4) + b"\0\1\2\3"]
TAR = tarred(("cifar/a.bin", bytes(300)), ("cifar/readme", b"x" * 30), ("cifar/b.bin", bytes(300)))
WORDS = [
    b"\0\0\x08\3", b"\xff" * 12, b"\x1f\x8b\x08", b"ustar", b"00000000000", b"77777777777",
    b"a.bin",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def idx_door(path):
    with reading("mnist", path):
        return read_idx(path)


def tar_door(path):
    with reading("cifar10", path):
        return list(read_tar(path, ("a.bin", "b.bin"), size=300))


@given(data=mutations([*IMAGES, *map(gzip.compress, IMAGES)], words=WORDS))
@fuzzed
def test_mutated_idx(data, folder):
    for name in ("x", "x.gz"):
        (folder / name).write_bytes(data)
        refuses_or_reads(lambda name=name: idx_door(folder / name), size=len(data))


@given(data=mutations([TAR], words=WORDS))
@fuzzed
def test_mutated_tar(data, folder):
    path = folder / "x.tar.gz"
    path.write_bytes(gzip.compress(data, 1, mtime=0))
    refuses_or_reads(lambda: tar_door(path), size=path.stat().st_size)


def test_valid_files_are_read(folder):
    for number, data in enumerate([*IMAGES, *map(gzip.compress, IMAGES)]):
        path = folder / (f"v{number}" + ".gz" * (number > 1))
        path.write_bytes(data)
        assert refuses_or_reads(lambda path=path: idx_door(path), size=len(data))
    path = folder / "v.tar.gz"
    path.write_bytes(gzip.compress(TAR))
    assert len(tar_door(path)) == 2


def test_files_that_unpack_to_much_are_refused(folder):
    much = bytes(128 << 20)
    for name, data, door in (
        ("much.gz", idx(128, 1 << 20) + much, idx_door),
        ("much.tar.gz", tarred(("other", much)), tar_door),
        ("pax.tar.gz", pax(much), tar_door),
    ):
        path = folder / name
        path.write_bytes(gzip.compress(data, 1))
        assert not refuses_or_reads(
            lambda door=door, path=path: door(path), size=path.stat().st_size
        )
        with pytest.raises(UsageError, match="unpacks to more than"):
            door(path)


def pax(content):
    """An extended header of that size, which tarfile reads whole."""
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, len(content)
    return member.tobuf() + content
