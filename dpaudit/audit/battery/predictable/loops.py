"""Compiled loops over bits and words of generators."""

from __future__ import annotations

import numpy as np

from dpaudit.numeric.random_words import jit

__all__ = [
    "array_states",
    "find_marked",
    "hashes",
    "mark",
    "polar",
    "recurrence",
    "step_states",
    "use_once",
]

_N = 624


@jit
def recurrence(bits, taps):  # type: ignore[no-untyped-def]
    """Length of the shortest recurrence of ``bits`` (Massey 1969).

    ``taps``, of zeros, two words more than the bits fill: bit i is set if the bit i before counts.
    """
    n = len(bits)
    length_in_words = (n + 63) // 64 + 2
    backwards = np.zeros(length_in_words + 1, np.uint64)  # bit n − 1 − i is number i
    for i in range(n):
        if bits[i]:
            at = n - 1 - i
            backwards[at >> 6] |= np.uint64(1) << np.uint64(at & 63)
    before = np.zeros(length_in_words, np.uint64)
    spare = np.zeros(length_in_words, np.uint64)
    taps[0] = before[0] = np.uint64(1)
    length, since, used = 0, 1, 1
    for i in range(n):
        at = n - 1 - i
        first, shift = at >> 6, np.uint64(at & 63)
        odd = np.uint64(0)
        many = length // 64 + 1
        near, next_one = backwards[first : first + many], backwards[first + 1 : first + 1 + many]
        if shift:
            back = np.uint64(64) - shift
            for j in range(many):
                odd ^= taps[j] & ((near[j] >> shift) | (next_one[j] << back))
        else:
            for j in range(many):
                odd ^= taps[j] & near[j]
        for half in (32, 16, 8, 4, 2, 1):
            odd ^= odd >> np.uint64(half)
        if not odd & np.uint64(1):
            since += 1
            continue
        grows = 2 * length <= i
        if grows:
            spare[:many] = taps[:many]
        words_on, shift = since >> 6, np.uint64(since & 63)
        last = min(used, length_in_words - words_on - 1)
        higher = taps[words_on : words_on + last + 1]
        if shift:
            back = np.uint64(64) - shift
            higher[0] ^= before[0] << shift
            for j in range(1, last):
                higher[j] ^= (before[j] << shift) | (before[j - 1] >> back)
            higher[last] ^= before[last - 1] >> back
        else:
            for j in range(last):
                higher[j] ^= before[j]
        if grows:
            length, since, used = i + 1 - length, 1, many
            before[:many] = spare[:many]
        else:
            since += 1
    return length


@jit
def step_states(first, factor, add, mixes, start, out):  # type: ignore[no-untyped-def]
    """Words ``start`` … of states (m, n): x = factor·(x ^ x >> 30 if ``mixes``) + add (or number).

    ``first`` holds word 0 of each, and is changed.
    """
    stop = start + len(out)
    for begin in range(0, len(first), 512):
        x = first[begin : begin + 512]
        for i in range(stop):
            if i:
                term = np.uint32(i) if mixes else add
                for j in range(len(x)):
                    word = x[j]
                    if mixes:
                        word ^= word >> np.uint32(30)
                    x[j] = np.uint32(word * factor + term)
            if i >= start:
                out[i - start, begin : begin + 512] = x


@jit
def array_states(key, start, state):  # type: ignore[no-untyped-def]
    """MT19937's state (624, n) after ``init_by_array`` of keys (words, n) and their numbers.

    ``start`` (624,) is the state after ``init_genrand(19650218)``.
    """
    words, many = key.shape
    for i in range(_N):
        state[i] = start[i]
    at = 1
    for k in range(_N):
        add = key[k % words]
        last, here = state[at - 1], state[at]
        for j in range(many):
            x = last[j] ^ (last[j] >> np.uint32(30))
            here[j] = np.uint32((here[j] ^ np.uint32(x * np.uint32(1664525))) + add[j])
        at += 1
        if at == _N:
            state[0] = state[_N - 1]
            at = 1
    for _ in range(_N - 1):
        last, here, less = state[at - 1], state[at], np.uint32(at)
        for j in range(many):
            x = last[j] ^ (last[j] >> np.uint32(30))
            here[j] = np.uint32((here[j] ^ np.uint32(x * np.uint32(1566083941))) - less)
        at += 1
        if at == _N:
            state[0] = state[_N - 1]
            at = 1
    state[0] = np.uint32(1 << 31)


