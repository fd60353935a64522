"""Generators that are linear over GF(2), and two that hide such a one behind an addition.

Each function takes the state and gives ``words(m)``, the next m words, uint64 (m,). From the
published definitions; the tests have their published first outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

__all__ = [
    "LFSR113",
    "TAUS88",
    "TW223",
    "Words",
    "Words64",
    "jit",
    "mt19937",
    "reversed_blocks",
    "tausworthe",
    "well512",
    "xoroshiro128_plus",
    "xorshift64",
    "xorshift128",
    "xorshift128_plus",
]

Words64 = npt.NDArray[np.uint64]
Words = Callable[[int], Words64]

jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)

# (bits, q, s) of the components (L'Ecuyer 1996, 1999)
TAUS88 = ((31, 13, 12), (29, 2, 4), (28, 3, 17))
LFSR113 = ((31, 6, 18), (29, 2, 2), (28, 13, 7), (25, 3, 13))
TW223 = ((63, 31, 18), (58, 19, 28), (55, 24, 7), (47, 21, 8))


def _stepped(kernel: Any, state: Words64, *more: Any) -> Words:
    def words(m: int) -> Words64:
        out = np.empty(m, np.uint64)
        kernel(state, out, *more)
        return out

    return words


def mt19937(key: npt.NDArray[np.uint32]) -> Words:
    """The Mersenne Twister (Matsumoto and Nishimura 1998) from a whole state of 624 words."""
    generator = np.random.MT19937(0)
    generator.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    return lambda m: np.asarray(generator.random_raw(m))


@jit
def _xorshift64(state, out):  # type: ignore[no-untyped-def]
    x = state[0]
    for i in range(len(out)):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        out[i] = x
    state[0] = x


def xorshift64(state: Words64) -> Words:
    """Marsaglia's (2003) with shifts 13, 7, 17; 64 bits."""
    return _stepped(_xorshift64, state)


@jit
def _xorshift128(state, out):  # type: ignore[no-untyped-def]
    low = np.uint64(0xFFFFFFFF)
    x, y, z, w = state[0], state[1], state[2], state[3]
    for i in range(len(out)):
        t = (x ^ (x << np.uint64(11))) & low
        x, y, z = y, z, w
        w = w ^ (w >> np.uint64(19)) ^ t ^ (t >> np.uint64(8))
        out[i] = w
    state[0], state[1], state[2], state[3] = x, y, z, w


def xorshift128(state: Words64) -> Words:
    """Marsaglia's (2003) of four 32-bit words, shifts 11, 8, 19; 32 bits."""
    return _stepped(_xorshift128, state)


@jit
def _xorshift128_plus(state, out, added):  # type: ignore[no-untyped-def]
    a, b = state[0], state[1]
    for i in range(len(out)):
        x, y = a, b
        x ^= x << np.uint64(23)
        x ^= x >> np.uint64(17)
        x ^= y ^ (y >> np.uint64(26))
        a, b = y, x
        out[i] = a + b if added else a
    state[0], state[1] = a, b


def xorshift128_plus(state: Words64, *, added: bool) -> Words:
    """Vigna's (2017) with shifts 23, 17, 26; not ``added``: one half of its state, as V8 takes."""
    return _stepped(_xorshift128_plus, state, added)


@jit
def _xoroshiro128_plus(state, out):  # type: ignore[no-untyped-def]
    a, b = state[0], state[1]
    for i in range(len(out)):
        out[i] = a + b
        b ^= a
        a = ((a << np.uint64(24)) | (a >> np.uint64(40))) ^ b ^ (b << np.uint64(16))
        b = (b << np.uint64(37)) | (b >> np.uint64(27))
    state[0], state[1] = a, b


def xoroshiro128_plus(state: Words64) -> Words:
    """Blackman and Vigna's (2021) with 24, 16, 37; 64 bits, of which the lowest is linear."""
    return _stepped(_xoroshiro128_plus, state)


@jit
def _tausworthe(state, out, size, parts):  # type: ignore[no-untyped-def]
    every = ~np.uint64(0) if size == 64 else np.uint64((1 << size) - 1)
    for i in range(len(out)):
        word = np.uint64(0)
        for j in range(len(state)):
            k, q, s = parts[j, 0], parts[j, 1], parts[j, 2]
            z = state[j]
            low = (((z << np.uint64(q)) & every) ^ z) >> np.uint64(k - s)
            z = (((z & (every << np.uint64(size - k))) << np.uint64(s)) & every) ^ low
            state[j] = z
            word ^= z
        out[i] = word


def tausworthe(state: Words64, size: int, parts: tuple[tuple[int, int, int], ...]) -> Words:
    """Combined Tausworthe generators of ``size`` bits, e.g. ``TAUS88``; the states are large."""
    return _stepped(_tausworthe, state, size, np.array(parts, np.int64))


@jit
def _well512(state, out):  # type: ignore[no-untyped-def]
    low = np.uint64(0xFFFFFFFF)
    at = np.int64(state[16])
    for i in range(len(out)):
        a, c = state[at], state[(at + 13) & 15]
        b = (a ^ c ^ (a << np.uint64(16)) ^ (c << np.uint64(15))) & low
        c = state[(at + 9) & 15]
        c ^= c >> np.uint64(11)
        a = b ^ c
        state[at] = a
        d = (a ^ ((a << np.uint64(5)) & np.uint64(0xDA442D24))) & low
        at = (at + 15) & 15
        a = state[at]
        mixed = a ^ b ^ d ^ (a << np.uint64(2)) ^ (b << np.uint64(18)) ^ (c << np.uint64(28))
        state[at] = mixed & low
        out[i] = state[at]
    state[16] = at


def well512(state: Words64) -> Words:
    """WELL512a (Panneton, L'Ecuyer and Matsumoto 2006): 16 words of 32 bits."""
    return _stepped(_well512, np.append(state, np.uint64(0)))


def reversed_blocks(words: Words, size: int) -> Words:
    """Words in blocks of ``size``, each handed out from its end; m is a multiple of it."""
    return lambda m: np.ascontiguousarray(words(m).reshape(-1, size)[:, ::-1]).ravel()
