"""The state of a Mersenne Twister from words of which some bits are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from dpaudit.numeric.generators import jit, tempered

__all__ = ["SPAN", "follows", "recover_state", "relations", "taps", "top_bits_relation"]

Words = npt.NDArray[np.uint32]
Bits = npt.NDArray[np.uint64]

_N, _M = 624, 397
_MATRIX = 0x9908B0DF
_B, _C = np.uint32(0x9D2C5680), np.uint32(0xEFC60000)
SPAN = 19_937
"""The degree of the twister's recurrence over single bits."""
_SPARE = 96  # equations more than unknowns at least: a wrong system fits once in 2^96
_ENOUGH = 20_000  # equations in a row that say nothing new: the rest has no effect on what follows
_MOST = 16_000  # unknown bits: seconds
_TOP = np.uint32(0xFFFFC000)  # the 18 bits that the relation below needs
_KEEPS = 0.02  # of the relations may fail
_LEAST = 48


def recover_state(words: Words, known: Words) -> np.random.MT19937 | None:
    """The generator whose next words are ``words`` (n,), where the masks ``known`` (n,) are set.

    A word of which nothing is known has mask 0. None if the bits contradict each other, or if they
    are fewer than 19,937 and 96 to spare, or 4,000 in the first 624 words. If they come from the
    twister and are all right, its later words are found wherever the bits determine them.

    Each unknown bit of the first 624 words is an unknown over GF(2); later known bits are linear
    equations of them, solved by elimination.
    """
    unknown = 32 * _N - int(np.bitwise_count(known[:_N]).sum())
    if (
        unknown > _MOST
        or len(words) <= _N
        or int(np.bitwise_count(known[_N:]).sum()) < unknown + _SPARE
    ):
        return None
    packed = _solve(words, known, _rows(tempered), _rows(untempered), unknown)
    if not len(packed):
        return None
    solution = np.unpackbits(packed.view(np.uint8), bitorder="little")
    bits = words[:_N, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    open_bits = ~known[:_N, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1) == 1
    bits[open_bits] = solution[:unknown]
    key = untempered((bits << np.arange(32, dtype=np.uint32)).sum(axis=1, dtype=np.uint32))
    generator = np.random.MT19937(0)
    generator.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 0}}
    return generator


def top_bits_relation(words: Words, known: Words) -> bool:
    """Whether the top bits of consecutive words follow from earlier ones, by one sparse relation.

    With ``z = y ^ (y << 15)``, bits 29 and 30 of z are the state's: tempering leaves them so.
    ``z[k + 624] = z[k + 397] ^ z[k + 1] >> 1`` at bit 29, which the matrix does not touch.
    """
    clear = (known & _TOP) == _TOP
    usable = clear[_N:] & clear[_M : _M - _N] & clear[1 : 1 - _N]
    if usable.sum() < _LEAST:
        return False
    z = words ^ (words << np.uint32(15))
    left = (z[_N:] ^ z[_M : _M - _N]) >> np.uint32(29)
    wrong = (left ^ (z[1 : 1 - _N] >> np.uint32(30))) & np.uint32(1)
    return float(wrong[usable].mean()) <= _KEEPS


def relations(
    following: int, middle: int, fresh: int
) -> list[tuple[np.uint32, np.uint32, np.uint32]]:
    """Parities of a recurrence's words of which the bits in these masks are known.

    Masks (a, b, c): the parities of word k + 1 at a, of k + 397 at b and of k + 624 at c add up to
    0, for all k.
    """
    untemper = [int(row) for row in _rows(untempered)]
    # of each bit of the state: its word k + 1, k + 397, k + 624, and bit 31 of word k
    sums = [[0, untemper[i], untemper[i], int(i == 30)] for i in range(32)]
    for i in range(32):
        sums[i][0] ^= untemper[i + 1] if i < 30 else 0
        sums[i][0] ^= untemper[0] if _MATRIX >> i & 1 else 0
    hidden = [(3, 0)]
    for word, mask in enumerate((following, middle, fresh)):
        hidden += [(word, bit) for bit in range(32) if not int(mask) >> bit & 1]
    for word, bit in hidden:
        pivot = next((one for one in sums if one[word] >> bit & 1), None)
        if pivot is not None:
            others = [one for one in sums if one is not pivot]
            sums = [
                [a ^ b for a, b in zip(one, pivot, strict=True)] if one[word] >> bit & 1 else one
                for one in others
            ]
    return [(np.uint32(a), np.uint32(b), np.uint32(c)) for a, b, c, _ in sums]


def follows(bits: npt.NDArray[np.uint8]) -> bool | None:
    """Whether one bit of every word follows the twister's characteristic recurrence.

    Or of every 2^j-th word: squaring permutes the roots. None if there are too few bits.
    """
    count = len(bits) - SPAN
    if count < _LEAST:
        return None
    total = np.zeros(count, np.uint8)
    for tap in taps():
        total ^= bits[tap : tap + count]
    return float(total.mean()) <= 0.25  # errors of single bits count 135 times


