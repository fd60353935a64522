"""Files of recorded noise, also of correlated noise that its public C makes independent."""

from __future__ import annotations

import os
import pickle
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from command_line import here as run

from dpaudit.errors import MissingExtraError, SamplerOutputError, UsageError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.identity import identify

ROWS = np.arange(12.0).reshape(6, 2)


def opened(name, **options):
    return open_sampler(f"file:{name}", seed="1", **options)


def refuses(name, match, kind=UsageError):
    with pytest.raises(kind, match=match):
        opened(name)


def breaks(name, n, d, match, kind=SamplerOutputError):
    with opened(name).open(timeout=60) as sampler, pytest.raises(kind, match=match):
        sampler.ask(Request(n, d), timeout=1)


def test_the_caller_may_write_into_what_was_drawn(here):
    np.save("x.npy", ROWS)
    with opened("x.npy").open(timeout=60) as sampler:
        sampler.ask(Request(6, 2), timeout=1).values[:] = -1
    np.testing.assert_array_equal(np.load("x.npy"), ROWS)


@pytest.mark.parametrize("kind", [np.int32, np.float32, ">f8", np.uint8])
def test_number_types_are_converted(kind, here):
    np.save("x.npy", np.asfortranarray(ROWS).astype(kind))
    with opened("x.npy").open(timeout=60) as sampler:
        values = sampler.ask(Request(6, 2), timeout=1).values
    assert values.dtype == np.float64
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, ROWS)


def write_npy(rows):
    np.save("x.npy", rows)
    return "x.npy", {}


def write_csv(rows):
    np.savetxt("x.csv", rows, delimiter=",")
    return "x.csv", {}


def write_npz(rows):
    np.savez("x.npz", noise=rows)
    return "x.npz", {}


def write_packed(rows):
    np.savez_compressed("x.npz", samples=rows, other=np.array(["a"]))
    return "x.npz", {}


def write_parquet(rows, name="x.parquet", **options):
    pa = pytest.importorskip("pyarrow")
    rows = rows[:, None] if rows.ndim == 1 else rows
    table = pa.table({f"c{i}": column for i, column in enumerate(rows.T)})
    pytest.importorskip("pyarrow.parquet").write_table(table, name, **options)
    return name, {}


def write_f64(rows):
    rows.astype("<f8").tofile("x.bin")
    return "x.bin", {}


def write_f32(rows):
    rows.astype("<f4").tofile("x.bin")
    return "x.bin", {"dtype": "f32"}


WITH_COLUMNS = [write_npy, write_npz, write_packed, write_csv, write_parquet]


@pytest.mark.parametrize("write", [*WITH_COLUMNS, write_f64, write_f32])
def test_rows_come_in_order_and_once_and_again_when_opened_again(write, here):
    rows = np.random.default_rng(1).standard_normal((1000, 3)).astype(np.float32)
    if write not in WITH_COLUMNS:  # one number a row
        rows = rows[:, :1]
    path, options = write(rows)
    dim, sampler = rows.shape[1], opened(path, **options)
    for _ in range(2):
        with sampler.open(timeout=60):
            assert (sampler.facts.dim, sampler.facts.available) == (dim, 1000)
            assert sampler.name == f"file:{path}"
            with pytest.raises(UsageError, match=rf"d={dim + 1}: .* ask for d={dim}"):
                sampler.ask(Request(1, dim + 1), timeout=1)
            got = [sampler.ask(Request(n, dim), timeout=1).values for n in (1, 300, 2)]
            with pytest.raises(SamplerOutputError, match="697 of its 1000 rows left, wanted n=698"):
                sampler.ask(Request(698, dim), timeout=1)
            got.append(sampler.ask(Request(697, dim), timeout=1).values)
            assert all(block.flags.c_contiguous and block.dtype == np.float64 for block in got)
            np.testing.assert_array_equal(np.concatenate(got), rows)
    path, options = write(np.arange(5.0))
    with opened(path, **options).open(timeout=60) as sampler:
        np.testing.assert_array_equal(
            sampler.ask(Request(5, 1), timeout=1).values, np.arange(5.0)[:, None]
        )


@pytest.mark.parametrize(("line", "says"), [("x,1", "'x'"), ("1", "columns"), ("1,2,3", "columns")])
def test_a_csv_that_goes_wrong_late_says_after_which_row(line, says, here):
    (here / "x.csv").write_text("1,2\n" * 1000 + line + "\n")
    with opened("x.csv").open(timeout=60) as sampler:
        sampler.ask(Request(900, 2), timeout=1)
        with pytest.raises(SamplerOutputError, match=f"from row 900 on .*{says}"):
            sampler.ask(Request(101, 2), timeout=1)


