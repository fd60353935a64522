"""Compiled loops on the CPU: normals by ziggurat, corrected along secret directions in cache.

A vector is drawn in blocks of 16,384 coordinates. Each block of each row has its own generator
(SFC64) started from the stream's 192-bit seed, the row and the block, so any split of the work at
block borders, over threads, processes or machines, gives the same numbers.

The normals: Marsaglia and Tsang's ziggurat (2000) with 256 layers, in Doornik's arrangement (2005)
that takes layer, sign and position from disjoint bits; 52-bit positions for float64, 23-bit for
float32. The law is exact but for that resolution. Not claimed: cryptographic unpredictability, or
safety of the low bits once noise is added to a value.

Compiled loops use as many threads as torch, where torch is loaded, else as many as its default.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.numeric import BLOCK
from dpaudit.numeric.random_words import jit, next_word, seed_words, start
from dpaudit.protocols import Stream

__all__ = [
    "BLOCK",
    "Grams",
    "Peaks",
    "draw_shares",
    "fill_discrete_gaussian",
    "fill_normal",
    "fill_normal_from",
    "fill_pancake",
    "number_of_threads",
    "spread",
]


def number_of_threads() -> int:
    """``torch.get_num_threads()``; without torch ``OMP_NUM_THREADS``, or the cores it may use."""
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


_CHUNK = 1 << 9
_SPLIT = 1 << 19  # values below which a second thread does not pay

_TAIL = 3.6541528853610088  # where the base layer's tail begins, for 256 layers


def _layers(
    bits: int,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Widths over 2^bits, acceptance limits of the integer position, densities at outer edges."""
    area = _TAIL * math.exp(-_TAIL * _TAIL / 2) + math.sqrt(math.pi / 2) * math.erfc(
        _TAIL / math.sqrt(2)
    )
    edge = [0.0] * 257
    edge[256], edge[255] = area / math.exp(-_TAIL * _TAIL / 2), _TAIL
    for i in range(254, 0, -1):
        edge[i] = math.sqrt(-2 * math.log(area / edge[i + 1] + math.exp(-(edge[i + 1] ** 2) / 2)))
    outer = np.array([edge[256], *edge[1:256]])
    inner = np.array([_TAIL, *edge[0:255]])
    return (
        outer * 2.0**-bits,
        np.floor(inner / outer * 2.0**bits),
        np.exp(-(np.array(edge[:256]) ** 2) / 2),
    )


_W64, _limit64, _DENSITY = _layers(52)
_K64 = _limit64.astype(np.int64)
_width32, _limit32, _ = _layers(23)
_W32, _K32 = _width32.astype(np.float32), _limit32.astype(np.int32)

_U = np.uint64
vector: Any = numba.njit(nogil=True, cache=True, boundscheck=False, fastmath=True)


@jit
def _rare(layer, x, a, b, c, n):  # type: ignore[no-untyped-def]
    """The 1 % outside a layer's inner box: (accepted, |value|, state)."""
    if layer == 0:  # the tail, Marsaglia's method
        while True:
            a, b, c, n, w1 = next_word(a, b, c, n)
            a, b, c, n, w2 = next_word(a, b, c, n)
            s = -math.log((np.float64(w1 >> _U(12)) + 0.5) * 2.0**-52) / _TAIL
            t = -math.log((np.float64(w2 >> _U(12)) + 0.5) * 2.0**-52)
            if t + t > s * s:
                return True, _TAIL + s, a, b, c, n
    a, b, c, n, w1 = next_word(a, b, c, n)
    u = np.float64(w1 >> _U(11)) * 2.0**-53
    low, high = _DENSITY[layer], _DENSITY[layer - 1]
    return low + u * (high - low) < math.exp(-0.5 * x * x), x, a, b, c, n


@jit
def _normal64(out, sigma, a, b, c, n):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        while True:
            a, b, c, n, word = next_word(a, b, c, n)
            layer = np.int64(word & _U(0xFF))
            place = np.int64((word >> _U(9)) & _U(0xFFFFFFFFFFFFF))
            x = np.float64(place) * _W64[layer]
            if place < _K64[layer]:
                break
            ok, x, a, b, c, n = _rare(layer, x, a, b, c, n)
            if ok:
                break
        out[i] = sigma * (-x if word & _U(0x100) else x)
    return a, b, c, n


