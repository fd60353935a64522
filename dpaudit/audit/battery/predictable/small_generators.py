"""Congruential generators and shift registers under their common seedings: many seeds at once.

Each function takes seeds (n,) and a number of uniforms in [0, 1): (count, n).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["GENERATORS", "java"]

Seeds = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Uniforms = Callable[[Seeds, int], Floats]

_48 = np.uint64((1 << 48) - 1)
_GOLDEN = 0x9E3779B97F4A7C15


def _congruential(
    seeds: Seeds, count: int, *, factor: int, add: int, modulus: int, low: int = 0
) -> Floats:
    """States after the first step, over the modulus; a seed of 0 becomes ``low``."""
    state = seeds % np.uint64(modulus)
    state[state == 0] = low
    out = np.empty((count, len(seeds)))
    for i in range(count):
        state = (state * np.uint64(factor) + np.uint64(add)) % np.uint64(modulus)
        out[i] = state
    return out / modulus


def _canonical(seeds: Seeds, count: int, *, factor: int) -> Floats:
    """libstdc++'s uniforms from ``std::minstd_rand``: two numbers each, the lower first."""
    u = _congruential(seeds, 2 * count, factor=factor, add=0, modulus=2**31 - 1, low=1)
    x = u * (2**31 - 1) - 1
    return np.asarray((x[::2] + x[1::2] * (2**31 - 2)) / (2.0**31 - 2) ** 2)


def _drand48(seeds: Seeds, count: int) -> Floats:
    state = (seeds & np.uint64(0xFFFFFFFF)) << np.uint64(16) | np.uint64(0x330E)
    out = np.empty((count, len(seeds)))
    for i in range(count):
        state = state * np.uint64(0x5DEECE66D) + np.uint64(11) & _48
        out[i] = state
    return out * 2.0**-48


def java(seeds: Seeds, count: int) -> Floats:
    """``new java.util.Random(seed).nextDouble()``."""
    state = (seeds ^ np.uint64(0x5DEECE66D)) & _48
    out = np.empty((count, len(seeds)))
    for i in range(count):
        state = state * np.uint64(0x5DEECE66D) + np.uint64(11) & _48
        high = state >> np.uint64(22) << np.uint64(27)
        state = state * np.uint64(0x5DEECE66D) + np.uint64(11) & _48
        out[i] = high + (state >> np.uint64(21))
    return out * 2.0**-53


def _glibc(seeds: Seeds, count: int) -> Floats:
    """``srand(seed)`` and ``rand()`` of glibc."""
    state = seeds.astype(np.uint32).astype(np.int32).astype(np.int64)
    state[state == 0] = 1
    words = [state.astype(np.uint32)]
    for _ in range(30):
        state = np.fmod(16807 * state, 2147483647)  # with the sign of the dividend, as in C
        state[state < 0] += 2147483647
        words.append(state.astype(np.uint32))
    words += words[:3]
    for i in range(34, 344 + count):
        words.append(words[i - 31] + words[i - 3])
    return np.stack(words[344:]) // 2 / 2.0**31


def _xorshift(seeds: Seeds, count: int, *, bits: int, shifts: tuple[int, int, int]) -> Floats:
    kind = np.dtype(f"u{bits // 8}").type
    a, b, c = (kind(s) for s in shifts)
    x = seeds.astype(kind)
    out = np.empty((count, len(seeds)))
    for i in range(count):
        x = x ^ (x << a)
        x ^= x >> b
        x ^= x << c
        out[i] = x >> kind(max(bits - 53, 0))
    return out * 2.0 ** -min(bits, 53)


def _splitmix_words(seeds: Seeds, count: int) -> list[Seeds]:
    out = []
    for i in range(count):
        z = seeds + np.uint64((i + 1) * _GOLDEN & (1 << 64) - 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out.append(z ^ (z >> np.uint64(31)))
    return out


def _turned(x: Seeds, by: int) -> Seeds:
    return np.asarray(x << np.uint64(by) | x >> np.uint64(64 - by))


def _unit(x: Seeds) -> Floats:
    return np.asarray((x >> np.uint64(11)) * 2.0**-53)


def _splitmix(seeds: Seeds, count: int) -> Floats:
    return np.stack([_unit(x) for x in _splitmix_words(seeds, count)])


def _xoshiro(seeds: Seeds, count: int, *, output: str) -> Floats:
    s = _splitmix_words(seeds, 4)
    out = np.empty((count, len(seeds)))
    for i in range(count):
        if output == "**":
            found = _turned(s[1] * np.uint64(5), 7) * np.uint64(9)
        else:
            found = s[0] + s[3]
            found = found if output == "+" else _turned(found, 23) + s[0]
        out[i] = _unit(found)
        t = s[1] << np.uint64(17)
        s[2], s[3] = s[2] ^ s[0], s[3] ^ s[1]
        s[1], s[0] = s[1] ^ s[2], s[0] ^ s[3]
        s[2], s[3] = s[2] ^ t, _turned(s[3], 45)
    return out


def _xoroshiro(seeds: Seeds, count: int) -> Floats:
    a, b = _splitmix_words(seeds, 2)
    out = np.empty((count, len(seeds)))
    for i in range(count):
        out[i] = _unit(a + b)
        b = b ^ a
        a, b = _turned(a, 24) ^ b ^ (b << np.uint64(16)), _turned(b, 37)
    return out


def _pcg32(seeds: Seeds, count: int) -> Floats:
    """``pcg32_srandom(seed, 0xda3e39cb94b95bdb)``."""
    factor, step = np.uint64(6364136223846793005), np.uint64(0xDA3E39CB94B95BDB * 2 + 1 & 2**64 - 1)
    state = (seeds + step) * factor + step
    out = np.empty((count, len(seeds)))
    for i in range(count):
        mixed = ((state >> np.uint64(18) ^ state) >> np.uint64(27)).astype(np.uint32)
        turn = (state >> np.uint64(59)).astype(np.uint32)
        out[i] = mixed >> turn | mixed << (np.uint32(32) - turn & np.uint32(31))
        state = state * factor + step
    return out * 2.0**-32


def _made(function: Callable[..., Floats], **options: object) -> Uniforms:
    return lambda seeds, count: function(seeds, count, **options)


GENERATORS: dict[str, Uniforms] = {
    "minstd 16807": _made(_congruential, factor=16807, add=0, modulus=2**31 - 1, low=1),
    "minstd 48271": _made(_congruential, factor=48271, add=0, modulus=2**31 - 1, low=1),
    "std::minstd_rand0": _made(_canonical, factor=16807),
    "std::minstd_rand": _made(_canonical, factor=48271),
    "the ANSI C rand, 31 bits": _made(_congruential, factor=1103515245, add=12345, modulus=2**31),
    "RANDU": _made(_congruential, factor=65539, add=0, modulus=2**31),
    "Numerical Recipes' 32-bit congruential generator": _made(
        _congruential, factor=1664525, add=1013904223, modulus=2**32
    ),
    "glibc's rand": _glibc,
    "drand48": _drand48,
    "java.util.Random": java,
    "xorshift32": _made(_xorshift, bits=32, shifts=(13, 17, 5)),
    "xorshift64": _made(_xorshift, bits=64, shifts=(13, 7, 17)),
    "splitmix64": _splitmix,
    "xoshiro256**": _made(_xoshiro, output="**"),
    "xoshiro256++": _made(_xoshiro, output="++"),
    "xoshiro256+": _made(_xoshiro, output="+"),
    "xoroshiro128+": _xoroshiro,
    "pcg32": _pcg32,
}
