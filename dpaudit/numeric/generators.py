"""Published generators of words: linear over GF(2), and by arithmetic modulo a number.

Each function takes the state and gives ``words(m)``, the next m words, uint64 (m,). From the
published definitions; the tests have their published outputs. Not here: generators of the battery
over many seeds at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.numeric.random_words import jit

__all__ = [
    "ADD",
    "LFSR113",
    "REVERSED",
    "SUBTRACT",
    "TAUS88",
    "TW223",
    "XOR",
    "Words",
    "Words64",
    "congruential",
    "jit",
    "lagged",
    "mrg32k3a",
    "mt19937",
    "reversed_blocks",
    "shuffled",
    "splitmix64",
    "tausworthe",
    "tempered",
    "well512",
    "xorshift32",
    "xorshift64",
    "xorshift128",
    "xorshift128_plus",
]

Words64 = npt.NDArray[np.uint64]
Words = Callable[[int], Words64]

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


def tempered(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The Mersenne Twister's output for words of its state."""
    x = x ^ (x >> np.uint32(11))
    x ^= (x << np.uint32(7)) & np.uint32(0x9D2C5680)
    x ^= (x << np.uint32(15)) & np.uint32(0xEFC60000)
    return np.asarray(x ^ (x >> np.uint32(18)))


@jit
def _xorshift32(state, out):  # type: ignore[no-untyped-def]
    x = state[0]
    for i in range(len(out)):
        x ^= (x << np.uint64(13)) & np.uint64(0xFFFFFFFF)
        x ^= x >> np.uint64(17)
        x ^= (x << np.uint64(5)) & np.uint64(0xFFFFFFFF)
        out[i] = x
    state[0] = x


def xorshift32(state: Words64) -> Words:
    """Marsaglia's (2003) with shifts 13, 17, 5; 32 bits."""
    return _stepped(_xorshift32, state)


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
    """Words in blocks of ``size``, each handed out from its end."""
    ready = np.empty(0, np.uint64)

    def after(m: int) -> Words64:
        nonlocal ready
        blocks = -(-max(0, m - len(ready)) // size)
        if blocks:
            rows = words(blocks * size).reshape(-1, size)[:, ::-1].ravel()
            ready = np.concatenate([ready, rows])
        out, ready = ready[:m], ready[m:]
        return out

    return after


XOR, ADD, SUBTRACT, REVERSED = range(4)


def congruential(multiplier: int, increment: int, modulus: int, state: int) -> Words:
    """All of each x ← multiplier·x + increment, modulo a power of two or a number up to 2^32."""
    if modulus > 1 << 32 and modulus & (modulus - 1):
        raise ValueError(f"modulus={modulus}: must be at most 2^32, or a power of two")
    at = state

    def words(m: int) -> Words64:
        nonlocal at
        out = np.empty(m, np.uint64)
        out[0] = (multiplier * at + increment) % modulus
        have, a, c = 1, multiplier, increment
        while have < m:  # (a, c) takes have steps at once
            more = min(have, m - have)
            out[have : have + more] = out[:more] * np.uint64(a) + np.uint64(c)
            if modulus < 1 << 64:
                out[have : have + more] %= np.uint64(modulus)
            have += more
            a, c = a * a % modulus, (a * c + c) % modulus
        at = int(out[-1])
        return out

    return words


@jit
def _lagged(state, out, short, kind, mask):  # type: ignore[no-untyped-def]
    """``state`` holds the last values, the oldest first."""
    size = len(state)
    at = 0
    for i in range(len(out)):
        old, near = state[at], state[(at + size - short) % size]
        if kind == 0:
            x = old ^ near
        elif kind == 1:
            x = (old + near) & mask
        elif kind == 2:
            x = (old - near) & mask
        else:
            x = (near - old) & mask
        state[at] = x
        out[i] = x
        at = (at + 1) % size
    state[:] = np.concatenate((state[at:], state[:at]))


def lagged(state: Words64, short: int, kind: int, bits: int) -> Words:
    """x_n = x_(n-long) ∘ x_(n-short) modulo 2^bits: ∘ is ``XOR``, ``ADD`` or ``SUBTRACT``.

    ``REVERSED`` is x_(n-short) - x_(n-long). ``state`` has the last ``long`` values, oldest first.
    """
    mask = np.uint64((1 << bits) - 1)

    def words(m: int) -> Words64:
        out = np.empty(m, np.uint64)
        _lagged(state, out, short, kind, mask)
        return out

    return words


@jit
def _mrg32k3a(state, out):  # type: ignore[no-untyped-def]
    p, q = 4294967087, 4294944443
    a, b, c, d, e, f = state[0], state[1], state[2], state[3], state[4], state[5]
    for i in range(len(out)):
        x = (1403580 * b - 810728 * a) % p
        a, b, c = b, c, x
        y = (527612 * f - 1370589 * d) % q
        d, e, f = e, f, y
        out[i] = (x - y) % p
    state[0], state[1], state[2], state[3], state[4], state[5] = a, b, c, d, e, f


def mrg32k3a(state: Words64) -> Words:
    """L'Ecuyer's (1999) combined multiple recursive generator; words below 4294967087."""
    components = state.astype(np.int64)

    def words(m: int) -> Words64:
        out = np.empty(m, np.int64)
        _mrg32k3a(components, out)
        return out.astype(np.uint64)

    return words


@jit
def _shuffled(table, source, out, modulus):  # type: ignore[no-untyped-def]
    """Algorithm B of Knuth, Volume 2, 3.2.2; the last cell of ``table`` is the last output."""
    size = len(table) - 1
    y = table[size]
    for i in range(len(out)):
        j = int(np.uint64(size) * y // modulus)
        y = table[j]
        table[j] = source[i]
        out[i] = y
    table[size] = y


def shuffled(words: Words, size: int, modulus: int) -> Words:
    """Bays and Durham's shuffle of another generator's words below ``modulus``."""
    table = words(size + 1)

    def after(m: int) -> Words64:
        out = np.empty(m, np.uint64)
        _shuffled(table, words(m), out, np.uint64(modulus))
        return out

    return after


def splitmix64(state: int) -> Words:
    """Steele, Lea and Flood's (2014): a counter by the golden ratio, mixed invertibly."""
    at = state

    def words(m: int) -> Words64:
        nonlocal at
        x = np.arange(1, m + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(at)
        at = int(x[-1])
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    return words
