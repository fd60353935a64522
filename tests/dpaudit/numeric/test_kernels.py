"""The compiled normals: tables, law, independence, and the same numbers under every split."""

import math
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import torch

from dpaudit.errors import UsageError
from dpaudit.noise.gaussian import Gaussian
from dpaudit.numeric import BLOCK, kernels
from dpaudit.numeric.kernels import fill_normal
from dpaudit.numeric.random_words import seed_words
from dpaudit.randomness import KeyedStream
from dpaudit.testing import check_noise_source

LAYERS = 256
FINE, BAD = 1e-4, 1e-9  # p-values: ours above the first, planted mistakes below the second


def ziggurat(tail):
    """Edges x_1 < … < x_255 = tail and the layers' common area, from the outside in."""
    area = tail * math.exp(-tail * tail / 2) + math.sqrt(2 * math.pi) * scipy.special.ndtr(-tail)
    edges = [tail]
    while len(edges) < LAYERS - 1:
        height = math.exp(-(edges[-1] ** 2) / 2) + area / edges[-1]
        edges.append(math.sqrt(-2 * math.log(height)) if height < 1 else 0.0)
    return np.array(edges[::-1]), area


def top_gap(tail):
    """By how much the last layer overshoots the density's top: zero for the one right tail."""
    edges, area = ziggurat(tail)
    return math.exp(-(edges[0] ** 2) / 2) + area / max(edges[0], 1e-300) - 1 if edges[0] else 1.0


TAIL = scipy.optimize.brentq(top_gap, 3.6541, 3.66, xtol=1e-15)
EDGES, AREA = ziggurat(TAIL)
OUTER = np.concatenate([[AREA / math.exp(-TAIL * TAIL / 2)], EDGES])
INNER = np.concatenate([[TAIL, 0.0], EDGES[:-1]])
DENSITY = np.exp(-(np.concatenate([[0.0], EDGES]) ** 2) / 2)
CUTS = scipy.special.ndtr(np.concatenate([[0.0], EDGES]))  # 256 intervals of |x|, the tail last


def normals(n, d, *, dtype=np.float64, seed="kernels", **where):
    out = np.full((n, d), np.nan, dtype)
    fill_normal(out, sigma=1.0, stream=KeyedStream.from_seed(seed), **where)
    return out


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("bits", "width", "limit", "tolerance"),
    [(52, kernels._W64, kernels._K64, 1e-10), (23, kernels._W32, kernels._K32, 2.0**-23)],
)
def test_tables_are_those_of_an_independent_computation(bits, width, limit, tolerance):
    assert pytest.approx(TAIL, abs=1e-12) == kernels._TAIL
    outer = np.asarray(width, np.float64) * 2.0**bits
    assert outer == pytest.approx(OUTER, rel=tolerance)
    inner = 2.0**-bits + (1e-10 if bits == 52 else 1e-7)
    assert limit * 2.0**-bits == pytest.approx(INNER / outer, abs=inner)


def by_hand(words, n, bits):
    """Doornik's ziggurat from 64-bit words, one value at a time, with this file's own tables."""
    out, left = [], []
    while len(out) < n:
        if bits == 52:
            word = next(words)
            layer, negative, place = word & 255, word >> 8 & 1, (word >> 9) % 2**52
        else:
            if not left:
                word = next(words)
                left = [word & 0xFFFFFFFF, word >> 32]
            half = left.pop(0)
            layer, negative, place = half & 255, half >> 8 & 1, half >> 9
        x = place * 2.0**-bits * OUTER[layer]
        if x >= INNER[layer]:
            if layer == 0:
                while True:
                    s, t = (-math.log(((next(words) >> 12) + 0.5) * 2.0**-52) for _ in range(2))
                    if 2 * t > (s / TAIL) ** 2:
                        break
                x = TAIL + s / TAIL
            else:
                rise = (next(words) >> 11) * 2.0**-53 * (DENSITY[layer - 1] - DENSITY[layer])
                if DENSITY[layer] + rise >= math.exp(-x * x / 2):
                    continue
        out.append(-x if negative else x)
        if len(out) % 512 == 0:
            left.clear()  # half a word is dropped between chunks
    return np.array(out)


def splitmix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