@pytest.mark.parametrize(
    "header", ["x,y", '"x","y"', "# seen\n\nx, y # two", "\ufeff# noise\n\n  \r\n"]
)
def test_a_csv_may_have_one_header(header, here):
    (here / "x.csv").write_text(f"{header}\n1,2\n\n3,4 # why\n# end\n5,6")
    with opened("x.csv").open(timeout=60) as sampler:
        assert (sampler.facts.available, sampler.facts.dim) == (3, 2)
        np.testing.assert_array_equal(
            sampler.ask(Request(2, 2), timeout=1).values, [[1, 2], [3, 4]]
        )
        np.testing.assert_array_equal(sampler.ask(Request(1, 2), timeout=1).values, [[5, 6]])


def test_a_header_far_down_is_an_error_with_its_line(here):
    (here / "x.csv").write_text("x,y\n" + "1,2\n" * 1000 + "x,y\n" + "1,2\n" * 10)
    with (
        opened("x.csv").open(timeout=60) as sampler,
        pytest.raises(SamplerOutputError, match=r"line 1002: .*'x'"),
    ):
        sampler.ask(Request(1005, 2), timeout=1)


@pytest.mark.parametrize("write", [write_packed, write_csv, write_parquet])
def test_memory_does_not_grow_with_the_file(write, here):
    peaks = []
    for rows in (10_000, 40_000):
        path, _ = write(np.random.default_rng(1).standard_normal((rows, 4)))
        # what Arrow allocates on its own is not in here: see the row groups below
        tracemalloc.start()
        try:
            with opened(path).open(timeout=60) as sampler:
                for _ in range(rows // 2_500):
                    sampler.ask(Request(2_500, 4), timeout=5)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 40_000 * 4 * 8


@pytest.mark.slow
def test_one_great_row_group_is_not_read_whole(here):
    pa = pytest.importorskip("pyarrow")
    rows = 1_000_000
    numbers = np.random.default_rng(1).standard_normal((rows, 4))
    write_parquet(numbers, row_group_size=rows, use_dictionary=False)
    before, most = pa.total_allocated_bytes(), 0
    with opened("x.parquet").open(timeout=60) as sampler:
        for _ in range(10):
            sampler.ask(Request(rows // 10, 4), timeout=5)
            most = max(most, pa.total_allocated_bytes() - before)
    assert most < rows * 4 * 8 / 4


def test_a_broken_parquet_file(here):
    pytest.importorskip("pyarrow")
    rows = np.random.default_rng(1).standard_normal((2000, 2))
    write_parquet(rows, use_dictionary=False, compression="none", use_byte_stream_split=False)
    whole = (here / "x.parquet").read_bytes()
    (here / "x.parquet").write_bytes(whole[:4] + bytes(200) + whole[204:])
    breaks("x.parquet", 2000, 2, "cannot be read from row 0 on")


def test_parquet_without_pyarrow_says_what_to_install(here, monkeypatch):
    (here / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    match = r"x.parquet: needs pyarrow.*pip install 'dpaudit\[parquet\]'"
    refuses("x.parquet", match, kind=MissingExtraError)


def test_an_archive_that_breaks_off(here):
    fields = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9,), }"
    header = b"\x93NUMPY\x01\x00v\x00" + fields.ljust(117) + b"\n"
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("samples.npy", header + bytes(8 * 5))
    refuses("x.npz", r"shape=\(9,\) of float64 has 72 bytes, and 40 are there")
    write_packed(np.random.default_rng(1).standard_normal(5000))
    whole = (here / "x.npz").read_bytes()
    (here / "x.npz").write_bytes(whole[:2000] + bytes(2000) + whole[4000:])
    breaks("x.npz", 5000, 1, "cannot be read from row 0")


def test_a_big_npy_is_mapped_not_loaded(here):
    # a sparse terabyte
    np.lib.format.open_memmap("x.npy", mode="w+", dtype=np.float64, shape=(1 << 36, 2)).flush()
    with opened("x.npy").open(timeout=60) as sampler:
        assert sampler.facts.available == 1 << 36
        assert sampler.ask(Request(10, 2), timeout=1).values.shape == (10, 2)


@pytest.mark.parametrize("write", [write_npz, write_csv, write_f64])
def test_values_that_are_not_finite(write, here):
    path, _ = write(np.array([0.0, 1.0, np.nan, np.inf]))
    breaks(path, 4, 1, r"2 of 4 .* \[2, 0\]=nan")


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


def test_pickles_are_refused_and_never_opened(here):
    np.save("object.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez("object.npz", np.array([Trap()], dtype=object))
    (here / "bare.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("object.npy", "object.npz", "bare.npy"):
        refuses(name, f"file={name}")
    assert not (here / "sprung").exists()
    with open("bare.npy", "rb") as file:
        pickle.load(file)
    assert (here / "sprung").exists()  # the trap was armed


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("no.npy", None, "no such file"),
        ("x.txt", b"1\n", "ends in .npy, .npz, .csv, .parquet or .bin"),
        ("x.npy", b"", "cannot be read as .npy"),
        ("x.csv", b"x,2\n1,2\n", r"cannot be read as \.csv \(line 1: .*'x' to float64\)"),
        ("x.csv", b"# of noise\n\n1,2\nx,y\n", r"\(line 4: .*'x'"),
        ("x.csv", b"x,y\nalso,words\n1,2\n", r"\(line 2: .*'also'"),
        ("x.csv", b"x,y\n", "not empty"),
        ("x.csv", b"1,2\n3\n", r"\(line 2: .*from 2 to 1"),
        ("x.csv", b"1,\xff\n", "cannot be read as .csv"),
        ("x.csv", b"", "not empty"),
        ("x.csv", b"1" * (1 << 20), "a line is longer"),
        ("x.npz", b"PK\x03\x04", "cannot be read as .npz"),
        ("x.parquet", b"PAR1", "cannot be read as .parquet"),
        ("x.bin", b"1234567", "7 bytes"),
    ],
)
def test_files_that_cannot_be_used(name, content, match, here):
    if content is not None:
        (here / name).write_bytes(content)
    refuses(name, f"file={name}: .*{match}")


# ---------------------------------------------------------------- correlated noise

STRATEGY = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]])


