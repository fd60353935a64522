"""The fused CUDA kernel on the CPU, in Triton's interpreter.

The interpreter must be chosen before triton is first imported, so this file runs itself in a
process of its own and reads the arrays back. ``tests/gpu/test_pancake_cuda.py`` compares a real
GPU's numbers with the same ones.
"""

import importlib.util
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import torch

from dpaudit.errors import MissingExtraError
from dpaudit.noise import pancake_cuda
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.noise.pancake_cuda import condition_
from dpaudit.numeric import BLOCK
from dpaudit.randomness import KeyedStream

SEED = (123 << 54) + 7
SIGMA = 2.0
LOWS = [0, BLOCK, 2 * BLOCK]
EDGES = np.array(
    [0, 1, 5, 2**23, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 2**28, 2**32 - 2, 2**32 - 1], np.uint32
)


def source(dim=2 * BLOCK + 1001):
    return Pancake(key=PancakeKey.new(dim=dim, beta=1e-3, secret=bytes(range(32))), sigma=SIGMA)


def shares_of(big, n=3):
    return big.shares(n, stream=KeyedStream.from_seed("triton"))


def draws(device):
    """What the tests look at, by name; on a GPU, what the interpreter is compared with."""
    big, small, middle, device = source(), source(50), source(512), torch.device(device)
    shares, few = shares_of(big), shares_of(small)

    def fused(of, start, stop, given, seed=SEED, **options):
        options = {"seed": seed, "device": device, **options}
        return pancake_cuda.fused(of, start, stop, given, **options).cpu().numpy()

    return {
        "raw": fused(big, 0, big.dim, shares, correct=False),
        "out": fused(big, 0, big.dim, shares),
        "again": fused(big, 0, big.dim, shares),
        "one": fused(big, 0, big.dim, shares[:1]),
        "other": fused(big, 0, big.dim, shares[:1], seed=SEED + 1),
        "shard": fused(big, BLOCK, big.dim, shares[:, 1:]),
        "little_raw": fused(small, 0, 50, few, seed=5, correct=False),
        "little": fused(small, 0, 50, few, seed=5),
        "many_raw": fused(middle, 0, 512, shares_of(middle, 300), correct=False),
        "many": fused(middle, 0, 512, shares_of(middle, 300)),
    }


if __name__ == "__main__":
    import triton
    import triton.language as tl

    _pair = pancake_cuda._pair

    @triton.jit
    def probe(x, y, first, second, N: tl.constexpr):
        i = tl.arange(0, N)
        a, b = _pair(tl.load(x + i).to(tl.uint32), tl.load(y + i).to(tl.uint32), 1.0, False)
        tl.store(first + i, a)
        tl.store(second + i, b)

    edges = np.resize(np.repeat(EDGES, len(EDGES)), 128), np.resize(EDGES, 128)
    x, y = (torch.from_numpy(e.astype(np.int64)) for e in edges)
    first, second = torch.empty(128), torch.empty(128)
    probe[(1,)](x, y, first, second, N=128)
    made = {"x": edges[0], "y": edges[1], "first": first.numpy(), "second": second.numpy()}
    np.savez(sys.argv[1], **draws("cpu"), **made)
    sys.exit()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: CUDA builds of torch bring it")
    path = tmp_path_factory.mktemp("triton") / "drawn.npz"
    interpreted = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, __file__, str(path)], check=True, env=interpreted)
    with np.load(path) as file:
        return dict(file)


def philox(seed, c0, c1, c2, c3):
    """Salmon et al. 2011 written out with Python's whole numbers: the slow oracle."""
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def normals(x, y):
    """Box-Muller in float64 on the kernel's arcs: upright for bit 30, mirrored for bit 31."""
    radius = (
        math.sqrt(-2 * math.log((x + 0.5) * 2**-32))
        if x < 2**31
        else math.sqrt(-2 * math.log1p(-(2**32 - x - 0.5) * 2**-32))
    )
    low = y & 0x3FFFFFFF
    angle = (4 * (low - (1 << 30) * (low >> 29)) + 2) * math.pi / 2**33
    c, s = radius * math.cos(angle), radius * math.sin(angle)
    c = -c if y >> 31 else c
    return (s, c) if y >> 30 & 1 else (c, s)