@jit
def _another64(word, spare, used):  # type: ignore[no-untyped-def]
    """What ``_normal64`` does after a word outside the inner box: (|value|, its word, used).

    Further words come from ``spare``; ``used`` is −1 if there are too few.
    """
    while used + 64 <= spare.size:  # that tail alone accepts 8 times in 9
        layer = np.int64(word & _U(0xFF))
        place = np.int64((word >> _U(9)) & _U(0xFFFFFFFFFFFFF))
        x = np.float64(place) * _W64[layer]
        if place < _K64[layer]:
            return x, word, used
        if layer == 0:
            for _ in range(30):
                s = -math.log((np.float64(spare[used] >> _U(12)) + 0.5) * 2.0**-52) / _TAIL
                t = -math.log((np.float64(spare[used + 1] >> _U(12)) + 0.5) * 2.0**-52)
                used += 2
                if 2.0 * t > s * s:
                    return _TAIL + s, word, used
            return x, word, -1
        u = np.float64(spare[used] >> _U(11)) * 2.0**-53
        low, high = _DENSITY[layer], _DENSITY[layer - 1]
        if low + u * (high - low) < math.exp(-0.5 * x * x):
            return x, word, used + 1
        word, used = spare[used + 1], used + 2
    return 0.0, word, -1


@jit
def _normal64_from(out, sigma, words, spare):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(out.size):
        word = words[i]
        layer = np.int64(word & _U(0xFF))
        place = np.int64((word >> _U(9)) & _U(0xFFFFFFFFFFFFF))
        x = np.float64(place) * _W64[layer]
        if place >= _K64[layer]:
            x, word, used = _another64(word, spare, used)
            if used < 0:
                return False
        out[i] = sigma * (-x if word & _U(0x100) else x)
    return True


@jit
def _normal32(out, sigma, a, b, c, n):  # type: ignore[no-untyped-def]
    scale = np.float32(sigma)
    half, left = _U(0), False
    for i in range(out.size):
        while True:
            if left:
                bits = np.int64(half >> _U(32))
            else:
                a, b, c, n, half = next_word(a, b, c, n)
                bits = np.int64(half & _U(0xFFFFFFFF))
            left = not left
            layer = bits & 0xFF
            place = np.int32(bits >> 9)
            x = np.float32(place) * _W32[layer]
            if place < _K32[layer]:
                break
            ok, wide, a, b, c, n = _rare(layer, np.float64(x), a, b, c, n)
            if ok:
                x = np.float32(wide)
                break
        out[i] = scale * (-x if bits & 0x100 else x)
    return a, b, c, n


@vector
def _dot(x, w):  # type: ignore[no-untyped-def]
    """⟨x, w⟩ accumulated in float64 whatever the types."""
    total = 0.0
    for i in range(x.size):
        total += np.float64(x[i]) * np.float64(w[i])
    return total


@vector
def _add64(x, w, factor):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        x[i] += factor * np.float64(w[i])


@vector
def _add32(x, w, factor):  # type: ignore[no-untyped-def]
    f = np.float32(factor)
    for i in range(x.size):
        x[i] += f * np.float32(w[i])


@jit
def _integer(scale, a, b, c, n):  # type: ignore[no-untyped-def]
    """One integer with P(k) ∝ exp(−k²/(2·scale²)) and the state: :func:`fill_discrete_gaussian`."""
    t = math.floor(scale) + 1.0
    while True:
        a, b, c, n, w1 = next_word(a, b, c, n)
        a, b, c, n, w2 = next_word(a, b, c, n)
        a, b, c, n, w3 = next_word(a, b, c, n)
        # floors of exponentials are geometric; the difference of two is discrete Laplace with
        # parameter exp(−1/t)
        k = math.floor(-t * math.log((np.float64(w1 >> _U(12)) + 0.5) * 2.0**-52))
        k -= math.floor(-t * math.log((np.float64(w2 >> _U(12)) + 0.5) * 2.0**-52))
        gap = abs(k) - scale * scale / t
        if np.float64(w3 >> _U(11)) * 2.0**-53 < math.exp(-gap * gap / (2 * scale * scale)):
            return k, a, b, c, n