@pytest.mark.parametrize(("row", "block"), [(0, 0), (3, 5), (2**33, 1)])
@pytest.mark.parametrize(("dtype", "bits"), [(np.float64, 52), (np.float32, 23)])
def test_the_kernel_equals_a_plain_python_one_on_numpys_generator(dtype, bits, row, block):
    """SFC64 from numpy, started where the docstring says; 9,000 values meet some 100 wedges."""
    seed = [int(word) for word in seed_words(KeyedStream.from_seed("kernels"))]
    a = (seed[0] + splitmix((row + 0x9E3779B97F4A7C15) % 2**64)) % 2**64
    b = seed[1] ^ splitmix((block + 0xD1B54A32D192ED03) % 2**64)
    generator = np.random.SFC64()
    words = {"state": np.array([a, b, seed[2], 1], np.uint64)}
    generator.state = {**generator.state, "state": words}
    generator.random_raw(18)
    words = (int(word) for word in iter(generator.random_raw, None))
    expected = by_hand(words, 9000, bits)
    if (row, block) == (3, 5):
        assert (np.abs(expected) > TAIL).any()
    ours = normals(1, 9000, dtype=dtype, first_row=row, first_block=block)[0]
    assert ours == pytest.approx(expected, rel=1e-9 if bits == 52 else 3e-7)


# ---------------------------------------------------------------- the law


def law(x):
    """p-values of a sample against N(0, 1)."""
    n, u, size = len(x), scipy.special.ndtr(x), np.abs(x)
    cells = np.bincount(np.minimum((u * 1000).astype(int), 999), minlength=1000)
    means = [scipy.special.eval_legendre(j, 2 * u - 1).mean() for j in range(1, 7)]
    legendre = sum(n * (2 * j + 1) * mean**2 for j, mean in enumerate(means, start=1))
    p = {
        "ks": scipy.stats.kstest(u, "uniform", method="asymp").pvalue,
        "cells": scipy.stats.chisquare(cells).pvalue,
        "legendre": scipy.stats.chi2.sf(legendre, 6),
    }
    due = [0.0 if i % 2 else float(scipy.special.factorial2(i - 1)) for i in range(13)]
    for j in range(1, 7):
        mean, square = due[j], due[2 * j]
        z = ((x**j).mean() - mean) / math.sqrt((square - mean * mean) / n)
        p[f"moment {j}"] = 2 * scipy.stats.norm.sf(abs(z))
    which = np.searchsorted(EDGES, size)
    count = np.bincount(which, minlength=LAYERS)
    share = 2 * np.diff(CUTS, append=1.0)
    p["intervals"] = scipy.stats.chisquare(count, share * n).pvalue
    inside = (scipy.special.ndtr(size) - CUTS[which]) / np.diff(CUTS, append=1.0)[which]
    # between edges i-1 and i lies the wedge of layer i; whole, it undoes the density's fall there
    fall = np.append(-np.expm1(-np.diff(EDGES**2, prepend=0.0) / 2), 0.0)
    lean = (fall[which] * (inside - 0.5)).sum() / math.sqrt((fall**2 * share).sum() * n / 12)
    p["wedges"] = 2 * scipy.stats.norm.sf(abs(lean))
    signed = np.bincount(which, weights=np.sign(x), minlength=LAYERS)
    p["signs"] = scipy.stats.chi2.sf((signed**2 / np.maximum(count, 1)).sum(), LAYERS)
    return p


