"""Linear generators behind the polar method, which rejects some pairs of their numbers.

Its outputs have no fixed places in the generator's sequence, so no recurrence is learned. But three
to ten pairs in a row, none rejected in between (a gap is empty with probability π/4), give the
state of a *known* generator: linear equations over GF(2), with some to spare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, product

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery.predictable.linear.registers import REGISTERS, Register
from dpaudit.audit.battery.predictable.windows import TOLERANCE

__all__ = ["Replay", "replayed"]

Array = npt.NDArray[np.float64]

_ALIKE = 2.0**-16  # an honest value lies within the tolerance of a number at most so often
_SPARE = 40  # equations more than unknowns
_DEEPEST = 40  # bits of a uniform that survive the polar method and the way back
_SAFE = 28  # of 32, whatever they were divided by
_STARTS = 256
_MOST_PAIRS = 16  # in a row
_HELD_OUT = 1_000
_GLANCE = 8
_FITS = 400  # states that are tried


@dataclass(frozen=True, slots=True)
class Replay:
    """A generator gives ``hits`` of the ``held_out`` values after those it was learned from."""

    generator: str
    learned_from: int
    hits: int
    held_out: int
    p: float


def replayed(z: Array) -> Replay | None:
    """The first known generator whose state, learned from pairs of ``z``, gives later values.

    p-value: a prediction that is made of earlier values meets an honest later one with probability
    at most 2^-16 (see ``predictable``), so the hits are at most binomial; times all tries.
    """
    tries = 8 * _STARTS * len(REGISTERS)
    fits = 0
    for phase, swapped, mirrored in product((0, 1), (False, True), (False, True)):
        made = -z[phase:] if mirrored else z[phase:]
        pairs = made[: len(made) // 2 * 2].reshape(-1, 2)
        uniforms = _uniforms(pairs[: _STARTS + _MOST_PAIRS, :: -1 if swapped else 1])
        known = {depth: _leading(uniforms, depth) for depth in (_SAFE, _DEEPEST)}
        for register in REGISTERS:
            system = _system(register)
            for start, state in system.states(known[system.depth]):
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
    words = np.clip(scaled, 0, 2**depth - 1).astype(np.int64)
    return [first | second << depth for first, second in words.tolist()]


def _hits(system: _System, state: list[int], later: Array, *, swapped: bool) -> int:
    """How many of ``later`` follow from a state; none if the first few do not."""
    for part in (later[:_GLANCE], later):
        given = islice(_polar(system, state, swapped=swapped, tries=16 * len(part)), len(part))
        wanted = np.array(list(given))
        part = part[: len(wanted)]
        near = np.abs(wanted - part) <= TOLERANCE * np.maximum(np.abs(part), 1.0)
        hits = int(np.count_nonzero(near))
        if hits < _GLANCE:
            return 0
    return hits


def _polar(system: _System, state: list[int], *, swapped: bool, tries: int) -> Iterator[float]:
    """The normals that follow the pairs that a state was learned from."""
    numbers = _numbers(system.register, state, after=2 * system.pairs)
    for _ in range(tries):
        v, w = (2 * next(numbers) - 1 for _ in range(2))
        s = v * v + w * w
        if 0 < s < 1:
            factor = math.sqrt(-2 * math.log(s) / s)
            yield from (w * factor, v * factor) if swapped else (v * factor, w * factor)


def _numbers(register: Register, state: list[int], *, after: int) -> Iterator[float]:
    """Uniforms; where blocks are given out backwards, the last word of one was learned first."""
    state = list(state)
    for _ in range(max(after, register.block) if register.block > 1 else after):
        register.step(state)
    while True:
        block = [register.step(state) for _ in range(register.block)]
        yield from (word * 2.0**-register.bits for word in reversed(block))


@dataclass(frozen=True, slots=True)
class _System:
    """Linear equations between a state and the leading ``depth`` bits of a few words after it."""

    register: Register
    pairs: int
    depth: int
    checks: tuple[int, ...]  # known bits whose sum is 0
    solved: tuple[tuple[int, int, int], ...]  # bit of the state, other bits, known bits

    def states(self, known: list[int]) -> Iterator[tuple[int, list[int]]]:
        """Starts of pairs that this generator gives, none rejected in between, and its states."""
        wide = 2 * self.depth
        last = (self.pairs - 1) * wide
        window = 0
        for end, pair in enumerate(known[: _STARTS + self.pairs - 1]):
            window = window >> wide | pair << last
            start = end + 1 - self.pairs
            if start >= 0 and not any((window & c).bit_count() & 1 for c in self.checks):
                yield start, self._state(window)

    def _state(self, known: int) -> list[int]:
        bits = 0
        for place, others, sources in self.solved:
            bits |= (((known & sources).bit_count() + (bits & others).bit_count()) & 1) << place
        wide = self.register.wide
        return [bits >> i * wide & (1 << wide) - 1 for i in range(self.register.words)]


@cache
def _system(register: Register) -> _System:
    """As few pairs as tell all of the state that matters, with equations to spare."""
    depth = _SAFE if register.bits == 32 else _DEEPEST
    pairs = -(-(register.words * register.wide + _SPARE) // (2 * depth))
    found = _solved(register, pairs, depth)
    while len((more := _solved(register, found.pairs + 1, depth)).solved) > len(found.solved):
        found = more
    return found


def _solved(register: Register, pairs: int, depth: int) -> _System:
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
    unknowns = register.words * register.wide
    places = np.arange(unknowns)
    one = np.uint64(1) << (places % register.wide).astype(np.uint64)
    state = [
        np.where(places // register.wide == i, one, np.uint64(0)) for i in range(register.words)
    ]
    words = [register.step(state) >> (register.bits - depth) for _ in range(count)]
    for word in reversed(words) if register.block > 1 else words:
        for place in range(depth):
            bits = (word >> np.uint64(place) & np.uint64(1)).astype(np.uint8)
            yield int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