_ALONG, _BETWEEN = _U(2**64 - 1), _U(2**64 - 2)  # block numbers no vector is long enough to have


@jit
def _integers(out, seed, scale):  # type: ignore[no-untyped-def]
    a, b, c, n = start(seed, 0, _ALONG)
    for i in range(out.size):
        k, a, b, c, n = _integer(scale, a, b, c, n)
        out[i] = np.int64(k)


@jit
def _shares(out, seed, sigma, peaks, grams):  # type: ignore[no-untyped-def]
    rows, blocks, k = out.shape
    scale, spacing, width = peaks
    parts, roots, lower, inverse = grams
    along, total, z, missing = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    for row in range(rows):
        a, b, c, n = start(seed, row, _ALONG)
        a, b, c, n = _normal64(along, width, a, b, c, n)
        for j in range(k):
            peak, a, b, c, n = _integer(scale, a, b, c, n)
            along[j] += peak * spacing
        for i in range(k):
            total[i] = 0.0
            for j in range(i + 1):
                total[i] += lower[i, j] * along[j]
        if blocks == 1:
            out[row, 0] = total
            continue
        a, b, c, n = start(seed, row, _BETWEEN)
        for block in range(blocks):
            a, b, c, n = _normal64(z, sigma, a, b, c, n)
            for i in range(k):
                share = 0.0
                for j in range(k):
                    share += roots[block, i, j] * z[j]
                out[row, block, i] = share
                total[i] -= share
        for i in range(k):
            missing[i] = 0.0
            for j in range(k):
                missing[i] += inverse[i, j] * total[j]
        for block in range(blocks):
            for i in range(k):
                for j in range(k):
                    out[row, block, i] += parts[block, i, j] * missing[j]


# By a value's size and not by closures over the two, which numba's disk cache would not recognise.


@jit
def _normal(out, sigma, a, b, c, n):  # type: ignore[no-untyped-def]
    if out.itemsize == 8:
        return _normal64(out, sigma, a, b, c, n)
    return _normal32(out, sigma, a, b, c, n)


@jit
def _add(x, w, factor):  # type: ignore[no-untyped-def]
    if x.itemsize == 8:
        _add64(x, w, factor)
    else:
        _add32(x, w, factor)


@jit
def _plain(out, jobs, seed, sigma, corner):  # type: ignore[no-untyped-def]
    d = out.shape[1]
    blocks = (d + BLOCK - 1) // BLOCK
    for job in range(jobs[0], jobs[1]):
        row, block = job // blocks, job % blocks
        part = out[row, block * BLOCK : min(d, (block + 1) * BLOCK)]
        a, b, c, n = start(seed, corner[0] + row, corner[1] + block)
        for q in range(0, part.size, _CHUNK):
            a, b, c, n = _normal(part[q : q + _CHUNK], sigma, a, b, c, n)


@jit
def _pancake(out, jobs, seed, sigma, corner, w, shares, inverse):  # type: ignore[no-untyped-def]
    d, k = out.shape[1], w.shape[0]
    blocks, gap = (d + BLOCK - 1) // BLOCK, np.empty(k)
    for job in range(jobs[0], jobs[1]):
        row, block = job // blocks, job % blocks
        low, high = block * BLOCK, min(d, (block + 1) * BLOCK)
        part = out[row, low:high]
        a, b, c, n = start(seed, corner[0] + row, corner[1] + block)
        for q in range(0, part.size, _CHUNK):
            a, b, c, n = _normal(part[q : q + _CHUNK], sigma, a, b, c, n)
        for j in range(k):
            gap[j] = shares[row, block, j] - _dot(part, w[j, low:high])
        for j in range(k):
            factor = 0.0
            for i in range(k):
                factor += inverse[block, j, i] * gap[i]
            _add(part, w[j, low:high], factor)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dpaudit-noise")