def whitened(target="N.npy;C.npy"):
    return open_sampler(f"whitened:{target}", seed="1")


def recorded(runs=2, dim=5, dtype=np.float64):
    z = np.random.default_rng(1).standard_normal((runs, 3, dim))
    noise = np.concatenate([np.linalg.solve(STRATEGY, one) for one in z]).astype(dtype)
    np.save("N.npy", noise)
    np.save("C.npy", STRATEGY)
    return z


@pytest.mark.parametrize(("dtype", "away"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_each_coordinate_is_a_row_of_its_steps(dtype, away, here):
    z = recorded(dtype=dtype)
    target = whitened()
    with target.open(timeout=60) as sampler:
        assert (sampler.facts.dim, sampler.facts.available) == (3, 10)
        got = np.concatenate([sampler.ask(Request(n, 3), timeout=1).values for n in (1, 6, 3)])
        with pytest.raises(SamplerOutputError, match="0 coordinates left, wanted n=1"):
            sampler.ask(Request(1, 3), timeout=1)
    np.testing.assert_allclose(got, z.transpose(0, 2, 1).reshape(10, 3), atol=away)
    with target.open(timeout=60) as again:
        np.testing.assert_array_equal(again.ask(Request(10, 3), timeout=1).values, got)


def test_a_repeated_run_repeats_and_last_digits_are_moved(here):
    recorded(runs=1, dim=50, dtype=np.float32)
    noise = np.load("N.npy")
    np.save("N.npy", np.concatenate([noise, noise]))
    target = whitened()
    with target.open(timeout=60) as sampler:
        got = sampler.ask(Request(100, 3), timeout=1).values
    np.testing.assert_array_equal(got[:50], got[50:])
    exact = (STRATEGY @ noise.astype(np.float64)).T
    assert (got[:50] != exact).all()
    assert np.abs(got[:50] - exact).max() < 2.0**-22


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("N.npy", "needs two files"),
        ("N.npy;D.npy", "no such file"),
        ("N.npy;N.npy", "wanted a square C"),
        ("N.npy;zero.npy", "C has no inverse"),
        ("odd.npy;C.npy", "5 rows are not a multiple of the 3 steps"),
    ],
)
def test_what_does_not_fit_is_refused(target, match, here):
    recorded()
    np.save("zero.npy", np.zeros((3, 3)))
    np.save("odd.npy", np.zeros((5, 2)))
    with pytest.raises(UsageError, match=match):
        whitened(target)


def test_another_length_of_a_row_is_refused(here):
    recorded()
    with whitened().open(timeout=1) as sampler, pytest.raises(UsageError, match="has 3 steps"):
        sampler.ask(Request(1, 5), timeout=1)


def test_both_files_are_named_with_their_hashes(here):
    recorded()
    found = identify("whitened:N.npy;C.npy").files
    assert [file.name.rpartition("/")[2] for file in found] == ["N.npy", "C.npy"]


@pytest.mark.slow
def test_the_command_finds_a_wrong_c_and_passes_the_right_one(here):
    recorded(dim=4000, runs=1)
    np.save("wrong.npy", np.eye(3))
    common = ("--claim", "gaussian:sigma=1", "--seed", "1", "--tests", "covariance,moments")
    assert run("audit", "whitened:N.npy;C.npy", *common).returncode == 0
    assert run("audit", "whitened:N.npy;wrong.npy", *common).returncode == 1
