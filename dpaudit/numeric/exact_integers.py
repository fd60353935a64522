"""Integers drawn exactly from an ``IntegerLaw``: a sequence addressed by position, fast.

**A number is a function of (law, key, position).** Trial t = 0, 1, … of position i (see
``IntegerLaw``) has one word of 64 bits: for t = 0 word i mod 8 of the ChaCha20 block (i div 8, 0,
0) under the key, later word 0 of the block (i, t, 1); :mod:`~dpaudit.numeric.chacha` says what
these are. From the low end the word is a place within a block of W = 2^p integers (25 bits, of
which the lowest p count), a sign, the first 13 bits of a uniform number A and the first 25 of
another, B.
Further bits of B are the words 1 to 3 of the blocks (i, t, 1), (i, t, 2), …, of A the words 4 to 7.
The block is the least k with B < P(block ≤ k), the place is accepted if A < exp(−y), and the first
trial that is accepted, and is not −0 (if W > 1), gives the number. No two positions share a word,
and a number does not depend on how it is computed, by which thread, or on which processor.

**The law is exact**, given uniform bits, as no comparison is rounded. B and A are known by their
first bits, so each lies in an interval [u, u + 2^-m), and the real number p that it is compared
with lies in an interval too:

- P(block ≤ k) is enclosed by integers over 2^64 that were computed with fractions and correctly
  rounded decimals. A guide over the leading bits of B holds the only border that they can mean.
- exp(−y) ≥ 1 − y. y grows with the place, so a bound of the last place of a block, from fractions,
  serves all: nearly all places are accepted by comparing two integers.
- Otherwise exp(−y) is enclosed by its Taylor sums, which lie alternately above and below it for
  every y ≥ 0 (the remainder after the n-th term has the sign of the next), with a slack of 2^-44
  for rounding. In the compiled loop y ≤ 1/2: a block within reach of 64 bits has k·W ≤ 9.7·s, W ≤
  s/128 (Laplace: y ≤ W/s ≤ 1/32). y is computed by at most five operations, a term by two more than
  the one before, so the n-th is off by a factor 1 ± (7n + 1)·2^-53, and all of the sum by less than
  Σ (7n + 2)·y^n/n!·2^-53 < 2^-48. Integers up to 2^53 are exact in it.

Where the two intervals are apart, the answer is that of the real numbers. Where they are not, the
loop takes one more word; where they still are not (once in 2^40 numbers), the position goes to
fractions and decimals with as many words as it takes (:func:`settled`).

Not claimed: constant time. The number of trials of an integer does not depend on the integer; the
time of the last trial does, a little (a table's row, the number of Taylor terms).

A law itself is exact as well, its probabilities enclosed as tightly as requested: fractions,
integers, and ``decimal``'s exponential, which is correctly rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import count
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.chacha import BulkWords, block, key_words
from dpaudit.numeric.kernels import spread
from dpaudit.protocols import Stream

__all__ = [
    "LARGEST_SCALE",
    "IntegerLaw",
    "check_positions",
    "draw_integers",
    "integers_at",
    "settled",
    "table_of",
    "visit",
]

_GUARD = 40  # bits beyond those asked for
_PER_SCALE = 128, 32  # blocks in one scale, at least: Gaussian, Laplace
_WIDEST = 1 << 25


@dataclass(frozen=True)
class IntegerLaw:
    """P(i) ∝ exp(−V(i)) on all integers, V(i) = ``quadratic``·i² + ``linear``·|i|.

    |i| = k·``block`` + j with 0 ≤ j < ``block``, a power of two. Draw k ≥ 0 with P(k) ∝
    exp(−V(k·block)), j uniformly, and accept with probability exp(V(k·block) − V(k·block + j)):
    then |i| has P ∝ exp(−V(|i|)). A fair sign follows, and (0, −) is refused. (Blocks of one place
    need no refusal: there P(k = 0) ∝ 1/2, which is 0 with either sign.) That is Karney's rejection
    (2016, ACM TOMS 42(1), Algorithm D) with blocks narrower than his, so that nearly all is
    accepted; the law is the same.
    """

    quadratic: Fraction
    linear: Fraction
    block: int

    @classmethod
    @lru_cache(maxsize=64)
    def gaussian(cls, scale: float) -> IntegerLaw:
        """The discrete Gaussian, P(i) ∝ exp(−i²/(2·scale²)), ``scale`` as an exact fraction."""
        exact = Fraction(scale)
        return cls(1 / (2 * exact * exact), Fraction(0), _block(exact / _PER_SCALE[0]))

    @classmethod
    def laplace(cls, scale: float) -> IntegerLaw:
        """The discrete Laplace law, P(i) ∝ exp(−|i|/scale)."""
        exact = Fraction(scale)
        return cls(Fraction(0), 1 / exact, _block(exact / _PER_SCALE[1]))

    def potential(self, i: int) -> Fraction:
        """V(i) for i ≥ 0."""
        return self.quadratic * i * i + self.linear * i

    def blocks(self, bits: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Integers (lows, highs) with lows[k] ≤ 2^bits·P(block ≤ k) ≤ highs[k].

        Each pair is 0 or 1 apart but for bad luck. For k = 0, 1, … until less than 2^-(bits + 20)
        is left.
        """
        return _blocks(self, bits)

    def decide_block(self, prefix: int, bits: int, more: Callable[[], int]) -> int:
        """The block k of a uniform number that begins with the ``bits`` bits ``prefix``.

        ``more`` gives 64 further bits. Inversion: the least k with U < P(block ≤ k). U lies in
        [prefix, prefix + 1)/2^bits; while the enclosures leave it open on which side of a border
        that is, both are made finer. Ends with probability 1, each round with probability 1 −
        O(2^-64).
        """
        while True:
            lows, highs = self.blocks(bits)
            k = bisect_right(highs, prefix)  # the first border that U is not known to have passed
            if k < len(lows) and prefix < lows[k]:
                return k
            prefix, bits = prefix << 64 | more(), bits + 64

    def decide_accept(
        self, k: int, j: int, prefix: int, bits: int, more: Callable[[], int]
    ) -> bool:
        """Whether U < exp(V(k·block) − V(k·block + j)), for U as above."""
        start = k * self.block
        exponent = self.potential(start + j) - self.potential(start)
        while True:
            low, high = _exp_minus(exponent, bits)
            if prefix < low:
                return True
            if prefix >= high:
                return False
            prefix, bits = prefix << 64 | more(), bits + 64