@cache
def taps() -> tuple[int, ...]:
    """The 135 exponents of the characteristic polynomial.

    With ``t = x^624 + x^397`` and ``s = x^623 + x^396`` it is the sum of ``t s^31``, of
    ``t s^(30 - i)`` for each set bit i < 31 of the matrix's row, and of 1 for bit 31 (Matsumoto and
    Nishimura 1998, appendix A).
    """
    powers = [1]  # of s, as bits of an integer
    for _ in range(31):
        powers.append(powers[-1] << (_N - 1) ^ powers[-1] << (_M - 1))
    chosen = [powers[31], *(powers[30 - i] for i in range(31) if _MATRIX >> i & 1)]
    total = _MATRIX >> 31 & 1
    for power in chosen:
        total ^= power << _N ^ power << _M
    return tuple(i for i in range(SPAN + 1) if total >> i & 1)


def untempered(y: Words) -> Words:
    """The words of the state that give this output."""
    y = y ^ (y >> np.uint32(18))
    y ^= (y << np.uint32(15)) & _C
    x = y
    for _ in range(4):
        x = y ^ ((x << np.uint32(7)) & _B)
    y = x
    for _ in range(2):
        x = y ^ (x >> np.uint32(11))
    return np.asarray(x)


def _rows(of: Callable[[Words], Words]) -> Words:
    """A linear map of words as masks: bit b of its result is the parity of the word at row b."""
    bit = np.arange(32, dtype=np.uint32)
    columns = of(np.uint32(1) << bit)
    return np.asarray(((columns[None] >> bit[:, None] & np.uint32(1)) << bit).sum(1, np.uint32))


@jit  # type: ignore[untyped-decorator]
def _solve(words: Words, known: Words, temper: Words, untemper: Words, unknown: int) -> Bits:
    """The unknown bits, packed, those left open 0; nothing if the known ones contradict.

    Row ``basis[c]`` has its first bit at column c; column ``unknown`` stands for 1.
    """
    width = (unknown >> 6) + 1
    one, at = np.uint64(1), unknown >> 6
    constant = one << np.uint64(unknown & 63)
    state = _symbols(words, known, untemper, unknown)
    basis = np.zeros((unknown, width), np.uint64)
    rank = spare = 0
    fresh = np.empty((32, width), np.uint64)
    row = np.empty(width, np.uint64)
    for k in range(_N, len(words)):
        old, following, middle = k % _N, (k + 1) % _N, (k + _M) % _N
        for i in range(32):
            fresh[i] = state[middle, i]
            if i == 30:
                fresh[i] ^= state[old, 31]
            elif i < 30:
                fresh[i] ^= state[following, i + 1]
            if _MATRIX >> i & 1:
                fresh[i] ^= state[following, 0]
        state[old] = fresh
        for bit in range(32):
            if not known[k] >> np.uint32(bit) & np.uint32(1):
                continue
            row[:] = 0
            if words[k] >> np.uint32(bit) & np.uint32(1):
                row[at] = constant
            for i in range(32):
                if temper[bit] >> np.uint32(i) & np.uint32(1):
                    row ^= fresh[i]
            column = _reduce(row, basis)
            if column == unknown:
                return np.empty(0, np.uint64)
            if column < 0:
                spare += rank + 64 > unknown
            else:
                basis[column] = row
                rank += 1
                spare = 0
        if spare >= _ENOUGH:
            break
    return np.asarray(_substitute(basis, unknown))


@jit  # type: ignore[untyped-decorator]
def _symbols(words: Words, known: Words, untemper: Words, unknown: int) -> Bits:
    """The first 624 words of the state, each bit a sum of unknowns: (624, 32, width)."""
    state = np.zeros((_N, 32, (unknown >> 6) + 1), np.uint64)
    place = 0
    for k in range(_N):
        for bit in range(32):
            column, value = place, np.uint32(1)
            if known[k] >> np.uint32(bit) & np.uint32(1):
                column, value = unknown, words[k] >> np.uint32(bit) & np.uint32(1)
            else:
                place += 1
            term = np.uint64(value) << np.uint64(column & 63)
            for i in range(32):
                if untemper[i] >> np.uint32(bit) & np.uint32(1):
                    state[k, i, column >> 6] ^= term
    return state


@jit  # type: ignore[untyped-decorator]
def _reduce(row: Bits, basis: Bits) -> int:
    """Reduce ``row`` by ``basis`` in place; its first column then, which has no row; −1 if none."""
    width, count = len(row), len(basis)
    for word in range(width):
        while row[word]:
            lowest = row[word] & (~row[word] + np.uint64(1))
            bit = 0
            for shift in (32, 16, 8, 4, 2, 1):
                if lowest >> np.uint64(shift):
                    lowest >>= np.uint64(shift)
                    bit += shift
            column = 64 * word + bit
            if column >= count or not basis[column, word] >> np.uint64(bit) & np.uint64(1):
                return column
            for i in range(word, width):
                row[i] ^= basis[column, i]
    return -1


@jit  # type: ignore[untyped-decorator]
def _substitute(basis: Bits, unknown: int) -> Bits:
    width = basis.shape[1]
    solution = np.zeros(width, np.uint64)
    solution[unknown >> 6] = np.uint64(1) << np.uint64(unknown & 63)
    for column in range(unknown - 1, -1, -1):
        total = np.uint64(0)
        for i in range(column >> 6, width):
            total ^= basis[column, i] & solution[i]
        for shift in (32, 16, 8, 4, 2, 1):
            total ^= total >> np.uint64(shift)
        solution[column >> 6] |= (total & np.uint64(1)) << np.uint64(column & 63)
    return solution
