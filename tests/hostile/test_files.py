"""Hostile files of numbers at every door that takes one: a refusal, never an internal error."""

from __future__ import annotations

import gzip
import importlib.util
import io
import itertools
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hostile.fuzzing import fuzz, made_up, refuses_or_reads

from dpaudit.audit.mechanism.one_run_audits import read_scores
from dpaudit.audit.mechanism.question import parse_neighbours
from dpaudit.errors import UsageError
from dpaudit.protocols import Request
from dpaudit.results.arrays import Archive, map_npy, read_npy
from dpaudit.targets.endpoints.file import FileTarget
from dpaudit.training.data.mnist import mnist
from dpaudit.training.data.places import read_idx, read_tar, reading

PARQUET = importlib.util.find_spec("pyarrow") is not None


def drawn(path, rows=None):
    with FileTarget(str(path), seed="1").open(timeout=60) as sampler:
        return sampler.ask(
            Request(rows or sampler.facts.available, sampler.facts.dim), timeout=1
        ).values


def npy(path):
    return read_npy(path, name="query")


def neighbours(path):
    return parse_neighbours(f"{path};{path.with_name('other.npy')}")


def train(path):
    return mnist("train", root=str(path.parent))


def idx(path):
    with reading("mnist", path):
        return read_idx(path)


def tar(path):
    with reading("cifar10", path):
        return list(read_tar(path, ("a.bin", "b.bin"), size=300))


# ---------------------------------------------------------------- valid files


