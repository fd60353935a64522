"""Linear generators behind the polar method, which rejects some pairs of their numbers.

Its outputs have no fixed places in the generator's sequence, so no recurrence is learned. But three
to ten pairs in a row, none rejected in between (a gap is empty with probability π/4), give the
state of a *known* generator: linear equations over GF(2), with some to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.predictable.windows import TOLERANCE
from dpaudit.numeric import generators
from dpaudit.numeric.generators import Words, Words64

__all__ = ["REGISTERS", "Register", "Replay", "find_replay", "use_once"]

Array = npt.NDArray[np.float64]

_ALIKE = 2.0**-16  # an honest value lies within the tolerance of a number at most so often
_SPARE = 40  # equations more than unknowns
_DEEPEST = 40  # bits of a uniform that survive the polar method and the way back
_SAFE = 28  # of 32, whatever they were divided by
_STARTS = 256
_MOST_PAIRS = 16  # in a row
_HELD_OUT = 1_000
_GLANCE = 8
_TRIES = 16  # pairs of numbers per normal
_FITS = 400  # states that are tried


@dataclass(frozen=True, slots=True)
class Register:
    """A generator, linear over GF(2), of numbers of ``bits`` bits.

    Its state has ``words`` words of ``wide`` bits; ``start`` runs it on from one. A number is made
    of ``each`` words: ``join``. ``block`` numbers are given out together, the last first.
    """

    name: str
    words: int
    wide: int
    bits: int
    start: Callable[[Words64], Words]
    each: int = 1
    join: Callable[[Words64], Words64] = np.asarray
    block: int = 1

    def numbers(self, state: Iterable[int]) -> Words:
        """The numbers from a state on, in the order made: all m of each call that asks for m."""
        generate = self.start(np.array(state, np.uint64))
        return lambda m: self.join(generate(self.each * m))


def _fifty_three(w: Words64) -> Words64:
    """27 and 26 bits of two words, as Python and numpy combine them."""
    return w[::2] >> np.uint64(5) << np.uint64(26) | w[1::2] >> np.uint64(6)


def _low_first(w: Words64) -> Words64:
    """Two words, as libstdc++'s ``generate_canonical`` combines them."""
    return w[1::2] << np.uint64(32) | w[::2]