@jit
def _hash(a, b, c, cells):  # type: ignore[no-untyped-def]
    total = np.uint64(np.int64(np.floor(a * cells))) * np.uint64(0x9E3779B97F4A7C15)
    total += np.uint64(np.int64(np.floor(b * cells))) * np.uint64(0xC2B2AE3D27D4EB4F)
    total += np.uint64(np.int64(np.floor(c * cells))) * np.uint64(0x165667B19E3779F9)
    total ^= total >> np.uint64(29)
    return total * np.uint64(0xBF58476D1CE4E5B9)


@jit
def hashes(values, cells, out):  # type: ignore[no-untyped-def]
    """Hashes (n,) of the cells, ``cells`` to a unit, in which three values (3, n) lie."""
    for i in range(len(out)):
        out[i] = _hash(values[0, i], values[1, i], values[2, i], cells)


@jit
def mark(hash_values, shift, marks):  # type: ignore[no-untyped-def]
    """Set the bit of each hash's leading 64 − ``shift`` bits."""
    for word in hash_values:
        at = word >> shift
        marks[at >> np.uint64(6)] |= np.uint64(1) << (at & np.uint64(63))


@jit
def find_marked(values, cells, marks, shift, places, out):  # type: ignore[no-untyped-def]
    """Columns of ``values`` (3 or 2, n) whose hash is marked, and these hashes; their number.

    ``marks`` has a bit for each of the leading 64 − ``shift`` bits of a hash.
    """
    count, three = 0, len(values) > 2
    for i in range(values.shape[1]):
        word = _hash(values[0, i], values[1, i], values[2, i] if three else 0.0, cells)
        at = word >> shift
        if marks[at >> np.uint64(6)] >> (at & np.uint64(63)) & np.uint64(1):
            places[count], out[count] = i, word
            count += 1
    return count


@jit
def polar(u, out, second_first):  # type: ignore[no-untyped-def]
    """Magnitudes (count, n) of Marsaglia's polar method from uniforms (m, n) of n seeds.

    Not a number where they are too few.
    """
    count = len(out)
    for j in range(u.shape[1]):
        row = 0
        for i in range(0, len(u) - 1, 2):
            if row >= count:
                break
            x, y = 2 * u[i, j] - 1, 2 * u[i + 1, j] - 1
            square = x * x + y * y
            if square >= 1 or square == 0:
                continue
            factor = np.sqrt(-2 * np.log(square) / square)
            out[row, j] = abs(y if second_first else x) * factor
            if row + 1 < count:
                out[row + 1, j] = abs(x if second_first else y) * factor
            row += 2
        for i in range(row, count):
            out[i, j] = np.nan


def use_once() -> None:
    """Call each loop on a few values: numba imports much of itself, and compiles, on first use."""
    recurrence(np.zeros(64, np.uint8), np.zeros(3, np.uint64))
    words = np.zeros((2, 8), np.uint32)
    one = np.uint32(1)
    step_states(words[0], one, one, True, 0, np.zeros((2, 8), np.uint32))
    state = np.zeros((_N, 8), np.uint32)
    array_states(words, state[:, 0].copy(), state)
    three, places = np.ones((3, 8)), np.zeros(8, np.int64)
    hashes(three, 2.0, places.view(np.uint64))
    mark(places.view(np.uint64), np.uint64(57), np.zeros(2, np.uint64))
    find_marked(three, 2.0, np.zeros(2, np.uint64), np.uint64(57), places, places.view(np.uint64))
    polar(three, three.copy(), False)