if hasattr(os, "register_at_fork"):
    # a forked child has the pool, but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def spread(work: Any, jobs: int, values: int) -> None:
    """Run ``work(first, last)`` over all jobs, on several threads if ``values`` make it pay."""
    threads = min(number_of_threads(), jobs)
    if threads < 2 or values < _SPLIT:
        work(0, jobs)
        return
    edges = [jobs * i // threads for i in range(threads + 1)]
    for done in [_pool(threads).submit(work, *pair) for pair in itertools.pairwise(edges)]:
        done.result()


def fill_normal(
    out: npt.NDArray[Any], *, sigma: float, stream: Stream, first_row: int = 0, first_block: int = 0
) -> None:
    """Fill ``out`` (n, d), float32 or float64 and contiguous, with N(0, σ²).

    ``first_row`` and ``first_block`` place ``out`` within a larger array of the same stream: shards
    that begin at a multiple of ``BLOCK`` get what the whole would have had there.
    """
    seed, corner = seed_words(stream), (first_row, first_block)

    def work(first: int, last: int) -> None:
        _plain(out, (first, last), seed, sigma, corner)

    spread(work, len(out) * -(-out.shape[1] // BLOCK), out.size)


def fill_normal_from(
    out: npt.NDArray[np.float64],
    *,
    sigma: float,
    words: npt.NDArray[np.uint64],
    spare: npt.NDArray[np.uint64],
) -> bool:
    """Fill ``out`` (n,) with N(0, σ²) by the same ziggurat, from random words.

    Value i is made of word i, and, once in a hundred times, of the next ``spare`` ones: 0.02·n on
    average. False if there are too few (n/32 + 128 are enough but for 2^-64 of cases).
    """
    return bool(_normal64_from(out, sigma, words, spare))


def fill_discrete_gaussian(out: npt.NDArray[np.int64], *, scale: float, stream: Stream) -> None:
    """Fill ``out`` (n,) with integers of P(k) ∝ exp(−k²/(2·scale²)).

    They are drawn by rejection from the discrete Laplace law. Canonne, Kamath and Steinke 2020
    (arXiv 2004.00010), Algorithm 3, with double-precision acceptance probabilities: the law is
    exact but for their rounding (relative error about 1e-16). Not claimed: exactness in the sense
    of that paper's rational arithmetic.
    """
    _integers(out, seed_words(stream), float(scale))


class Peaks(NamedTuple):
    """A comb along each direction: Z·spacing, Z discrete Gaussian, and N(0, ``width``²) on top."""

    scale: float
    """Of Z."""
    spacing: float
    width: float


class Grams(NamedTuple):
    """Gram matrices of k directions, of each block and of the whole."""

    blocks: npt.NDArray[np.float64]
    """Shape (blocks, k, k)."""
    roots: npt.NDArray[np.float64]
    """Their square roots, the same shape."""
    lower: npt.NDArray[np.float64]
    """The Cholesky factor of the whole (k, k)."""
    inverse: npt.NDArray[np.float64]
    """Its inverse (k, k)."""


def draw_shares(
    out: npt.NDArray[np.float64], *, sigma: float, peaks: Peaks, grams: Grams, stream: Stream
) -> None:
    """Fill ``out`` (n, blocks, k) with the blocks' shares of n pancake releases.

    See ``dpaudit.noise.pancake.Pancake``.
    """
    _shares(out, seed_words(stream), sigma, peaks, grams)


def fill_pancake(
    out: npt.NDArray[Any],
    *,
    sigma: float,
    stream: Stream,
    w: npt.NDArray[np.int16],
    shares: npt.NDArray[np.float64],
    inverse: npt.NDArray[np.float64],
    first_row: int = 0,
    first_block: int = 0,
) -> None:
    """Fill ``out`` (n, d) with N(0, σ²) conditioned block by block on ``w @ block = share``.

    ``w`` (k, d) int16, ``shares`` (n, blocks, k), ``inverse`` (blocks, k, k) the inverses of the
    blocks' Gram matrices ``w_b w_bᵀ``. One pass over memory: a block is drawn, measured (in
    float64) and corrected while in cache.
    """
    # strided rows compile to another order of summation: other last bits than the whole
    w = np.ascontiguousarray(w)
    seed, corner = seed_words(stream), (first_row, first_block)

    def work(first: int, last: int) -> None:
        _pancake(out, (first, last), seed, sigma, corner, w, shares, inverse)

    spread(work, len(out) * -(-out.shape[1] // BLOCK), out.size)
