"""Numbers by position, and noise added in place: every split gives what the whole has there.

That the law is exact is tested in ``tests/dpaudit/noise/test_secure_gaussian.py``.
"""

import os
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dpaudit.errors import MissingExtraError, UsageError
from dpaudit.numeric import lattice_triton
from dpaudit.numeric.chacha import BulkWords, block, key_words
from dpaudit.numeric.exact_integers import IntegerLaw, integers_at, settled, table_of
from dpaudit.numeric.lattice import add_lattice_noise, lattice_step

KEY = bytes(range(32))
FINE = IntegerLaw.gaussian(2.0**24 * 1.3)
LAWS = {
    "fine": FINE,
    "tiny": IntegerLaw.gaussian(0.4),
    "one place": IntegerLaw.gaussian(100.5),
    "blocks": IntegerLaw.laplace(300.0),
    "widest": IntegerLaw.gaussian(2.0**32),
    "beyond the table": IntegerLaw.laplace(2.0**32),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


# the key stream


def test_rfc_8439_section_2_3_2():
    out = np.empty(8, np.uint64)
    counter = 1 | int.from_bytes(bytes.fromhex("00000009"), "little") << 32
    second = int.from_bytes(bytes(4), "little")
    block(out, key_words(KEY), counter, int.from_bytes(bytes.fromhex("0000004a"), "little"), second)
    assert out.tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


@pytest.mark.parametrize("counter", [0, 77, 2**32 - 1, 2**32, 2**53 + 1, 2**57 - 1])
def test_blocks_are_those_of_the_library(counter):
    out = np.empty(8, np.uint64)
    for first, second in ((0, 0), (1, 2), (2**32 - 1, 2**31)):
        nonce = struct.pack("<QII", counter, first, second)
        cipher = Cipher(algorithms.ChaCha20(KEY, nonce), mode=None).encryptor()
        block(out, key_words(KEY), counter, first, second)
        assert out.tobytes() == cipher.update(bytes(64))


def test_the_bulk_is_one_stream_across_calls_and_the_counters_32_bits():
    words, out = np.empty(8 * 6, np.uint64), np.empty(8, np.uint64)
    at, bulk = 2**32 - 3, BulkWords(KEY)
    bulk.fill(words[:16], counter=at)
    bulk.fill(words[16:], counter=at + 2)
    for i in range(6):
        block(out, key_words(KEY), at + i, 0, 0)
        assert words[8 * i : 8 * i + 8].tolist() == out.tolist()


# positions


@pytest.mark.parametrize("name", LAWS)
def test_the_fast_loop_has_the_numbers_of_exact_arithmetic(name):
    law, start = LAWS[name], 8 * 2**32 - 250
    fast = integers_at(law, key=KEY, start=start, columns=500)[0].tolist()
    assert fast == [settled(law, key=KEY, position=start + i) for i in range(500)]
    assert len(set(fast)) > 1


def test_numbers_that_begin_as_a_border_of_blocks_take_more_bits():
    law, n = IntegerLaw.gaussian(2.0**32), 400_000
    bulk = np.empty(n, np.uint64)
    BulkWords(KEY).fill(bulk, counter=0)
    borders = {low >> 39 for low in law.blocks(64)[0]}
    on_border = [i for i, word in enumerate((bulk >> np.uint64(39)).tolist()) if word in borders]
    assert len(on_border) > 5
    fast = integers_at(law, key=KEY, start=0, columns=n)[0]
    assert [settled(law, key=KEY, position=i) for i in on_border] == fast[on_border].tolist()


def short_table(law, *bits):
    """A law's table as if it ended after fifty blocks: all beyond is open, and nothing quick."""
    full = table_of(law, *bits)
    return full._replace(
        guide=np.zeros_like(full.guide),
        hints=np.minimum(full.hints, 49),
        lows=full.lows[:50],
        highs=full.highs[:50],
    )


def test_what_the_compiled_loop_leaves_open_is_settled_in_exact_arithmetic(monkeypatch):
    whole = integers_at(FINE, key=KEY, start=3, columns=200)[0]
    assert (abs(whole) >= 50 * FINE.block).sum() > 50
    monkeypatch.setattr("dpaudit.numeric.exact_integers.table_of", short_table)
    assert np.array_equal(integers_at(FINE, key=KEY, start=3, columns=200)[0], whole)


def test_shards_rows_and_threads_have_the_numbers_of_the_whole(monkeypatch):
    n = (1 << 19) + 4321
    whole = integers_at(FINE, key=KEY, start=5, columns=n)[0]
    monkeypatch.setattr("dpaudit.numeric.kernels.number_of_threads", lambda: 3)
    assert np.array_equal(integers_at(FINE, key=KEY, start=5, columns=n)[0], whole)
    for low, high in ((0, 1), (7, 70_000), (32_763, 32_764), (n - 3, n)):
        part = integers_at(FINE, key=KEY, start=5 + low, columns=high - low)[0]
        assert np.array_equal(part, whole[low:high])
    matrix = whole[: 500 * 1001].reshape(500, 1001)
    columns = integers_at(FINE, key=KEY, start=5 + 17, rows=500, columns=33, stride=1001)
    assert np.array_equal(columns, matrix[:, 17:50])
    rows = integers_at(FINE, key=KEY, start=5 + 1001 * 20, rows=30, columns=1001)
    assert np.array_equal(rows, matrix[20:50])
    other = integers_at(FINE, key=bytes(32), start=5, columns=1000)[0]
    assert not (other == whole[:1000]).any()


def test_neighbouring_positions_and_keys_are_independent():
    n = 1 << 20
    z = integers_at(FINE, key=KEY, start=0, columns=n)[0] / (2.0**24 * 1.3)
    for lag in (1, 2, 8, 32768):
        assert abs((z[:-lag] * z[lag:]).mean()) < 5 / n**0.5
        assert abs((z[:-lag] ** 2 * z[lag:] ** 2).mean() - 1) < 25 / n**0.5
    repeated = np.concatenate([z[:8]] * (n // 8))  # a counter that stands still is seen
    assert abs((repeated[:-8] * repeated[8:]).mean()) > 0.1


@pytest.mark.parametrize(
    "wrong",
    [{"start": -1}, {"start": 2**60 - 3}, {"start": 0, "stride": 2**60, "rows": 2}, {"stride": -1}],
)
def test_positions_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="start="):
        integers_at(FINE, **{"key": KEY, "start": 0, "columns": 5, **wrong})
    with pytest.raises(UsageError, match="key of 31 bytes"):
        integers_at(FINE, key=KEY[1:], start=0, columns=5)


# noise in place


def query(dtype, n=5000):
    rng = np.random.default_rng(3)
    halves = rng.integers(-9, 9, n // 2) * lattice_step(1.5) / 2  # ties, and zeros of either sign
    return torch.from_numpy(np.concatenate([rng.standard_normal(n - n // 2) * 3, halves])).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_exact_and_rounded_once(dtype):
    values, g = query(dtype), lattice_step(1.5)
    law = IntegerLaw.gaussian(1.5 / g)
    noise = integers_at(law, key=KEY, start=9, columns=len(values))[0]
    wanted = (np.rint(values.double().numpy() / g) + noise) * g
    released = values.clone()
    add_lattice_noise(released, sigma=1.5, key=KEY, start=9)
    wide = torch.from_numpy(wanted)
    assert torch.equal(released, wide if dtype == torch.float64 else wide.float().to(dtype))
    assert not torch.signbit(released[released == 0]).any()
    if dtype != torch.bfloat16:
        array = values.numpy().copy()
        add_lattice_noise(array, sigma=1.5, key=KEY, start=9)
        assert np.array_equal(array, released.numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shards_of_a_matrix_are_parts_of_the_whole(dtype):
    whole = query(dtype, 6000).reshape(60, 100)
    left, below = whole[:, 30:71].contiguous(), whole[20:].clone()
    add_lattice_noise(whole, sigma=2.0, key=KEY, start=1000)
    add_lattice_noise(left, sigma=2.0, key=KEY, start=1030, stride=100)
    add_lattice_noise(below, sigma=2.0, key=KEY, start=3000)
    assert torch.equal(left, whole[:, 30:71])
    assert torch.equal(below, whole[20:])


def test_zero_has_no_sign_in_any_type():
    for dtype in DTYPES:
        values = torch.full((4000,), -1e-30, dtype=torch.float64).to(dtype)
        add_lattice_noise(values, sigma=1e-9, key=KEY, granularity=2.0**-30)
        assert (values == 0).any()
        assert not torch.signbit(values[values == 0]).any()


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ([0.0, float("nan")], "query value=nan"),
        ([float("-inf")], "query value=-inf"),
        ([1.0, 2.0**40], "query value=1099511627776.0"),
        (np.zeros(4, np.float16) + 65000, "dtype=float16"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.zeros((4, 4)).T[1:], "contiguous"),
        (np.zeros(4, np.int64), "dtype=int64"),
    ],
)
def test_a_refused_call_writes_nothing(values, rule):
    values = np.array(values) if isinstance(values, list) else values
    before = values.copy()
    with pytest.raises(UsageError, match=rule):
        add_lattice_noise(values, sigma=10.0, key=KEY)
    assert np.array_equal(values, before, equal_nan=True)
    for wrong in ({"key": KEY[1:]}, {"start": -1}, {"sigma": 0.0}, {"granularity": 0.3}):
        zeros = np.zeros(5)
        with pytest.raises(UsageError):
            add_lattice_noise(zeros, **{"sigma": 10.0, "key": KEY, **wrong})
        assert not zeros.any()


def test_nothing_to_do_is_no_error():
    add_lattice_noise(np.zeros((0, 3)), sigma=1.0, key=KEY)
    add_lattice_noise(torch.zeros(0), sigma=1.0, key=KEY)


# CUDA: the kernels in Triton's interpreter, which must be chosen before triton is imported

ROWS = [
    ("fine", 2.0**-24, {"start": 8 * 2**32 - 1003, "rows": 1, "columns": 2000, "stride": None}),
    ("one place", 0.5, {"start": 13, "rows": 7, "columns": 100, "stride": 1001}),
    ("blocks", 0.25, {"start": 0, "rows": 3, "columns": 9, "stride": 9}),
    ("widest", 2.0**-32, {"start": 3, "rows": 1, "columns": 1000, "stride": None}),
]


def released(dtype, add):
    """What ``add`` makes of queries of that type, one for each of ``ROWS``."""
    for name, g, positions in ROWS:
        values = query(dtype, positions["rows"] * positions["columns"])
        add(values, LAWS[name], g, key=KEY, **positions)
        yield values


if __name__ == "__main__":
    from dpaudit.numeric.lattice import _add_noise

    for dtype in DTYPES:
        pairs = zip(
            released(dtype, lattice_triton.add_noise), released(dtype, _add_noise), strict=True
        )
        print(dtype, [torch.equal(*pair) for pair in pairs])
    lattice_triton.table_of = short_table
    lattice_triton._table.cache_clear()
    values = torch.zeros(100), torch.zeros(100)
    for own, add in zip(values, (lattice_triton.add_noise, _add_noise), strict=True):
        add(own, FINE, 1.0, key=KEY, start=3, rows=1, columns=100, stride=None)
    print("open", torch.equal(*values))


@pytest.mark.slow
def test_the_cuda_kernels_have_the_bits_of_the_cpu():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    *usual, settled_here = done.stdout.splitlines()
    assert usual == [f"{dtype} [True, True, True, True]" for dtype in DTYPES]
    assert settled_here == "open True"


def test_without_triton_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(lattice_triton, "triton", None)
    with pytest.raises(MissingExtraError, match="triton"):
        lattice_triton.add_noise(
            torch.zeros(5), FINE, 1.0, key=KEY, start=0, rows=1, columns=5, stride=None
        )