def _block(width: Fraction) -> int:
    """The largest power of two up to ``width``, but at least 1 and at most 2^25."""
    return min(_WIDEST, 1 << max(0, int(width).bit_length() - 1))


@cache
def _context(bits: int) -> Context:
    return Context(prec=int(0.3011 * bits) + 12, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _exp_minus(v: Fraction, bits: int) -> tuple[int, int]:
    """Integers with low ≤ 2^bits·exp(−v) ≤ high, v ≥ 0.

    With p digits, v is off by a factor 1 ± 10^(1−p) and the exponential, correctly rounded, by
    another: in all at most (2v + 2)·10^(1−p) relatively, doubled here for the roundings of the
    bound itself; v·e^−v < 1 bounds it absolutely. (The operator −x would round to the digits of the
    caller's own context.)
    """
    if v == 0:
        return 1 << bits, 1 << bits
    context = _context(bits)
    x = context.divide(Decimal(v.numerator), Decimal(v.denominator))
    if x > bits:
        return 0, 1  # e^−x < 2^−bits
    value = context.multiply(context.exp(x.copy_negate()), Decimal(1 << bits))
    unit = context.scaleb(Decimal(4), 1 - context.prec)
    slack = context.multiply(value, context.fma(x, unit, unit))
    low, high = context.subtract(value, slack), context.add(value, slack)
    return max(0, int(low)), int(high) + 1


@lru_cache(maxsize=64)
def _blocks(law: IntegerLaw, bits: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """See :meth:`IntegerLaw.blocks`.

    V is convex with V(0) = 0, hence V(x + W) − V(x) ≥ V(W), and what follows block k is at most a
    geometric series: exp(−V((k+1)·W))/(1 − exp(−V(W))).
    """
    fine = bits + _GUARD
    left = (1 << fine) - _exp_minus(law.potential(law.block), fine)[1]  # 1 − exp(−V(W)) from below
    weights: list[tuple[int, int]] = []
    while True:
        low, high = _exp_minus(law.potential(len(weights) * law.block), fine)
        rest = (high << fine) // left + 1  # this block and all that follow
        if weights and rest >> (_GUARD // 2) == 0:
            break
        weights.append((low, high))
    if law.block == 1:
        weights[0] = (1 << (fine - 1),) * 2
    after_low, after_high = 0, rest
    shares = []
    total_low, total_high = (sum(w[i] for w in weights) for i in (0, 1))
    for low, high in reversed(weights):  # before: blocks up to this one; after: the others
        before_low, before_high = total_low - after_low, total_high - (after_high - rest)
        shares.append(
            (
                (before_low << bits) // (before_low + after_high),
                -((-before_high << bits) // (before_high + after_low)),
            )
        )
        after_low, after_high = after_low + low, after_high + high
    shares.reverse()
    return tuple(s[0] for s in shares), tuple(s[1] for s in shares)


LARGEST_SCALE = 2.0**32  # W ≤ 2^25

_CHUNK = 1 << 15
_POSITIONS = 1 << 60
_SLACK = 2.0**-44

_U = np.uint64
_GUIDE, _COARSE, _FINE, _SIGN = 13, 25, 13, 25  # bits of B (the guide's, all), of A; the sign's bit
_BITS = _COARSE, _FINE
_UNIT = 64 - _COARSE
_TO_GUIDE, _TO_BORDER, _REST = _U(64 - _GUIDE), _U(_UNIT - 20), np.uint32((1 << 20) - 1)
_TO_FINE, _TO_BLOCK, _BLOCK = _U(_COARSE), _U(38), _U((1 << 13) - 1)
jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


class Table(NamedTuple):
    """A law as the compiled loops need it."""

    guide: npt.NDArray[np.uint64]
    """By B's leading 13 bits, from the top: a bound of A's bits, below which a place is accepted
    (13 bits), the first block (13), nothing (6), and a border (32): B's next 12 bits and 20 times 1
    above it mean the block after that, equality leaves it open. 0 decides nothing."""
    hints: npt.NDArray[np.uint16]
    """By the same bits, the first block that they can mean."""
    lows: npt.NDArray[np.uint64]
    """P(block ≤ k) in 2^-64, from below and from above."""
    highs: npt.NDArray[np.uint64]
    shape: npt.NDArray[np.float64]
    """y is place·(shape[0] + shape[1]·(2·k·W + place))."""
    bits: npt.NDArray[np.uint64]
    """p, and the bits of B and A that are looked at first."""


@jit
def _below(u, step, y):  # type: ignore[no-untyped-def]
    """1 if all of [u, u + step) is below exp(−y), 0 if all is above, −1 if that cannot be told."""
    total, term, n = 1.0, 1.0, 0
    while term > _SLACK:
        n += 1
        term *= y / n
        total -= term
        if u + step <= total - _SLACK:
            return 1
        n += 1
        term *= y / n
        total += term
        if u >= total + _SLACK:
            return 0
    return -1


@jit
def _which(first, last, hints, lows, highs):  # type: ignore[no-untyped-def]
    """The block of a uniform number in [first, last] + [0, 1) over 2^64, or −1 if that is open."""
    cell = np.int64(first >> _TO_GUIDE)
    low, high = np.int64(hints[cell]), highs.size
    if cell + 1 < hints.size and hints[cell + 1] < highs.size - 1:
        high = np.int64(hints[cell + 1])
    while low < high:
        middle = (low + high) >> 1
        if first < highs[middle]:
            high = middle
        else:
            low = middle + 1
    return low if low < highs.size and last < lows[low] else -1


@jit
def _trials(word, position, key, more, hints, lows, highs, shape, bits):  # type: ignore[no-untyped-def]
    """(number, True), or (0, False) if it is open: see the module. ``more`` (8,) is scratch."""
    p, coarse, fine = bits[0], bits[1], bits[2]
    wide, rest = _U(48) - fine, (~_U(0)) >> coarse
    trial = 0
    while True:
        known = trial > 0
        if known:
            block(more, key, position, trial, 1)
            word = more[0]
        k = _which(word & ~rest, word | rest, hints, lows, highs)
        if k < 0:
            block(more, key, position, trial, 1)
            known, b = True, (word & ~rest) | (more[1] >> coarse)
            k = _which(b, b, hints, lows, highs)
            if k < 0:
                return 0, False
        place = np.int64(word & ((_U(1) << p) - _U(1)))
        start, accept = np.int64(k) << np.int64(p), 1
        if place:
            a = (word >> (_U(_UNIT) - fine)) & ((_U(1) << fine) - _U(1))
            y = np.float64(place) * (shape[0] + shape[1] * np.float64(2 * start + place))
            u, step = np.float64(a << wide) * 2.0**-48, np.float64(_U(1) << wide) * 2.0**-48
            accept = _below(u, step, y)
            if accept < 0:
                if not known:
                    block(more, key, position, trial, 1)
                a = (a << wide) | (more[4] >> (_U(64) - wide))
                accept = _below(np.float64(a) * 2.0**-48, 2.0**-48, y)
                if accept < 0:
                    return 0, False
        negative = (word >> _U(_SIGN)) & _U(1)
        if accept and (start + place or not (p and negative)):
            return -(start + place) if negative else start + place, True
        trial += 1


@jit
def _numbers(words, first, key, table, late, open_):  # type: ignore[no-untyped-def]
    """Turn the bulk words of the positions from ``first`` on into numbers: how many are open.

    ``late`` and ``open_`` (as many) are scratch; the latter has the indices of open positions.
    """
    guide, hints, lows, highs, shape, bits = table
    p = bits[0]
    places, none = (_U(1) << p) - _U(1), _U(0) if p else ~_U(0)  # 0 may be a refused −0
    count, out = 0, words.view(np.int64)
    for i in range(words.size):
        word = words[i]
        entry = guide[word >> _TO_GUIDE]
        border, known = np.uint32(entry), np.uint32(word >> _TO_BORDER) | _REST
        k = ((entry >> _TO_BLOCK) & _BLOCK) + _U(known > border)
        size = (k << p) + (word & places)
        if (word << _TO_FINE >= entry) | (known == border) | (size == none):
            late[count] = word
            open_[count] = i
            count += 1
        sign = np.int64(word << _U(63 - _SIGN)) >> 63
        out[i] = (np.int64(size) ^ sign) - sign
    left, scratch = 0, np.empty(8, np.uint64)
    for j in range(count):
        i = open_[j]
        out[i], done = _trials(late[j], first + i, key, scratch, hints, lows, highs, shape, bits)
        if not done:
            open_[left] = i
            left += 1
    return left


def _double(x: Any) -> float:
    """A fraction rounded once, or 0 beyond all doubles, where it is not used (one-place blocks)."""
    return float(x) if x < 2**1000 else 0.0


@lru_cache(maxsize=32)
def table_of(law: IntegerLaw, bits: tuple[int, int] = _BITS) -> Table:
    """A law's table. So many ``bits`` of B and A are looked at first; few: all late."""
    top = (1 << 64) - 1  # the highest word is open, whatever the block
    borders = [[min(x, top) for x in xs] for xs in law.blocks(64)]
    size = min(next(k + 1 for k, high in enumerate(borders[1]) if high == top), 1 << 13)
    lows, highs = (xs[:size] for xs in borders)
    steep, cells, k = _steepest(law, size), 64 - _GUIDE, 0
    guide, hints = np.zeros(1 << _GUIDE, np.uint64), np.zeros(1 << _GUIDE, np.uint16)
    for i in range(len(guide)):
        first = i << cells
        while k < size - 1 and highs[k] <= first:
            k += 1
        hints[i], away, border, last = k, lows[k] - first, (1 << _COARSE - _GUIDE) - 1, k
        if 0 <= away < 1 << cells:  # a border: one, and in one unit?
            border, last = away >> _UNIT, k + 1
            if last == size or lows[last] - first < 1 << cells:
                continue
            if highs[k] - first >> _UNIT > border:
                continue
        if away >= 0 and steep[last] < 1 << _FINE and bits == _BITS:
            accepted = (1 << _FINE) - 1 - steep[last]  # 1 less, for what follows A in the word
            guide[i] = accepted << 51 | k << 38 | border << 20 | int(_REST)
    shape = np.array([_double(law.linear), _double(law.quadratic)])
    low, high, sizes = (
        np.array(xs, np.uint64) for xs in (lows, highs, (law.block.bit_length() - 1, *bits))
    )
    return Table(guide, hints, low, high, shape, sizes)


def _steepest(law: IntegerLaw, size: int) -> list[int]:
    """At least 2^13·y at the last place of each block."""
    last = law.block - 1
    base = last * (law.linear + law.quadratic * last)
    slope = 2 * law.quadratic * law.block * last
    whole = base.denominator * slope.denominator
    a, b = base.numerator * slope.denominator, slope.numerator * base.denominator
    return [-((-(a + b * k) << _FINE) // whole) for k in range(size)]


def _private(key: bytes, position: int, trial: int, first: int, last: int) -> Iterator[int]:
    """The words ``first`` … ``last`` of a trial's blocks, in turn."""
    out, words, second = np.empty(8, np.uint64), key_words(key), 0
    while True:
        second += 1
        block(out, words, position, trial, second)
        yield from out[first : last + 1].tolist()


def settled(law: IntegerLaw, *, key: bytes, position: int, bits: tuple[int, int] = _BITS) -> int:
    """The number at one position in exact arithmetic, by the module's first paragraph."""
    (coarse, fine), bulk = bits, np.empty(8, np.uint64)
    BulkWords(key).fill(bulk, counter=position // 8)
    for trial in count():
        word = next(_private(key, position, trial, 0, 0)) if trial else int(bulk[position % 8])
        b, a = (_private(key, position, trial, *words).__next__ for words in ((1, 3), (4, 7)))
        k = law.decide_block(word >> (64 - coarse), coarse, b)
        place, negative = word & (law.block - 1), word >> _SIGN & 1
        prefix = (word >> (64 - _COARSE - fine)) & ((1 << fine) - 1)
        value = k * law.block + place
        refused = law.block > 1 and negative and not value
        if law.decide_accept(k, place, prefix, fine, a) and not refused:
            return -value if negative else value
    raise AssertionError


def check_positions(
    *, start: int, rows: int = 1, columns: int, stride: int | None = None
) -> tuple[int, int, int, int]:
    """Return (start, rows, columns, stride), in one row if all positions follow each other.

    Raises:
        UsageError: positions outside 0 … 2^60 − 1.
    """
    stride = columns if stride is None else stride
    if start < 0 or stride < 0 or start + (rows - 1) * stride + columns > _POSITIONS:
        raise UsageError(
            f"start={start}, stride={stride}: positions must lie in 0 … 2^60 - 1; begin lower"
        )
    return (start, *((1, rows * columns, 0) if stride == columns else (rows, columns, stride)))


def visit(
    law: IntegerLaw,
    finish: Callable[[int, npt.NDArray[np.int64]], None],
    *,
    key: bytes,
    bits: tuple[int, int] = _BITS,
    **positions: Any,
) -> None:
    """Hand the numbers of :func:`integers_at` in chunks to ``finish(at, numbers)``, on all cores.

    ``at`` is where a chunk begins in the (rows, columns) numbers, row by row. ``numbers`` is used
    up when ``finish`` returns.

    Raises:
        UsageError: as :func:`integers_at`.
    """
    start, rows, columns, stride = check_positions(**positions)
    key_words(key)
    table, parts = table_of(law, bits), (columns - 2) // _CHUNK + 2

    def work(first: int, last: int) -> None:
        words, stream = np.empty(_CHUNK, np.uint64), BulkWords(key)
        late, open_ = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64)
        for row, part in (divmod(job, parts) for job in range(first, last)):
            begin = start + row * stride  # chunks begin at multiples of their size
            chunk = (begin // _CHUNK + part) * _CHUNK
            low, high = max(begin, chunk), min(begin + columns, chunk + _CHUNK)
            if low >= high:
                continue
            skip = low % 8
            stream.fill(words[: -(-(skip + high - low) // 8) * 8], counter=low // 8)
            own = words[skip : skip + high - low]
            left, numbers = _numbers(own, low, stream.key, table, late, open_), own.view(np.int64)
            for i in open_[:left].tolist():
                numbers[i] = settled(law, key=key, position=low + i, bits=bits)
            finish(row * columns + low - begin, numbers)

    spread(work, rows * parts, rows * columns)


def integers_at(
    law: IntegerLaw,
    *,
    key: bytes,
    start: int,
    rows: int = 1,
    columns: int,
    stride: int | None = None,
    bits: tuple[int, int] = _BITS,
) -> npt.NDArray[np.int64]:
    """Numbers of one long sequence of independent integers of that law, shape (rows, columns).

    Value (r, c) is number ``start`` + r·``stride`` + c of the sequence (``stride`` None:
    ``columns``, so that rows follow each other). A number is a function of ``law``, ``key`` and its
    position alone: any shard of an array gets what the whole would have had there, whatever the
    split, the threads or the machine.

    Formal guarantee: exact, given that ChaCha20 under ``key`` (32 bytes) gives uniform bits; see
    the module's docstring. With one key each position must serve one value only, of one law.
    ``bits``, of B and of A, is how many the compiled loop looks at first: it changes the speed and
    the numbers, not the law (tests use few). The law's scale must not exceed :data:`LARGEST_SCALE`.

    Raises:
        UsageError: a key of another length, or positions outside 0 … 2^60 − 1.
    """
    out = np.empty(rows * columns, np.int64)

    def copy(at: int, numbers: npt.NDArray[np.int64]) -> None:
        out[at : at + len(numbers)] = numbers

    positions = {"start": start, "rows": rows, "columns": columns, "stride": stride}
    visit(law, copy, key=key, bits=bits, **positions)
    return out.reshape(rows, columns)


def draw_integers(n: int, law: IntegerLaw, *, stream: Stream) -> npt.NDArray[np.int64]:
    """``n`` independent integers of exactly that law, shape (n,), by the stream's next 32 bytes.

    They are the key of :func:`integers_at`, from position 0 on.
    """
    return integers_at(law, key=stream.bytes(32), start=0, columns=n).reshape(n)
