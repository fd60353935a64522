"""Generators under their common seedings: many seeds at once, the first numbers of each.

All functions take seeds (n,) and give words or uniforms in [0, 1), (count, n). numpy's
``SeedSequence`` and the generators that it seeds; the Mersenne Twister, of whose first 227 words
only the state's words 0 … count and 397 … 396 + count are computed (more of them are left to numpy,
one seed after the other); congruential generators and shift registers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.predictable.loops import array_states, step_states
from dpaudit.numeric.generators import tempered

__all__ = [
    "GENERATORS",
    "by_array",
    "by_genrand",
    "by_r",
    "by_seed_sequence",
    "java",
    "pcg64",
    "pcg64_dxsm",
    "philox",
    "pool",
    "sfc64",
]

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
    state, step = _seeded_state(seeds)
    out = np.empty((count, len(seeds)), np.uint64)
    for i in range(count):
        state = _plus(_times(state, _PCG), step)
        mixed, turn = state[0] ^ state[1], state[0] >> np.uint64(58)
        out[i] = mixed >> turn | mixed << (np.uint64(64) - turn & np.uint64(63))
    return out


def pcg64_dxsm(seeds: Seeds, count: int) -> Longs:
    """The same of ``numpy.random.PCG64DXSM(seed)``."""
    state, step = _seeded_state(seeds)
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
        number = a + b + np.uint64(i + 13)
        a, b = b ^ (b >> np.uint64(11)), c + (c << np.uint64(3))
        c = (c << np.uint64(24) | c >> np.uint64(40)) + number
        if i >= 0:
            out[i] = number
    return out


def _longs(seeds: Seeds, count: int) -> list[Longs]:
    mixed = pool(seeds)
    words = [state_word(mixed, i).astype(np.uint64) for i in range(2 * count)]
    return [low | high << np.uint64(32) for low, high in zip(words[::2], words[1::2], strict=True)]


def _seeded_state(seeds: Seeds) -> tuple[Pair, Pair]:
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


_N, _M = 624, 397
_CHUNK = 1 << 8  # seeds whose whole states stay in the cache
_GENRAND, _R = (1812433253, -1), (69069, 1)
_UPPER, _LOWER, _MATRIX = np.uint32(1 << 31), np.uint32((1 << 31) - 1), np.uint32(0x9908B0DF)


def by_genrand(seeds: Seeds, count: int) -> Words:
    """The first ``count`` words (count, n) after ``init_genrand(seed mod 2^32)``.

    So seed ``numpy.random.seed(int)``, ``std::mt19937(seed)`` and ``torch.manual_seed``.
    """
    first = seeds.astype(np.uint32)
    return _words(lambda places: _state_words(first, places, *_GENRAND), count)


def by_r(seeds: Seeds, count: int) -> Words:
    """The same after R's ``set.seed``."""
    first = seeds.astype(np.uint32)
    for _ in range(52):  # 50 to scramble, one for the index, which is then set to 624
        first = first * np.uint32(69069) + np.uint32(1)
    return _words(lambda places: _state_words(first, places, *_R), count)


def by_seed_sequence(seeds: Seeds, count: int) -> Words:
    """The same of ``numpy.random.MT19937(seed)``, whose first word is the state's last."""
    mixed = pool(seeds)
    top = np.full(len(seeds), _UPPER)
    last = tempered(state_word(mixed, _N - 1))[None]
    if count == 1:
        return last
    rest = _words(
        lambda places: np.stack(
            [state_word(mixed, i) if i else top for i in range(places.start, places.stop)]
        ),
        count - 1,
    )
    return np.concatenate([last, rest])


def by_array(seeds: Seeds, count: int) -> Words:
    """The same after ``init_by_array`` of the seed's words, the lowest first.

    So seed Python's ``random.seed(int)`` and Ruby's ``Random.new``.
    """
    out = np.empty((count, len(seeds)), np.uint32)
    long = seeds >> np.uint64(32) != 0
    for mine, words in ((~long, 1), (long, 2)):
        chosen = np.flatnonzero(mine)
        for part in (chosen[i : i + _CHUNK] for i in range(0, len(chosen), _CHUNK)):
            state = _array(seeds[part], words)
            out[:, part] = _words(state.__getitem__, count)
    return out


def _words(state: Callable[[slice], Words], count: int) -> Words:
    """``state(slice)`` gives those words of the state."""
    if count > _N - _M:
        return _continue(state(slice(0, _N)), count)
    both = state(slice(0, count + 1)), state(slice(_M, _M + count))
    y = (both[0][:-1] & _UPPER) | (both[0][1:] & _LOWER)
    x = both[1] ^ (y >> np.uint32(1))
    x ^= (y & np.uint32(1)) * _MATRIX
    return tempered(x)


