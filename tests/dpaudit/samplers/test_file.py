from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.samplers import open_sampler

ROWS = np.arange(12.0).reshape(6, 2)


def test_npy_hands_out_successive_rows(here):
    np.save("x.npy", ROWS)
    with open_sampler("file:x.npy", seed="1") as sampler:
        assert (sampler.dim, sampler.available, sampler.name) == (2, 6, "file:x.npy")
        np.testing.assert_array_equal(sampler.draw(2, 2, timeout=1), ROWS[:2])
        np.testing.assert_array_equal(sampler.draw(3, 2, timeout=1), ROWS[2:5])
        with pytest.raises(SamplerOutputError, match="1 of its 6 rows left, wanted n=2"):
            sampler.draw(2, 2, timeout=1)
        np.testing.assert_array_equal(sampler.draw(1, 2, timeout=1), ROWS[5:])


def test_the_caller_may_write_into_what_was_drawn(here):
    np.save("x.npy", ROWS)
    with open_sampler("file:x.npy", seed="1") as sampler:
        sampler.draw(6, 2, timeout=1)[:] = -1
    np.testing.assert_array_equal(np.load("x.npy"), ROWS)


@pytest.mark.parametrize("kind", [np.int32, np.float32, ">f8", np.uint8])
def test_number_types_are_converted(kind, here):
    np.save("x.npy", np.asfortranarray(ROWS).astype(kind))
    with open_sampler("file:x.npy", seed="1") as sampler:
        values = sampler.draw(6, 2, timeout=1)
    assert values.dtype == np.float64
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, ROWS)


def write_npy(rows):
    np.save("x.npy", rows)
    return "x.npy", {}


def write_csv(rows):
    np.savetxt("x.csv", rows, delimiter=",")
    return "x.csv", {}


def write_f64(rows):
    rows.astype("<f8").tofile("x.bin")
    return "x.bin", {}


def write_f32(rows):
    rows.astype("<f4").tofile("x.bin")
    return "x.bin", {"dtype": "f32"}


@pytest.mark.parametrize("write", [write_npy, write_csv, write_f64, write_f32])
def test_one_number_a_row(write, here):
    path, options = write(np.arange(5.0))
    with open_sampler(f"file:{path}", seed="1", **options) as sampler:
        assert (sampler.dim, sampler.available) == (1, 5)
        np.testing.assert_array_equal(sampler.draw(5, 1, timeout=1), np.arange(5.0)[:, None])


def test_csv_with_columns(here):
    path, _ = write_csv(ROWS)
    with open_sampler(f"file:{path}", seed="1") as sampler:
        assert (sampler.dim, sampler.available) == (2, 6)
        np.testing.assert_array_equal(sampler.draw(6, 2, timeout=1), ROWS)


def test_a_big_npy_is_mapped_not_loaded(here):
    np.lib.format.open_memmap("x.npy", mode="w+", dtype=np.float64, shape=(1 << 36, 2)).flush()  # a sparse terabyte
    with open_sampler("file:x.npy", seed="1") as sampler:
        assert sampler.available == 1 << 36
        assert sampler.draw(10, 2, timeout=1).shape == (10, 2)


def test_another_dimension_is_refused(here):
    np.save("x.npy", ROWS)
    with open_sampler("file:x.npy", seed="1") as sampler, pytest.raises(UsageError, match=r"d=3: .* ask for d=2"):
        sampler.draw(1, 3, timeout=1)


@pytest.mark.parametrize("write", [write_npy, write_csv, write_f64])
def test_values_that_are_not_finite(write, here):
    path, _ = write(np.array([0.0, 1.0, np.nan, np.inf]))
    match = r"2 of 4 .* \[2, 0\]=nan"
    with open_sampler(f"file:{path}", seed="1") as sampler, pytest.raises(SamplerOutputError, match=match):
        sampler.draw(4, 1, timeout=1)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


def test_pickles_are_refused_and_never_opened(here):
    np.save("object.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    (here / "bare.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("object.npy", "bare.npy"):
        with pytest.raises(UsageError, match=f"file={name}"):
            open_sampler(f"file:{name}", seed="1")
    assert not (here / "sprung").exists()
    with open("bare.npy", "rb") as file:
        pickle.load(file)
    assert (here / "sprung").exists()  # the trap was armed


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("no.npy", None, "no such file"),
        ("x.txt", b"1\n", "ends in .npy, .csv or .bin"),
        ("x", b"1\n", "ends in"),
        ("x.parquet", b"PAR1", "parquet is not read yet; convert it"),
        ("x.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9,)}", "cannot be read"),
        ("x.npy", b"", "cannot be read as .npy"),
        ("x.npy", b"hello", "cannot be read as .npy"),
        ("x.csv", b"x,y\n1,2\n", "cannot be read as .csv .*'x'"),
        ("x.csv", b"1,2\n3\n", "cannot be read as .csv"),
        ("x.csv", b"1,\xff\n", "cannot be read as .csv"),
        ("x.csv", b"", "not empty"),
        ("x.bin", b"1234567", "7 bytes"),
        ("x.bin", b"", "0 bytes"),
    ],
)
def test_files_that_cannot_be_used(name, content, match, here):
    if content is not None:
        (here / name).write_bytes(content)
    with pytest.raises(UsageError, match=f"file={name}: .*{match}"):
        open_sampler(f"file:{name}", seed="1")


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 2, 2)), np.zeros((0, 2)), np.float64(1), np.array(["a"]), np.ones(2) * 1j]
)
def test_arrays_that_are_not_rows_of_numbers(rows, here):
    np.save("x.npy", rows)
    with pytest.raises(UsageError, match=r"file=x.npy"):
        open_sampler("file:x.npy", seed="1")


def test_archives_folders_and_pipes_are_refused(here):
    np.savez("x.npz", ROWS)
    os.rename("x.npz", "x.npy")
    os.mkdir("y.npy")
    os.mkfifo("z.npy")
    for name in "xyz":
        with pytest.raises(UsageError, match=f"file={name}.npy"):
            open_sampler(f"file:{name}.npy", seed="1")
