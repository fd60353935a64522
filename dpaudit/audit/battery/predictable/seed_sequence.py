"""numpy's ``SeedSequence`` and the generators that it seeds: many seeds at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["pcg64", "pcg64_dxsm", "philox", "pool", "sfc64", "state_word"]

Seeds = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.uint64]
Pair = tuple[Longs, Longs]  # high and low half of a number of 128 bits

_HALF = np.uint64(0xFFFFFFFF)
_PCG = (np.uint64(2549297995355413924), np.uint64(4865540595714422341))
_CHEAP = (np.uint64(0), np.uint64(0xDA942042E4DD58B5))
_ROUNDS = 10
_PHILOX = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def pool(seeds: Seeds) -> list[Words]:
    """The four mixed words of entropy of ``SeedSequence(seed)``, of seeds below 2^64."""
    constant = 0x43B0D7E5

    def hashed(word: Words) -> Words:
        nonlocal constant
        word = word ^ np.uint32(constant)
        constant = constant * 0x931E8875 & 0xFFFFFFFF
        word *= np.uint32(constant)
        return np.asarray(word ^ (word >> np.uint32(16)))

    low, high = seeds.astype(np.uint32), (seeds >> np.uint64(32)).astype(np.uint32)
    mixed = [hashed(word) for word in (low, high, np.zeros_like(low), np.zeros_like(low))]
    for source in range(4):
        for target in range(4):
            if source != target:
                word = np.uint32(0xCA01F9DD) * mixed[target]
                word -= np.uint32(0x4973F715) * hashed(mixed[source])
                mixed[target] = word ^ (word >> np.uint32(16))
    return mixed


def state_word(mixed: list[Words], i: int) -> Words:
    """Word i of ``generate_state``."""
    constant = 0x8B51F9DD * pow(0x58F38DED, i, 1 << 32) & 0xFFFFFFFF
    word = mixed[i % 4] ^ np.uint32(constant)
    word *= np.uint32(constant * 0x58F38DED & 0xFFFFFFFF)
    return np.asarray(word ^ (word >> np.uint32(16)))


def pcg64(seeds: Seeds, count: int) -> Longs:
    """The first ``count`` words (count, n) of ``numpy.random.PCG64(seed)``."""
    state, step = _started(seeds)
    out = np.empty((count, len(seeds)), np.uint64)
    for i in range(count):
        state = _plus(_times(state, _PCG), step)
        mixed, turn = state[0] ^ state[1], state[0] >> np.uint64(58)
        out[i] = mixed >> turn | mixed << (np.uint64(64) - turn & np.uint64(63))
    return out


def pcg64_dxsm(seeds: Seeds, count: int) -> Longs:
    """The same of ``numpy.random.PCG64DXSM(seed)``."""
    state, step = _started(seeds)
    out = np.empty((count, len(seeds)), np.uint64)
    for i in range(count):
        high, low = state[0], state[1] | np.uint64(1)
        high = (high ^ (high >> np.uint64(32))) * _CHEAP[1]
        high ^= high >> np.uint64(48)
        out[i] = high * low
        state = _plus(_times(state, _CHEAP), step)
    return out


def philox(seeds: Seeds, count: int) -> Longs:
    """The same of ``numpy.random.Philox(seed)``."""
    key = _longs(seeds, 2)
    out = np.empty((-(-count // 4), 4, len(seeds)), np.uint64)
    for block in range(len(out)):
        zero = np.zeros_like(seeds)
        words = [zero + np.uint64(block + 1), zero, zero, zero]
        for turn in range(_ROUNDS):
            steps = [np.uint64(turn * w & (1 << 64) - 1) for w in _WEYL]
            keys = [k + step for k, step in zip(key, steps, strict=True)]
            first, second = _product(words[0], _PHILOX[0]), _product(words[2], _PHILOX[1])
            words = [second[0] ^ words[1] ^ keys[0], second[1], first[0] ^ words[3] ^ keys[1]]
            words.append(first[1])
        out[block] = words
    return out.reshape(-1, len(seeds))[:count]


def sfc64(seeds: Seeds, count: int) -> Longs:
    """The same of ``numpy.random.SFC64(seed)``."""
    a, b, c = _longs(seeds, 3)
    out = np.empty((count, len(seeds)), np.uint64)
    for i in range(-12, count):
        found = a + b + np.uint64(i + 13)
        a, b = b ^ (b >> np.uint64(11)), c + (c << np.uint64(3))
        c = (c << np.uint64(24) | c >> np.uint64(40)) + found
        if i >= 0:
            out[i] = found
    return out


def _longs(seeds: Seeds, count: int) -> list[Longs]:
    mixed = pool(seeds)
    words = [state_word(mixed, i).astype(np.uint64) for i in range(2 * count)]
    return [low | high << np.uint64(32) for low, high in zip(words[::2], words[1::2], strict=True)]


def _started(seeds: Seeds) -> tuple[Pair, Pair]:
    """The state and the increment."""
    a, b, c, d = _longs(seeds, 4)
    step = c << np.uint64(1) | d >> np.uint64(63), d << np.uint64(1) | np.uint64(1)
    return _plus(_times(_plus(step, (a, b)), _PCG), step), step


def _plus(x: Pair, y: Pair) -> Pair:
    low = x[1] + y[1]
    return x[0] + y[0] + (low < x[1]), low


def _times(x: Pair, y: tuple[np.uint64, np.uint64]) -> Pair:
    high, low = _product(x[1], y[1])
    high = high + x[0] * y[1]
    return (high + x[1] * y[0] if y[0] else high), low


def _product(x: Longs, y: np.uint64) -> Pair:
    """Both halves of x·y."""
    x0, x1, y0, y1 = x & _HALF, x >> np.uint64(32), y & _HALF, y >> np.uint64(32)
    low, middle, other = x0 * y0, x1 * y0, x0 * y1
    carry = (low >> np.uint64(32)) + (middle & _HALF) + (other & _HALF)
    high = x1 * y1 + (middle >> np.uint64(32)) + (other >> np.uint64(32)) + (carry >> np.uint64(32))
    return high, x * y
