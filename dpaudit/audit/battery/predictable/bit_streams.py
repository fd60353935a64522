"""Bits that a linear generator would show: of values, of the uniforms behind them, of pairs.

Stretches of noise are kept in the order drawn, as a generator's numbers follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.claims import Claim
from dpaudit.protocols import Block

__all__ = ["BitStream", "Stretches", "bit_streams"]

Array = npt.NDArray[np.float64]

LONGEST = 42_000 * 16
"""Values of a run: 42,000 bits of every 16th one, enough to learn a Mersenne Twister."""
_FIRST = 1 << 17
_HEADS = 1 << 17
_BEGINNING = 1 << 13


class Stretches:
    """What is kept of a sampler's process: about 12 MB at most.

    The *first* 131,072 values, whatever they were drawn for; the longest *run* of long calls in one
    dimension, up to 672,000 values, the last one of several that are equally long; and the *heads*:
    the first value of each of many short calls of one shape.
    """

    def __init__(self) -> None:
        self._first: list[Array] = []
        self._room = _FIRST
        self._runs: dict[str, list[Array]] = {"longest": [], "latest": []}
        self._heads: dict[tuple[int, int], list[Array]] = {}

    def add(self, block: Block) -> None:
        """Take in one block."""
        if self._room:
            self._first.append(block.values.ravel()[: self._room].copy())
            self._room -= self._first[-1].size
        if block.calls == 1:
            self._continue(block.values)
            return
        self._runs["latest"] = []
        n = len(block.values) // block.calls
        heads = self._heads.setdefault((n, block.values.shape[1]), [])
        if sum(map(len, heads)) < _HEADS:
            heads.append(block.values[::n, 0].copy())

    def _continue(self, values: Array) -> None:
        latest, d = self._runs["latest"], values.shape[1]
        if latest and latest[0].shape[1] != d:
            latest = self._runs["latest"] = []
        room = LONGEST - _size(latest)
        if room > 0:
            latest.append(values[: -(-room // d)].copy())
        if _size(latest) >= _size(self._runs["longest"]):
            self._runs["longest"] = latest

    @property
    def first(self) -> Array:
        """The first values of the process, shape (m,)."""
        return _join(self._first)

    @property
    def beginning(self) -> Array:
        """The first values of the longest run, or else of all, at most 8,192, shape (m,)."""
        return _join(self.run[:1] or self._first)[:_BEGINNING]

    @property
    def run(self) -> list[Array]:
        """The longest run, call by call: shapes (n, d) of one d."""
        return self._runs["longest"]

    @property
    def heads(self) -> tuple[int, Array]:
        """Values per short call, and the first of each, in order, shape (m,)."""
        (n, d), heads = max(
            self._heads.items(),
            key=lambda item: _size(item[1]),
            default=((1, 1), []),
        )
        return n * d, _join(heads)


def _size(parts: list[Array]) -> int:
    return sum(part.size for part in parts)


def _join(parts: list[Array]) -> Array:
    return np.concatenate([np.empty(0), *(part.ravel() for part in parts)])


Bits = npt.NDArray[np.uint8]
_Reader = Callable[[Array], Bits]

_STRIDES = (1, 2, 3, 4, 8, 16)
_LOW = {24: "24th", 31: "31st", 32: "32nd"}  # the last bit of uniforms of so many bits
_HIGH = {3: "3rd", 4: "4th", 8: "8th", 16: "16th"}
_ENDINGS = {2: "nd", 3: "rd"}
_UPPER_QUARTILE = 0.6744897501960817  # Φ⁻¹(3/4)
_LARGEST_WHOLE = 2.0**50

# what a bit is
_SIGN, _PARITY, _LARGE = "signs", "parities", "sizes (above or below the median)"
_LAST_DIGIT, _LAST_STEP = "last digits", "last bits of multiples"
_LAST = "32nd bits"
_LONG_PAIR = "lengths (above or below the median)"


@dataclass(frozen=True, slots=True)
class BitStream:
    """One bit of every so many values, or of every so many pairs.

    ``stride``: values drawn per bit. ``long``: read to its end.
    """

    name: str
    stride: int
    long: bool
    reader: Callable[..., Bits]
    values: tuple[Array, ...]

    def read(self, count: int) -> Bits:
        """The first bits, up to ``count``."""
        return self.reader(*(x[:count] for x in self.values))


def bit_streams(stretches: Stretches, claim: Claim) -> Iterator[BitStream]:
    """All streams of what was kept, those of single values first."""
    readers, run = _readers(claim), stretches.run
    for view in _views(stretches):
        for kind, reader in readers.items():
            name, long = f"{kind} of {view.name}", kind in view.long
            yield BitStream(name, view.stride, long, reader, (view.values,))
    if claim.family == "gaussian" and run:
        for layout, stride, first, second in _pairs(run, claim.scale):
            for kind, pairs in _PAIRS.items():
                long = kind == _LONG_PAIR and layout == "neighbours"
                yield BitStream(f"{kind} of {layout}", stride, long, pairs, (first, second))


@dataclass(frozen=True, slots=True)
class _View:
    """Values of which one bit each is read."""

    name: str
    values: Array
    stride: int
    long: tuple[str, ...]


def _views(stretches: Stretches) -> Iterator[_View]:
    signs, run = (_SIGN, _PARITY), stretches.run
    if run:
        flat = np.concatenate([part.ravel() for part in run])
        every = (_SIGN, _PARITY, _LARGE, _LAST_DIGIT, _LAST_STEP, _LAST)
        for s in _STRIDES:
            name = "every value" if s == 1 else f"every {s}{_ENDINGS.get(s, 'th')} value"
            yield _View(name, flat[::s], s, every if s == 1 else signs)
        d = run[0].shape[1]
        if d > 1 and sum(map(len, run)) > 1:
            yield _View("first values of rows", flat[::d], d, ())
            columns = np.concatenate([part.T.ravel() for part in run])
            yield _View("every value, by columns", columns, 1, signs)
            yield _View("every 2nd value, by columns", columns[::2], 2, ())
    size, heads = stretches.heads
    if size > 1:
        yield _View("first values of calls", heads, size, signs)
    first = stretches.first
    for s in (1, 2):
        name = "the first values" if s == 1 else "every 2nd of the first values"
        yield _View(name, first[::s], s, signs)


def _readers(claim: Claim) -> Mapping[str, _Reader]:
    if claim.discrete:
        return {
            _SIGN: lambda x: _bits(x > 0),
            _PARITY: lambda x: _bits(x % 2),
            "second bits": lambda x: _bits(x // 2 % 2),
            _LARGE: lambda x: _bits(np.abs(x) > np.median(np.abs(x[: len(x) // 2]))),
        }
    folded = claim.family == "laplace"
    uniform = _laplace_uniform if folded else scipy.special.ndtr
    median = claim.scale * (math.log(2) if folded else _UPPER_QUARTILE)
    readers: dict[str, _Reader] = {
        _SIGN: lambda x: _bits(x < 0),
        _LARGE: lambda x: _bits(np.abs(x) > median),
        _LAST_DIGIT: _last_digits,
        "last digits but one": partial(_last_digits, above=1),
        _LAST_STEP: _last_steps,
    }
    for k, name in (_HIGH | _LOW).items():
        readers[f"{name} bits"] = partial(_bit_of, uniform, k, claim.scale)
    if folded:
        for k, name in _LOW.items():
            readers[f"{name} bits of sizes"] = partial(_bit_of, _laplace_size, k, claim.scale)
    return readers


def _bit_of(uniform: Callable[[Array], Array], k: int, scale: float, x: Array) -> Bits:
    return _bit(uniform(x / scale), k)


def _bits(x: npt.NDArray[np.bool_] | Array) -> Bits:
    return x.astype(np.uint8)


def _laplace_size(z: Array) -> Array:
    return np.asarray(np.exp(-np.abs(z)))


def _laplace_uniform(z: Array) -> Array:
    tail = 0.5 * _laplace_size(z)
    return np.where(z < 0, tail, 1 - tail)


def _bit(u: Array, k: int) -> Bits:
    """The k-th bit after the point.

    Uniforms of so many bits, or of 32, are multiples of their last bit or lie in the middle between
    two: a quarter of it more, and rounding does no harm.
    """
    return _bits(np.floor((u + 2.0 ** -(max(k, 32) + 2)) * 2.0**k) % 2)


def _last_digits(x: Array, *, above: int = 0) -> Bits:
    """A bit of the significands: the last one that is not 0 in all of them, or one ``above``."""
    bits = np.ascontiguousarray(x).view(np.uint64)
    used = int(np.bitwise_or.reduce(bits, initial=0)) & (1 << 52) - 1
    place = (used & -used).bit_length() - 1 + above if used else 0
    return np.asarray(bits >> np.uint64(place) & np.uint64(1), np.uint8)


def _last_steps(x: Array) -> Bits:
    """The last bits of whole numbers of the coarsest step 2^-k that divides all; none if fine."""
    significand, exponent = np.frexp(x[x != 0])
    whole = (significand * 2.0**53).astype(np.int64)
    step = 2.0 ** (np.log2((whole & -whole).astype(np.float64)) + exponent - 53).min(initial=0.0)
    if np.abs(x).max(initial=0.0) > _LARGEST_WHOLE * step:
        return np.zeros(0, np.uint8)
    return _bits(x / step % 2)


def _exponential(a: Array, b: Array) -> Array:
    return np.exp(-0.5 * (a * a + b * b))


def _turn(a: Array, b: Array) -> Array:
    return np.arctan2(b, a) / (2 * np.pi) % 1.0


_PAIRS: Mapping[str, Callable[[Array, Array], Bits]] = {
    _LONG_PAIR: lambda a, b: _bit(_exponential(a, b), 1),
    "second bits of lengths": lambda a, b: _bit(_exponential(a, b), 2),
    "24th bits of lengths": lambda a, b: _bit(_exponential(a, b), 24),
    "32nd bits of lengths": lambda a, b: _bit(_exponential(a, b), 32),
    "24th bits of angles": lambda a, b: _bit(_turn(a, b), 24),
    "32nd bits of angles": lambda a, b: _bit(_turn(a, b), 32),
}

_LAYOUTS = (  # values per pair, how far apart its two are
    (2, 1, "neighbours"),
    (4, 1, "every 2nd pair of neighbours"),
    (16, 1, "every 8th pair of neighbours"),
    (16, 8, "values 8 apart"),
)


def _pairs(run: list[Array], scale: float) -> Iterator[tuple[str, int, Array, Array]]:
    flat = np.concatenate([part.ravel() for part in run]) / scale
    for s, apart, name in _LAYOUTS:
        whole = flat[: len(flat) // s * s]
        yield name, s, whole[::s], whole[apart::s]
    call = run[0].ravel() / scale
    half = len(call) // 2
    yield "halves of a call", 1, call[:half], call[half : 2 * half]
