"""Linear generators of few bits, whose state follows from a few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["REGISTERS", "Register"]

Word = Any
"""A Python integer, or an array of them: the same steps for one state and for many."""

_32, _64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Register:
    """A generator of numbers of ``bits`` bits from a state of ``words`` words of ``wide`` bits.

    ``step`` changes the state and returns a number, linear over GF(2). ``block`` numbers are given
    out together, the last first.
    """

    name: str
    words: int
    wide: int
    bits: int
    step: Callable[[list[Word]], Word]
    block: int = 1


def _xorshift32(state: list[Word]) -> Word:
    x = state[0]
    x = x ^ x << 13 & _32
    x = x ^ x >> 17
    state[0] = x ^ x << 5 & _32
    return state[0]


def _xorshift128(state: list[Word]) -> Word:
    x, y, z, w = state
    t = x ^ x << 11 & _32
    state[:] = y, z, w, w ^ w >> 19 ^ t ^ t >> 8
    return state[3]


def _v8(state: list[Word]) -> Word:
    """Half of xorshift128+'s state, which ``Math.random`` makes a number of 52 bits of."""
    one, two = state
    one = one ^ one << 23 & _64
    state[:] = two, one ^ one >> 17 ^ two ^ two >> 26
    return state[0] >> 12


def _tausworthe(
    parts: Sequence[tuple[int, int, int, int]], full: int, kept: int
) -> Callable[[list[Word]], Word]:
    def step(state: list[Word]) -> Word:
        total = 0
        for i, (left, right, again, mask) in enumerate(parts):
            z = state[i]
            state[i] = (z & mask) << again & full ^ (z << left & full ^ z) >> right
            total = total ^ state[i]
        return total & kept

    return step


_TW223 = ((63, 31, 18), (58, 19, 28), (55, 24, 7), (47, 21, 8))
_luajit = _tausworthe(
    [(q, k - s, s, _64 << (64 - k) & _64) for k, q, s in _TW223], _64, (1 << 52) - 1
)
_taus88 = _tausworthe([(13, 19, 12, _32 - 1), (2, 25, 4, _32 - 7), (3, 11, 17, _32 - 15)], _32, _32)
_lfsr113 = _tausworthe(
    [(6, 13, 18, _32 - 1), (2, 27, 2, _32 - 7), (13, 21, 7, _32 - 15), (3, 12, 13, _32 - 127)],
    _32,
    _32,
)


def _well512(state: list[Word]) -> Word:
    """WELL512a; the newest word comes first."""
    a, c = state[0], state[13]
    b = a ^ c ^ (a << 16 ^ c << 15) & _32
    c = state[9] ^ state[9] >> 11
    a = b ^ c
    d = a ^ a << 5 & 0xDA442D24
    last = state.pop()
    state[0] = a
    state.insert(0, (last ^ b ^ d ^ last << 2 ^ b << 18 ^ c << 28) & _32)
    return state[0]


def _xorshift64(state: list[Word]) -> Word:
    x = state[0]
    x = x ^ x << 13 & _64
    x = x ^ x >> 7
    state[0] = x ^ x << 17 & _64
    return state[0]


def _fifty_three(step: Callable[[list[Word]], Word]) -> Callable[[list[Word]], Word]:
    """27 and 26 bits of two words, as Python and numpy combine them."""

    def both(state: list[Word]) -> Word:
        first = step(state) >> 5
        return first << 26 | step(state) >> 6

    return both


def _low_first(step: Callable[[list[Word]], Word]) -> Callable[[list[Word]], Word]:
    """Two words, as libstdc++'s ``generate_canonical`` combines them."""

    def both(state: list[Word]) -> Word:
        first = step(state)
        return step(state) << 32 | first

    return both


_OF_32_BITS = (
    Register("xorshift32", 1, 32, 32, _xorshift32),
    Register("xorshift128", 4, 32, 32, _xorshift128),
    Register("taus88", 3, 32, 32, _taus88),
    Register("lfsr113", 4, 32, 32, _lfsr113),
    Register("WELL512a", 16, 32, 32, _well512),
)
REGISTERS = (
    Register("TW223, the generator of LuaJIT", 4, 64, 52, _luajit),
    Register("xorshift128+ as V8 gives it (Node, Chrome)", 2, 64, 52, _v8, block=64),
    Register("xorshift64", 1, 64, 64, _xorshift64),
    *_OF_32_BITS,
    *(replace(one, bits=53, step=_fifty_three(one.step)) for one in _OF_32_BITS),
    *(replace(one, bits=64, step=_low_first(one.step)) for one in _OF_32_BITS),
)