def _state_words(first: Words, places: slice, factor: int, add: int) -> Words:
    """Words ``places`` of states (m, n) whose words follow from each other, and begin with these.

    ``add`` −1: as ``init_genrand`` does it, where the number of the word is added.
    """
    out = np.empty((places.stop - places.start, len(first)), np.uint32)
    mixes = add < 0
    step_states(first.copy(), np.uint32(factor), np.uint32(max(add, 0)), mixes, places.start, out)
    return out


def _array(seeds: Seeds, words: int) -> Words:
    """The state after ``init_by_array`` of keys of so many words."""
    key = [(seeds >> np.uint64(32 * j)).astype(np.uint32) + np.uint32(j) for j in range(words)]
    start = _state_words(np.array([19650218], np.uint32), slice(0, _N), *_GENRAND)[:, 0]
    state = np.empty((_N, len(seeds)), np.uint32)
    array_states(np.stack(key), np.ascontiguousarray(start), state)
    return state


def _continue(state: Words, count: int) -> Words:
    """Any number of words after a whole state (624, n), one seed after the other."""
    out = np.empty((count, state.shape[1]), np.uint32)
    generator = np.random.MT19937(0)
    for column in range(state.shape[1]):
        key = state[:, column].copy()
        generator.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _N}}
        out[:, column] = generator.random_raw(count)
    return out


Floats = npt.NDArray[np.float64]
Uniforms = Callable[[Seeds, int], Floats]

_FACTOR = 0x5DEECE66D
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


def _of_48_bits(state: Seeds, count: int) -> Floats:
    return _congruential(state, count, factor=_FACTOR, add=11, modulus=1 << 48)


def _drand48(seeds: Seeds, count: int) -> Floats:
    return _of_48_bits((seeds & _HALF) << np.uint64(16) | np.uint64(0x330E), count)


def java(seeds: Seeds, count: int) -> Floats:
    """``new java.util.Random(seed).nextDouble()``: 26 and 27 bits of two numbers."""
    u = _of_48_bits(seeds ^ np.uint64(_FACTOR), 2 * count)
    return np.asarray(
        np.floor(u[::2] * 2.0**26) * 2.0**-26 + np.floor(u[1::2] * 2.0**27) * 2.0**-53
    )


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


def _rotate(x: Seeds, by: int) -> Seeds:
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
            number = _rotate(s[1] * np.uint64(5), 7) * np.uint64(9)
        else:
            number = s[0] + s[3]
            number = number if output == "+" else _rotate(number, 23) + s[0]
        out[i] = _unit(number)
        t = s[1] << np.uint64(17)
        s[2], s[3] = s[2] ^ s[0], s[3] ^ s[1]
        s[1], s[0] = s[1] ^ s[2], s[0] ^ s[3]
        s[2], s[3] = s[2] ^ t, _rotate(s[3], 45)
    return out


def _xoroshiro(seeds: Seeds, count: int) -> Floats:
    a, b = _splitmix_words(seeds, 2)
    out = np.empty((count, len(seeds)))
    for i in range(count):
        out[i] = _unit(a + b)
        b = b ^ a
        a, b = _rotate(a, 24) ^ b ^ (b << np.uint64(16)), _rotate(b, 37)
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


def _bind(function: Callable[..., Floats], **options: object) -> Uniforms:
    return lambda seeds, count: function(seeds, count, **options)


GENERATORS: dict[str, Uniforms] = {
    "minstd 16807": _bind(_congruential, factor=16807, add=0, modulus=2**31 - 1, low=1),
    "minstd 48271": _bind(_congruential, factor=48271, add=0, modulus=2**31 - 1, low=1),
    "std::minstd_rand0": _bind(_canonical, factor=16807),
    "std::minstd_rand": _bind(_canonical, factor=48271),
    "the ANSI C rand, 31 bits": _bind(_congruential, factor=1103515245, add=12345, modulus=2**31),
    "RANDU": _bind(_congruential, factor=65539, add=0, modulus=2**31),
    "Numerical Recipes' 32-bit congruential generator": _bind(
        _congruential, factor=1664525, add=1013904223, modulus=2**32
    ),
    "glibc's rand": _glibc,
    "drand48": _drand48,
    "java.util.Random": java,
    "xorshift32": _bind(_xorshift, bits=32, shifts=(13, 17, 5)),
    "xorshift64": _bind(_xorshift, bits=64, shifts=(13, 7, 17)),
    "splitmix64": _splitmix,
    "xoshiro256**": _bind(_xoshiro, output="**"),
    "xoshiro256++": _bind(_xoshiro, output="++"),
    "xoshiro256+": _bind(_xoshiro, output="+"),
    "xoroshiro128+": _xoroshiro,
    "pcg32": _pcg32,
}