def test_the_oracle_knows_the_published_answers():
    """Random123's known answers for philox4x32-10."""
    assert philox(0, 0, 0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = 0xFFFFFFFF
    known = (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox((ones << 32) + ones, *[ones] * 4) == known


@pytest.mark.parametrize(
    ("row", "place"), [(0, 0), (1, 4), (2, BLOCK), (0, 3 * BLOCK // 2), (2, 2 * BLOCK + 1000 - 4)]
)
def test_numbers_are_those_of_their_counter(drawn, row, place):
    x0, y0, x1, y1 = philox(SEED, place % BLOCK // 4, place // BLOCK, row, 0)
    expected = SIGMA * np.array([*normals(x0, y0), *normals(x1, y1)])
    here, other = (drawn["raw"][i, place : place + 4] for i in (row, row - 1))
    np.testing.assert_allclose(here, expected, rtol=0, atol=2e-6)
    assert not np.allclose(other, expected, rtol=0, atol=2e-6)


def test_extreme_bits_give_finite_normals_other_than_zero(drawn):
    expected = np.array(
        [normals(int(x), int(y)) for x, y in zip(drawn["x"], drawn["y"], strict=True)]
    )
    got = np.stack([drawn["first"], drawn["second"]], 1)
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=0)
    assert np.all(got != 0)
    assert np.hypot(*got.T).max() == pytest.approx(math.sqrt(66 * math.log(2)), rel=1e-6)


def misses(x, shares, of):
    """``w @ block − share`` per block, in standard deviations of rounding to float32."""
    w = of.key.vectors[0].astype(np.float64)
    lows = list(range(0, of.dim, BLOCK))
    gap = np.add.reduceat(x.astype(np.float64) * w, lows, axis=1) - shares[:, :, 0]
    rounding = np.add.reduceat(
        (np.spacing(np.abs(x)).astype(np.float64) * w) ** 2 / 12, lows, axis=1
    )
    return gap / np.sqrt(rounding)


def test_every_block_has_its_share(drawn):
    assert np.abs(misses(drawn["out"], shares_of(source()), source())).max() < 5
    assert np.abs(misses(drawn["little"], shares_of(source(50)), source(50))).max() < 5
    assert np.abs(misses(drawn["raw"], shares_of(source()), source())).min() > 50


def test_the_phase_is_blurred_by_the_releases_own_rounding_only(drawn):
    """Power: the correction's factor as one float32 blurs it by half as much again."""
    of = source(512)
    shares, w = shares_of(of, 300), of.key.vectors[0].astype(np.float64)

    def blur(x):
        return math.sqrt(np.mean(misses(x, shares, of) ** 2))

    assert 0.85 < blur(drawn["many"]) < 1.15
    factor = (shares[:, 0] - (drawn["many_raw"] @ w)[:, None]) * of.block_inverse(0, 512)[0]
    assert blur(drawn["many_raw"] + (factor * w).astype(np.float32)) < 1.15
    assert blur(drawn["many_raw"] + factor.astype(np.float32) * w.astype(np.float32)) > 1.3


@pytest.mark.parametrize(
    ("raw", "out", "dim"), [("raw", "out", 2 * BLOCK + 1001), ("little_raw", "little", 50)]
)
def test_equals_the_torch_oracle_on_the_same_noise(drawn, raw, out, dim):
    of = source(dim)
    shares, inverse = shares_of(of), of.block_inverse(0, dim)
    given = torch.from_numpy(drawn[raw].copy())
    expected = condition_(given, of.key.vectors, shares=shares, inverse=inverse).numpy()
    np.testing.assert_allclose(drawn[out], expected, rtol=2e-6, atol=2e-7)
    wrong = condition_(given, of.key.vectors, shares=shares[::-1].copy(), inverse=inverse).numpy()
    assert np.abs(drawn[out] - wrong).max() > 1e-3


def test_without_the_correction_it_is_gaussian(drawn):
    x = drawn["raw"].ravel().astype(np.float64) / SIGMA
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(x * 1.05, "norm").pvalue < 1e-3
    assert abs(x.mean()) < 4 / math.sqrt(x.size)
    assert abs((x**2).mean() - 1) < 4 * math.sqrt(2 / x.size)
    assert abs((x**4).mean() - 3) < 4 * math.sqrt(96 / x.size)
    for lag in range(1, 9):
        assert abs((x[lag:] * x[:-lag]).mean()) < 4 / math.sqrt(x.size)
        assert abs((x[lag:] ** 2 * x[:-lag] ** 2).mean() - 1) < 4 * math.sqrt(8 / x.size)


def test_rows_and_blocks_differ(drawn):
    parts = [drawn["raw"][row, low : low + 1001] for row in range(3) for low in LOWS]
    correlation = np.corrcoef(parts) - np.eye(9)
    assert np.abs(correlation).max() < 5 / math.sqrt(1001)
    assert len(np.unique(drawn["raw"])) > 0.99 * drawn["raw"].size


def test_the_seed_decides_and_shards_are_parts_of_the_whole(drawn):
    np.testing.assert_array_equal(drawn["out"], drawn["again"])
    np.testing.assert_array_equal(drawn["out"][:1], drawn["one"])
    np.testing.assert_array_equal(drawn["out"][:, BLOCK:], drawn["shard"])
    assert np.mean(drawn["one"] == drawn["other"]) < 1e-3


def test_without_triton_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(pancake_cuda, "triton", None)
    of = source(50)
    with pytest.raises(MissingExtraError, match="pip install triton"):
        pancake_cuda.fused(of, 0, 50, shares_of(of), seed=1, device=torch.device("cpu"))


def test_the_key_goes_to_the_device_once_and_leaves_with_its_owner():
    key = source(50).key
    first = pancake_cuda._on_device(key, torch.device("cpu"), 128)
    assert pancake_cuda._on_device(key, torch.device("cpu"), 128) is first
    assert first.view(torch.int16)[:50].tolist() == key.vectors[0].tolist()
    assert not first.view(torch.int16)[50:].any()
    before = len(pancake_cuda._keys)
    del key
    assert len(pancake_cuda._keys) == before - 1
