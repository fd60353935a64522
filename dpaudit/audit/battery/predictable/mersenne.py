"""The Mersenne Twister under its common seedings: many seeds at once, the first words of each.

The first 227 words need the state's words 0 … count and 397 … 396 + count only; more of them are
left to numpy, one seed after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.predictable.seed_sequence import pool, state_word

__all__ = ["by_array", "by_genrand", "by_r", "by_seed_sequence"]

Seeds = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]

_N, _M = 624, 397
_CHUNK = 1 << 8  # seeds whose whole states stay in the cache
_GENRAND, _R = (1812433253, -1), (69069, 1)
_UPPER, _LOWER, _MATRIX = np.uint32(1 << 31), np.uint32((1 << 31) - 1), np.uint32(0x9908B0DF)


def by_genrand(seeds: Seeds, count: int) -> Words:
    """The first ``count`` words (count, n) after ``init_genrand(seed mod 2^32)``.

    So seed ``numpy.random.seed(int)``, ``std::mt19937(seed)`` and ``torch.manual_seed``.
    """
    first = seeds.astype(np.uint32)
    return _words(lambda wanted: _kept(first, wanted, *_GENRAND), count)


def by_r(seeds: Seeds, count: int) -> Words:
    """The same after R's ``set.seed``."""
    first = seeds.astype(np.uint32)
    for _ in range(52):  # 50 to scramble, one for the index, which is then set to 624
        first = first * np.uint32(69069) + np.uint32(1)
    return _words(lambda wanted: _kept(first, wanted, *_R), count)


def by_seed_sequence(seeds: Seeds, count: int) -> Words:
    """The same of ``numpy.random.MT19937(seed)``, whose first word is the state's last."""
    mixed = pool(seeds)
    top = np.full(len(seeds), _UPPER)
    last = _tempered(state_word(mixed, _N - 1))[None]
    if count == 1:
        return last
    rest = _words(
        lambda wanted: np.stack(
            [state_word(mixed, i) if i else top for i in range(wanted.start, wanted.stop)]
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
        return _continued(state(slice(0, _N)), count)
    both = state(slice(0, count + 1)), state(slice(_M, _M + count))
    y = (both[0][:-1] & _UPPER) | (both[0][1:] & _LOWER)
    x = both[1] ^ (y >> np.uint32(1))
    x ^= (y & np.uint32(1)) * _MATRIX
    return _tempered(x)


def _kept(first: Words, wanted: slice, factor: int, add: int) -> Words:
    """Words ``wanted`` of states (m, n) whose words follow from each other, and begin with these.

    ``add`` −1: as ``init_genrand`` does it, where the number of the word is added.
    """
    from dpaudit.audit.battery.predictable.loops import stepped  # loads a compiler

    out = np.empty((wanted.stop - wanted.start, len(first)), np.uint32)
    mixes = add < 0
    stepped(first.copy(), np.uint32(factor), np.uint32(max(add, 0)), mixes, wanted.start, out)
    return out


def _array(seeds: Seeds, words: int) -> Words:
    """The state after ``init_by_array`` of keys of so many words."""
    from dpaudit.audit.battery.predictable.loops import array_states  # loads a compiler

    key = [(seeds >> np.uint64(32 * j)).astype(np.uint32) + np.uint32(j) for j in range(words)]
    start = _kept(np.array([19650218], np.uint32), slice(0, _N), *_GENRAND)[:, 0]
    state = np.empty((_N, len(seeds)), np.uint32)
    array_states(np.stack(key), np.ascontiguousarray(start), state)
    return state


def _tempered(x: Words) -> Words:
    x = x ^ (x >> np.uint32(11))
    x ^= (x << np.uint32(7)) & np.uint32(0x9D2C5680)
    x ^= (x << np.uint32(15)) & np.uint32(0xEFC60000)
    return np.asarray(x ^ (x >> np.uint32(18)))


def _continued(state: Words, count: int) -> Words:
    """Any number of words after a whole state (624, n), one seed after the other."""
    out = np.empty((count, state.shape[1]), np.uint32)
    generator = np.random.MT19937(0)
    for column in range(state.shape[1]):
        key = state[:, column].copy()
        generator.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _N}}
        out[:, column] = generator.random_raw(count)
    return out