def without_wedge_rejection(n, rng, *, wedges=False):
    """The same 256 layers, points uniform in their boxes: all, or those under the density."""
    layer = rng.integers(0, LAYERS, n)
    x = rng.random(n) * OUTER[layer]
    beyond = (layer == 0) & (x > TAIL)
    x[beyond] = -scipy.special.ndtri(rng.random(beyond.sum()) * scipy.special.ndtr(-TAIL))
    if wedges:
        height = DENSITY[layer] + rng.random(n) * (DENSITY[layer - 1] - DENSITY[layer])
        x = x[(layer == 0) | (height < np.exp(-x * x / 2))]
    return x * rng.choice([-1, 1], len(x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_law(dtype):
    p = law(normals(16, 31_250, dtype=dtype).ravel().astype(np.float64))
    assert min(p.values()) > FINE, p


def test_law_checks_accept_a_ziggurat_made_in_numpy():
    x = without_wedge_rejection(500_000, np.random.default_rng(2), wedges=True)
    assert min(law(x).values()) > FINE


@pytest.mark.slow
def test_law_checks_see_a_ziggurat_without_its_wedges_and_other_mistakes():
    rng = np.random.default_rng(3)
    p = law(without_wedge_rejection(1_000_000, rng))
    seen = {name for name, value in p.items() if value < 1e-6}
    assert {"wedges", "moment 4", "moment 6"} <= seen, p
    good = rng.standard_normal(500_000)
    assert law(good * 1.008)["moment 2"] < 1e-6
    one_layer = (np.abs(good) > EDGES[100]) & (np.abs(good) < EDGES[101])
    biased = np.where(one_layer & (rng.random(len(good)) < 0.5), np.abs(good), good)
    assert law(biased)["signs"] < BAD


# ---------------------------------------------------------------- far tails and fine resolution


def many(dtype):
    """5e7 values, of which only counts, the tail and the neighbourhood of zero are kept."""
    counts, tail, near, total = np.zeros(3, int), [], [], 0
    out = np.empty((16, 16 * BLOCK), dtype)
    for call in range(12):
        fill_normal(out, sigma=1.0, stream=KeyedStream.from_seed("many"), first_row=16 * call)
        size = np.abs(out)
        total += size.size
        far = size[size > 3].astype(np.float64)
        counts += [len(far), (far > 4).sum(), (far > 5).sum()]
        tail.append(far[far > TAIL])
        near.append(size[size < 2**-10].astype(np.float64))
    return total, counts, np.concatenate(tail), np.concatenate(near)


def tail_ks(size):
    """|x| given |x| > TAIL against the law: its survival function over that at TAIL is uniform."""
    share = scipy.special.ndtr(-size) / scipy.special.ndtr(-TAIL)
    return scipy.stats.kstest(share, "uniform").pvalue


def tail_counts(counts, total):
    return [
        scipy.stats.binomtest(int(count), total, 2 * scipy.stats.norm.sf(level)).pvalue
        for count, level in zip(counts, (3, 4, 5), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tails_and_resolution_in_fifty_million(dtype):
    total, counts, tail, near = many(dtype)
    assert total > 50_000_000
    assert min(tail_counts(counts, total)) > FINE, counts
    assert len(tail) > 10_000
    assert tail_ks(tail) > FINE
    # the density is flat there to 5e-7
    assert scipy.stats.kstest(near * 2**10, "uniform").pvalue > FINE
    assert len(near) > 35_000
    assert len(np.unique(near)) > (0.999999 if dtype == np.float64 else 0.95) * len(near)
    # what 24-bit uniforms over (0, 1) would leave
    assert len(np.unique(np.rint(near * 2**24))) < 0.5 * len(near)


def test_the_tail_checks_see_an_exponential_tail_and_a_cut_one():
    rng = np.random.default_rng(4)
    # Marsaglia's method without its rejection
    assert tail_ks(TAIL + rng.exponential(1 / TAIL, 12_000)) < BAD
    right = 2 * scipy.stats.norm.sf([3, 4, 5]) * 50_000_000
    assert min(tail_counts(np.rint(right).astype(int), 50_000_000)) > 0.5
    # nothing beyond 5σ: 28.7 were due
    wrong = tail_counts([right[0] * 1.02, right[1] * 1.15, 0], 50_000_000)
    assert max(wrong) < 1e-9


# ---------------------------------------------------------------- independence


def correlations(x):
    """z-scores of (rows, d) values and their squares: lags 1…16 in a row, next block, next row."""
    z = {}
    for name, y in (("", x), (" of squares", (x * x - 1) / math.sqrt(2))):
        for lag in (*range(1, 17), BLOCK):
            z[f"lag {lag}{name}"] = (y[:, :-lag] * y[:, lag:]).sum() / math.sqrt(y[:, lag:].size)
        z["next row" + name] = (y[:-1] * y[1:]).sum() / math.sqrt(y[1:].size)
    return z


def uncorrelated(x):
    z = np.array(list(correlations(x).values()))
    return scipy.stats.chi2.sf((z**2).sum(), len(z))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_blocks_and_rows_are_uncorrelated(dtype):
    x = normals(8, 8 * BLOCK, dtype=dtype).astype(np.float64)
    assert uncorrelated(x) > FINE, correlations(x)
    if dtype == np.float64:
        assert uncorrelated(x + 0.01 * np.roll(x, 7, axis=1)) < BAD
        assert uncorrelated(np.vstack([x[:1], x[1:] + 0.01 * x[:-1]])) < BAD
        assert uncorrelated(x + 0.01 * np.roll(x, BLOCK, axis=1)) < BAD
        # signs fresh, sizes not
        assert uncorrelated(np.abs(np.roll(x, 1, axis=1)) ** 0.04 * x) < BAD


def test_no_stretch_of_numbers_comes_twice():
    """2e6 doubles of 52 bits: generators that meet would repeat; chance does in 1 of 5,000 runs."""
    size = np.abs(normals(16, 8 * BLOCK))
    assert len(np.unique(size)) == size.size
    size[3, 100:103] = size[9, 7000:7003]
    assert len(np.unique(size)) < size.size


def test_rows_blocks_and_streams_differ_in_float32():
    x = normals(200, 3 * BLOCK, dtype=np.float32).reshape(600, BLOCK)
    assert len({part[:4].tobytes() for part in x}) == 600
    assert not np.array_equal(normals(1, 8), normals(1, 8, seed="other"))
    assert np.array_equal(normals(1, 8), normals(1, 8))


# ------------------------------------------- the same numbers however the work is split


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_thread_and_two(dtype, threads, monkeypatch):
    asked = []

    def pool(workers):
        asked.append(workers)
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(kernels, "_pool", pool)
    threads(1)
    one = normals(5, 7 * BLOCK + 5, dtype=dtype)
    assert asked == []
    for number in (2, 3):
        threads(number)
        assert np.array_equal(one, normals(5, 7 * BLOCK + 5, dtype=dtype))
        assert set(asked) == {number}
        asked.clear()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_at_once_or_one_by_one_and_shards(dtype):
    d = 3 * BLOCK + 17
    whole = normals(4, d, dtype=dtype)
    assert np.isfinite(whole).all()
    for row in range(4):
        assert np.array_equal(whole[row], normals(1, d, dtype=dtype, first_row=row)[0])
    shards = [
        normals(4, min(d, b) - a, dtype=dtype, first_block=a // BLOCK)
        for a, b in ((0, BLOCK), (BLOCK, d))
    ]
    assert np.array_equal(whole, np.hstack(shards))
    assert not np.array_equal(shards[1], normals(4, d - BLOCK, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 511, 512, 513, BLOCK - 1, BLOCK, BLOCK + 1])
def test_every_size_is_the_beginning_of_a_larger_one(d, dtype):
    assert np.array_equal(normals(2, d, dtype=dtype), normals(2, 2 * BLOCK, dtype=dtype)[:, :d])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sigma_scales(dtype):
    scaled = np.empty((2, 700), dtype)
    fill_normal(scaled, sigma=3.7, stream=KeyedStream.from_seed("kernels"))
    assert np.array_equal(scaled, dtype(3.7) * normals(2, 700, dtype=dtype))


def _draw_in_child(queue):
    torch.set_num_threads(2)
    queue.put(float(normals(2, 32 * BLOCK).sum()))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_its_parents_threads(threads):
    threads(2)
    here = float(normals(2, 32 * BLOCK).sum())
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_draw_in_child, args=(queue,), daemon=True)
    child.start()
    child.join(30)
    done = not child.is_alive()
    child.kill()
    assert done
    assert queue.get() == here


def test_the_honest_source_uses_them(stream):
    check_noise_source(Gaussian(sigma=3.0))
    x = np.empty((2, 100))
    fill_normal(x, sigma=2.0, stream=stream)
    assert np.array_equal(Gaussian(sigma=2.0).sample(2, 100, stream=stream), x)
    narrow = Gaussian().sample(4, 1000, stream=stream, dtype=torch.float32)
    assert narrow.dtype == torch.float32
    rounded = Gaussian().sample(4, 1000, stream=stream, dtype=torch.bfloat16)
    assert rounded.equal(narrow.to(torch.bfloat16))
    with pytest.raises(UsageError, match="n=0"):
        Gaussian().sample(0, 3, stream=stream, dtype=torch.float64)
    for sigma in (0, -1.0, math.nan, math.inf, "1", True):
        with pytest.raises(UsageError, match="sigma="):
            Gaussian(sigma=sigma)