_taus88 = partial(generators.tausworthe, size=32, parts=generators.TAUS88)
_lfsr113 = partial(generators.tausworthe, size=32, parts=generators.LFSR113)
_luajit = partial(generators.tausworthe, size=64, parts=generators.TW223)
_v8 = partial(generators.xorshift128_plus, added=False)
_OF_32_BITS = (
    Register("xorshift32", 1, 32, 32, generators.xorshift32),
    Register("xorshift128", 4, 32, 32, generators.xorshift128),
    Register("taus88", 3, 32, 32, _taus88),
    Register("lfsr113", 4, 32, 32, _lfsr113),
    Register("WELL512a", 16, 32, 32, generators.well512),
)
REGISTERS = (
    Register(
        "TW223, the generator of LuaJIT", 4, 64, 52, _luajit,
        join=lambda w: w & np.uint64((1 << 52) - 1),
    ),
    Register(
        "xorshift128+ as V8 gives it (Node, Chrome)", 2, 64, 52, _v8,
        join=lambda w: w >> np.uint64(12), block=64,
    ),
    Register("xorshift64", 1, 64, 64, generators.xorshift64),
    *_OF_32_BITS,
    *(replace(one, bits=53, each=2, join=_fifty_three) for one in _OF_32_BITS),
    *(replace(one, bits=64, each=2, join=_low_first) for one in _OF_32_BITS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Replay:
    """A generator gives ``hits`` of the ``held_out`` values after those it was learned from."""

    generator: str
    learned_from: int
    hits: int
    held_out: int
    p: float


def find_replay(z: Array) -> Replay | None:
    """The first known generator whose state, learned from pairs of ``z``, gives later values.

    p-value: a prediction that is made of earlier values meets an honest later one with probability
    at most 2^-16 (see ``predictable``), so the hits are at most binomial; times all tries.
    """
    tries = 8 * _STARTS * len(REGISTERS)
    fits = 0
    for phase, swapped, mirrored in product((0, 1), (False, True), (False, True)):
        normals = -z[phase:] if mirrored else z[phase:]
        pairs = normals[: len(normals) // 2 * 2].reshape(-1, 2)
        uniforms = _uniforms(pairs[: _STARTS + _MOST_PAIRS, :: -1 if swapped else 1])
        leading_bits = {depth: _leading(uniforms, depth) for depth in (_SAFE, _DEEPEST)}
        for register in REGISTERS:
            system = _system(register)
            for start, state in system.states(leading_bits[system.depth]):
                fits += 1
                if fits > _FITS:
                    return None
                first = start + system.pairs
                later = pairs[first:].ravel()[:_HELD_OUT]
                hits = _hits(system, state, later, swapped=swapped)
                if hits:
                    p = min(1.0, tries * float(scipy.special.bdtrc(hits - 1, len(later), _ALIKE)))
                    return Replay(register.name, 2 * first + phase, hits, len(later), p)
    return None


def _uniforms(pairs: Array) -> Array:
    """The two uniforms of each accepted pair, shape (m, 2)."""
    with np.errstate(all="ignore"):
        squared = (pairs**2).sum(axis=1, keepdims=True)
        v = pairs * np.exp(-0.25 * squared) / np.sqrt(squared)
    return np.asarray(np.clip(np.nan_to_num(0.5 + 0.5 * v, nan=0.5), 0.0, 1.0))


def _leading(uniforms: Array, depth: int) -> list[int]:
    """The leading bits of the two uniforms of each pair, the first one's lowest."""
    scaled = np.floor((uniforms + 2.0 ** -(depth + 6)) * 2.0**depth)
    digits = np.clip(scaled, 0, 2**depth - 1).astype(np.int64)
    return [first | second << depth for first, second in digits.tolist()]


def _hits(system: _System, state: list[int], later: Array, *, swapped: bool) -> int:
    """How many of ``later`` follow from a state; none if the first few do not."""
    for part in (later[:_GLANCE], later):
        predicted = _polar(system, state, swapped=swapped, count=len(part))
        part = part[: len(predicted)]
        near = np.abs(predicted - part) <= TOLERANCE * np.maximum(np.abs(part), 1.0)
        hits = int(np.count_nonzero(near))
        if hits < _GLANCE:
            return 0
    return hits


def _polar(system: _System, state: list[int], *, swapped: bool, count: int) -> Array:
    """The first normals (n,) that follow the pairs that a state was learned from.

    n is ``count``, less if hardly any pair is accepted. Where blocks are given out backwards, the
    last word of one was learned first.
    """
    register = system.register
    generate = register.numbers(state)
    generate(max(2 * system.pairs, register.block) if register.block > 1 else 2 * system.pairs)
    if register.block > 1:
        generate = generators.reversed_blocks(generate, register.block)
    v = 2 * (generate(2 * _TRIES * count).reshape(-1, 2) * 2.0**-register.bits) - 1
    s = v[:, 0] ** 2 + v[:, 1] ** 2
    inside = (s > 0) & (s < 1)
    v, s = v[inside], s[inside]
    normals = v * np.sqrt(-2 * np.log(s) / s)[:, None]
    return np.asarray(normals[:, :: -1 if swapped else 1].ravel()[:count])


@dataclass(frozen=True, slots=True)
class _System:
    """Linear equations between a state and the leading ``depth`` bits of a few words after it."""

    register: Register
    pairs: int
    depth: int
    checks: tuple[int, ...]  # known bits whose sum is 0
    solved: tuple[tuple[int, int, int], ...]  # bit of the state, other bits, known bits

    def states(self, bits: list[int]) -> Iterator[tuple[int, list[int]]]:
        """Starts of pairs that this generator gives, none rejected in between, and its states."""
        wide = 2 * self.depth
        last = (self.pairs - 1) * wide
        window = 0
        for end, pair in enumerate(bits[: _STARTS + self.pairs - 1]):
            window = window >> wide | pair << last
            start = end + 1 - self.pairs
            if start >= 0 and not any((window & c).bit_count() & 1 for c in self.checks):
                yield start, self._state(window)

    def _state(self, window: int) -> list[int]:
        bits = 0
        for place, others, sources in self.solved:
            bits |= (((window & sources).bit_count() + (bits & others).bit_count()) & 1) << place
        wide = self.register.wide
        return [bits >> i * wide & (1 << wide) - 1 for i in range(self.register.words)]


@cache
def _system(register: Register) -> _System:
    """As few pairs as tell all of the state that matters, with equations to spare."""
    depth = _SAFE if register.bits == 32 else _DEEPEST
    pairs = -(-(register.words * register.wide + _SPARE) // (2 * depth))
    system = _solve(register, pairs, depth)
    while len((more := _solve(register, system.pairs + 1, depth)).solved) > len(system.solved):
        system = more
    return system


def _solve(register: Register, pairs: int, depth: int) -> _System:
    basis: dict[int, tuple[int, int]] = {}
    checks = []
    for number, row in enumerate(_equations(register, 2 * pairs, depth)):
        sources = 1 << number
        while row:
            top = row.bit_length() - 1
            if top not in basis:
                basis[top] = row, sources
                break
            row ^= basis[top][0]
            sources ^= basis[top][1]
        else:
            checks.append(sources)
    solved = tuple((top, row ^ 1 << top, sources) for top, (row, sources) in sorted(basis.items()))
    return _System(register, pairs, depth, tuple(checks), solved)


def _equations(register: Register, count: int, depth: int) -> Iterator[int]:
    """Which bits of the state make each leading bit of the next words, the lowest bit first."""
    units = register.join(_words_of_units(register.start, register.words, register.wide))
    words = list(units[:count] >> np.uint64(register.bits - depth))
    for word in reversed(words) if register.block > 1 else words:
        for place in range(depth):
            bits = (word >> np.uint64(place) & np.uint64(1)).astype(np.uint8)
            yield int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


@cache
def _words_of_units(start: Callable[[Words64], Words], words: int, wide: int) -> Words64:
    """The words (64, n) after each state in which one of n bits is set, the n-th in the n-th."""
    units = np.zeros((words * wide, words), np.uint64)
    place = np.arange(len(units))
    units[place, place // wide] = np.uint64(1) << (place % wide).astype(np.uint64)
    return np.stack([start(unit)(4 * _MOST_PAIRS) for unit in units], axis=1)


def use_once() -> None:
    """Call each loop of the test, here and elsewhere, on a few values: numba compiles then."""
    from dpaudit.audit.battery.predictable import loops

    loops.use_once()
    for register in REGISTERS:
        register.numbers(range(register.words))(1)