def saved(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def with_header(text, body=b"", version=b"\1\0"):
    width = 2 if version == b"\1\0" else 4
    return (
        b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode("latin-1") + body
    )


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


def table(columns, **options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def idx_file(*shape):
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def tarred(*files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


ROWS = np.arange(6.0).reshape(3, 2)
ARRAYS = [
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
ZIP_WORDS = [*WORDS, b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"\xff" * 8, b"samples.npy"]
SHAPED = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"
# what numpy's own reader answers with TokenError, TypeError, RecursionError, OverflowError,
# MemoryError, …
HEADERS = [
    SHAPED[:-1] % "(3,", "(" * 3000, SHAPED % "(9999999999999999999999,)",
    "{'descr': " + "[" * 500 + "]" * 500 + ", 'fortran_order': False, 'shape': (3,)}",
    "{'descr': ('<f8', (-1,)), 'fortran_order': False, 'shape': (3,)}",
    SHAPED % "(4611686018427387904, 4)", SHAPED % "(0, 9223372036854775807)", SHAPED % "(-3,)",
    SHAPED % "(True,)", SHAPED % "(3)", SHAPED % "3", SHAPED % "(137438953472,)",
    "{'descr': '<f8', 'fortran_order': 1, 'shape': (3,)}",
    "{'descr': '|V2000000000', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<c16', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f8', 'descr': '<f8', 'shape': (3,)}",
    "{'descr': '<f8\x1b[2J', 'fortran_order': False, 'shape': (3,)}", "{}", "",
]  # fmt: skip
HEADED = [with_header(header, bytes(24)) for header in HEADERS]
VERSIONS = [with_header(h, bytes(24), v) for h in HEADERS for v in (b"\1\0", b"\2\0", b"\3\0")]
PIXELS = {
    "x_train": np.arange(784 * 2, dtype=np.uint8).reshape(2, 28, 28),
    "y_train": np.array([3, 4], np.uint8),
}
RECORDED = [
    packed({"samples": ROWS, "other": np.array(["a"])}),
    packed({"noise": ROWS.astype(">f4")}, save=np.savez),
    packed({"noise": np.arange(500.0)}),
]
ODD_ARRAYS = [  # numbers column by column, three axes, words, objects, complex numbers, nothing
    np.asfortranarray(ROWS), np.zeros((2, 2, 2)), np.array(["x"]), np.array([None]),
    np.ones(2) * 1j, np.zeros((0, 2)),
]  # fmt: skip
UNFIT = [packed({"a": ROWS, "b": ROWS}), packed({}), *(packed({"a": odd}) for odd in ODD_ARRAYS)]
TEXT = [
    b"1,2\n3,4\n5,6\n", b"\xef\xbb\xbf# noise\n1.5,2\n\n3,4 # why\r\n-0,6e-3",
    b"".join(b"%d.25\n" % i for i in range(700)), b"1," * (1 << 16) + b"1\n",
]  # fmt: skip
TEXT_WORDS = [
    b"#", b",", b",,", b"\0", b"\r", b"\n\n", b"\x0b", b"\x1c", b'"', b'"\n', b"\xff",
    b"\xe2\x80\xa8", b"0x1p3", b"1e999", b"nan", b"-inf", b"1_0", b"1+2j", b"\x1b[2J", b"9" * 5000,
    "٣".encode(), b"1,2\n" * 300,
]  # fmt: skip
LARGE_TEXT = [
    b"1" * (1 << 22), b"," * (1 << 20), b'"' + b"1\n" * (1 << 20), b"#" * (1 << 22),
    b"\0" * (1 << 20), b"1," * (1 << 18) + b"1\n" + b"2\n" * 1000, (b"1\n" * 400) + b"\xff\n",
    "\U0001d7d9\n".encode() * 1000 + b"x",
]  # fmt: skip
TABLE_WORDS = [
    b"PAR1", b"ARROW:schema", b"\x15\0", b"\xff" * 5, b"\xff" * 9 + b"\x01", b"\x19\xfc", b"\0" * 8,
]  # fmt: skip
IMAGES = [idx_file(2, 3, 3) + bytes(18), idx_file(4) + b"\0\1\2\3"]
TAR = tarred(("cifar/a.bin", bytes(300)), ("cifar/readme", b"x" * 30), ("cifar/b.bin", bytes(300)))
DATA_WORDS = [
    b"\0\0\x08\3", b"\xff" * 12, b"\x1f\x8b\x08", b"ustar", b"00000000000", b"77777777777",
    b"a.bin",
]  # fmt: skip
SCORE, MEMBER = np.arange(60.0) / 7, np.arange(60) % 2
SCORES = b"score,member,note\n" + b"".join(b"%f,%d,x\n" % pair for pair in zip(SCORE, MEMBER))  # noqa: B905
SCORE_ARCHIVES = [
    packed({"score": SCORE, "member": MEMBER.astype(bool)}),
    packed({"score": SCORE.astype(">f4"), "member": MEMBER, "other": np.array("x")}, save=np.savez),
]
SCORE_WORDS = [
    b'"', b'""', b",", b"\n", b"\r", b"\0", b"score", b"member", b"\xff", b"1e999", b"nan",
    b"9" * 500, b"\x1b[2J",
]  # fmt: skip


# ---------------------------------------------------------------- kinds of files and their doors


@dataclass(frozen=True)
class Kind:
    """A file called ``name`` with ``pack(data)``: each of ``valid`` is read, none of ``bad``."""

    name: str
    doors: Sequence[Callable]
    valid: Sequence[bytes]
    words: Sequence[bytes] = ()
    bad: Sequence[bytes] = ()
    pack: Callable[[bytes], bytes] = bytes


def in_archive(data):
    labels = saved(np.arange(2, dtype=np.uint8))
    return zipped(("x_train.npy", data), ("y_train.npy", labels), ("samples.npy", data))


def beside(name, other, array):
    return lambda data: zipped((f"{name}.npy", data), (f"{other}.npy", saved(array)))


def squeezed(data):
    return gzip.compress(data, 1, mtime=0)


def parquet():
    normal = np.random.default_rng(1).standard_normal((200, 2))
    columns = {"a": normal[:, 0], "b": normal[:, 1]}
    floats = {"a": normal[:, 0].astype(np.float32)}
    valid = [
        table(columns, use_dictionary=False, compression="none"),
        table(columns, row_group_size=50),
        table({"a": np.arange(300, dtype=np.int16) // 100}, compression="zstd"),
        table(floats, compression="gzip", data_page_version="2.0", store_schema=False),
    ]
    other = ([1.0, None, 3.0], ["x"], [{"b": 1.0}], [True], [[1.0, 2.0]])
    bad = [table({"a": column}) for column in other]
    bad += [table({"a\x1b[2J": ["x"]}), table({"a": [1.0], "b": ["x"]}), table({}), valid[0][:-100]]
    return Kind("x.parquet", (drawn,), valid, TABLE_WORDS, bad)


KINDS = {
    "npy": Kind("x.npy", (npy, neighbours, drawn), ARRAYS, WORDS, VERSIONS),
    "npz": Kind("x.npz", (drawn,), RECORDED, ZIP_WORDS, UNFIT),
    "pixels": Kind(
        "mnist.npz", (train, drawn), [packed(PIXELS), packed(PIXELS, save=np.savez)], ZIP_WORDS
    ),
    "arrays in an archive": Kind("mnist.npz", (drawn, train), ARRAYS[:1], WORDS, (), in_archive),
    "one array": Kind(
        "x.npz", (drawn,), ARRAYS[:1], WORDS, HEADED, lambda data: zipped(("samples.npy", data))
    ),
    "csv": Kind("x.csv", (drawn,), TEXT, TEXT_WORDS, LARGE_TEXT),
    "bin": Kind("x.bin", (drawn,), [bytes(64), b"\0\0\0\0\0\0\xf0\x3f" * 9, bytes(800)]),
    **({"parquet": parquet()} if PARQUET else {}),
    "idx": Kind("x", (idx,), IMAGES, DATA_WORDS),
    "idx.gz": Kind("x.gz", (idx,), [*map(gzip.compress, IMAGES)], DATA_WORDS),
    "tar": Kind("x.tar.gz", (tar,), [TAR], DATA_WORDS, (), squeezed),
    "scores.csv": Kind(
        "s.csv",
        (read_scores,),
        [SCORES, b"\xef\xbb\xbfmember, score\r\n1, -2\r\n\r\n0, .5"],
        SCORE_WORDS,
    ),
    "scores.npz": Kind("s.npz", (read_scores,), SCORE_ARCHIVES, ZIP_WORDS),
    "score": Kind(
        "s.npz", (read_scores,), [saved(SCORE)], WORDS, (), beside("score", "member", MEMBER)
    ),
    "score of three": Kind(
        "s.npz", (read_scores,), [saved(SCORE[:3])], WORDS, HEADED,
        beside("score", "member", MEMBER[:3]),
    ),
    "member": Kind(
        "s.npz", (read_scores,), [saved(MEMBER)], WORDS, (), beside("member", "score", SCORE)
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    np.save(made / "other.npy", np.array([7.0, 7.0, 7.0]))
    return made


def reads(path, data, doors):
    """Which doors read a file with that content."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return [refuses_or_reads(lambda door=door: door(path), size=len(data)) for door in doors]


@pytest.mark.parametrize("name", KINDS)
def test_mutated_files(name, folder):
    kind = KINDS[name]
    begun = [*kind.valid, *(kind.bad if name == "parquet" else ())]

    def one(rng):
        data = kind.pack(made_up(rng, begun, kind.words))
        return any(reads(folder / kind.name, data, kind.doors))

    fuzz(one, seen=set())


# numpy of its own reading: written by Python 2
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("name", KINDS)
def test_valid_files_are_read(name, folder):
    kind = KINDS[name]
    for data in kind.valid:
        assert reads(folder / kind.name, kind.pack(data), kind.doors)[0]
        if name == "npy":
            expected = np.load(folder / "x.npy")
            for array in (npy(folder / "x.npy"), map_npy(folder / "x.npy")):
                np.testing.assert_array_equal(array, expected)
                assert array.shape == expected.shape
            assert npy(folder / "x.npy").dtype.isnative
            if expected.ndim:
                np.testing.assert_array_equal(
                    drawn(folder / "x.npy").reshape(expected.shape), expected
                )
        if data in (SCORES, *SCORE_ARCHIVES):
            score, member = read_scores(folder / kind.name)
            np.testing.assert_allclose(score, SCORE, rtol=1e-5)
            np.testing.assert_array_equal(member, MEMBER)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.bad])
def test_bad_files_are_refused_at_every_door(name, folder):
    kind = KINDS[name]
    for data in kind.bad:
        assert not any(reads(folder / kind.name, kind.pack(data), kind.doors)), data[:200]


def test_a_file_is_exactly_as_long_as_it_says(folder):
    for data in (ARRAYS[0][:-1], ARRAYS[0] + b"\0"):
        (folder / "l.npy").write_bytes(data)
        with pytest.raises(UsageError, match=r"query=.*has 48 bytes, and 4[79] are there"):
            npy(folder / "l.npy")


def test_pipes_and_folders_are_refused_at_once(folder):
    (folder / "d.npy").mkdir()
    os.mkfifo(folder / "p.npy")
    for name, door in itertools.product(("d.npy", "p.npy", "none.npy"), KINDS["npy"].doors):
        assert not refuses_or_reads(lambda n=name, d=door: d(folder / n), size=0)


# ---------------------------------------------------------------- archives


def refused(path, data, says):
    path.write_bytes(data)
    with pytest.raises(UsageError, match=says) as caught:
        FileTarget(str(path), seed="1")
    assert str(caught.value).isprintable()
    assert not refuses_or_reads(lambda: drawn(path), size=len(data))


def bomb(header, *names):
    """An archive with 64 MiB of zeros or more in each member, a thousandth of that long."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            with archive.open(f"{name}.npy", "w") as stream:
                stream.write(with_header(header))
                for _ in range(128 if "f8" in header else 64):
                    stream.write(bytes(1 << 20))
    return file.getvalue()


@pytest.mark.slow
def test_a_zip_bomb_unpacks_to_no_more_than_is_drawn(folder):
    path = folder / "mnist.npz"
    path.write_bytes(bomb(SHAPED % f"({1 << 24},)", "x_train"))
    size = path.stat().st_size
    assert refuses_or_reads(lambda: drawn(path, 1000), size=size)
    assert not refuses_or_reads(lambda: train(path), size=size)
    with (
        Archive(path) as archive,
        pytest.raises(ValueError, match="unpacks to 134,217,728 bytes, more than 1,000"),
    ):
        archive.read("x_train", most=1000)


@pytest.mark.slow
def test_a_bomb_of_scores(folder):
    path = folder / "bomb.npz"
    header = (SHAPED % f"({1 << 26},)").replace("<f8", "|b1")
    path.write_bytes(bomb(header, "score", "member"))
    assert not refuses_or_reads(lambda: read_scores(path), size=path.stat().st_size)
    with pytest.raises(UsageError, match=r"67,108,864 scores in \d+,\d+ bytes, at most 1,\d+,\d+"):
        read_scores(path)


@pytest.mark.slow
def test_files_that_unpack_to_much_are_refused(folder):
    much = bytes(128 << 20)
    pax = tarfile.TarInfo("x")  # an extended header of that size, which tarfile reads whole
    pax.type, pax.size = tarfile.XHDTYPE, len(much)
    for name, data, door in (
        ("much.gz", idx_file(128, 1 << 20) + much, idx),
        ("much.tar.gz", tarred(("other", much)), tar),
        ("pax.tar.gz", pax.tobuf() + much, tar),
    ):
        assert reads(folder / name, squeezed(data), [door]) == [False]
        with pytest.raises(UsageError, match="unpacks to more than"):
            door(folder / name)


@pytest.mark.slow
def test_what_an_archive_may_not_be(folder):
    path, (array, *_) = folder / "x.npz", ARRAYS
    twice = zipped(("a.npy", array), ("b.npy", array)).replace(b"b.npy", b"a.npy")
    refused(path, twice, "two members have one name")
    loud = zipped(("a\x1b[2J.npy", array), ("b\r\u202e.npy", array))
    refused(path, loud, r"arrays=a.\[2J, b")
    long = zipped(("x" * 60_000 + ".npy", array), ("y.npy", array))
    refused(path, long, "arrays=x{39}…, y, wanted one")
    many = zipped(*((f"{i}.npy", b"") for i in range(30_000)))
    refused(path, many, "directory has more than 1,048,576 bytes")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refused(path, zipped(("a.npy", array), compression=method), r"compression 1[24], wanted 0")
    locked = bytearray(zipped(("a.npy", array)))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag that says: encrypted
        locked[locked.index(mark) + at] |= 1
    refused(path, bytes(locked), "password")
    refused(path, zipped(("a.npy", array[:-8])), "has 48 bytes, and 40 are there")
    lying = bytearray(zipped(("a.npy", array)))
    struct.pack_into("<I", lying, lying.index(b"PK\1\2") + 24, 1 << 31)
    refused(path, bytes(lying), "cannot unpack to 2,147,483,648")


def test_damage_is_found_by_the_checksum(folder):
    data = bytearray(packed(PIXELS, save=np.savez))
    data[data.index(PIXELS["x_train"].tobytes()[:64])] ^= 1
    (folder / "mnist.npz").write_bytes(data)
    with pytest.raises(UsageError, match="CRC"):
        train(folder / "mnist.npz")


# ---------------------------------------------------------------- scores


@pytest.mark.slow
def test_many_short_rows_take_little_memory(folder):
    text = b"score,member\n" + b"1,0\n" * 500_000
    assert all(reads(folder / "short.csv", text, [read_scores]))
    zeros = packed({"score": np.zeros(1 << 20), "member": np.zeros(1 << 20)})
    assert all(reads(folder / "zeros.npz", zeros, [read_scores]))


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
def test_refusals_of_scores_are_short_and_printable(text, says, folder):
    assert reads(folder / "r.csv", text, [read_scores]) == [False]
    with pytest.raises(UsageError, match=says) as caught:
        read_scores(folder / "r.csv")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1200
