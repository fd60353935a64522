"""Integers drawn exactly from an ``IntegerLaw``, at the speed of floating point.

**The law is exact**, given uniform bits. A trial (see ``IntegerLaw``) asks two questions of the
form "is the uniform number U below the real number p?", once for the block and once for acceptance.
U is known by its first bits, so it lies in an interval [u, u + 2^-m); p lies in an interval too:

- The block's p = P(block ≤ k) is enclosed by two integers over 2^64 that were computed with
  fractions and correctly rounded decimals.
- The acceptance's p = exp(−y) is enclosed by its Taylor sums, which lie alternately above and below
  it for every y ≥ 0 (the remainder after the n-th term has the sign of the next), with a slack of
  2^-44 for rounding. In the compiled loop y ≤ 1/2: a block within reach of 64 bits has k·W ≤ 9.7·s,
  and W ≤ s/32. y is computed by at most five operations, a term by two more than the one before, so
  the n-th is off by a factor 1 ± (7n + 1)·2^-53, and all of the sum by less than Σ (7n +
  2)·y^n/n!·2^-53 < 2^-48. Integers up to 2^53 are exact in it.

Where the two intervals are apart, the answer is that of the real numbers. Where they are not (about
once in 2^36 trials), the question goes to fractions and decimals with further bits of U, until they
are. So no answer is ever rounded.

Bits come from ``Stream.bytes``, in order. The number of trials of an integer does not depend on the
integer; the time of the last trial does, a little (a table's row, the number of Taylor terms). Not
claimed: constant time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.numeric.exact_law import IntegerLaw
from dpaudit.protocols import Stream

__all__ = ["LARGEST_SCALE", "draw_integers"]

LARGEST_SCALE = 2.0**32  # place, sign and 36 bits of U share a word

_CHUNK = 1 << 16
_GUIDE = 10
_SLACK = 2.0**-44
_DONE, _WHICH_BLOCK, _WHETHER = 0, 1, 2

_U = np.uint64
jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


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


class _Numbers(NamedTuple):
    """A law as the compiled loop needs it."""

    lows: npt.NDArray[np.uint64]
    """Of each block, over the words: below it all are of an earlier one, or open."""
    highs: npt.NDArray[np.uint64]
    guide: npt.NDArray[np.int64]
    """The first block that a word with these leading bits can mean."""
    shift: np.uint64
    linear: float
    quadratic: float
    mask: np.uint64
    fine: np.uint64


@jit
def _draw(out, i, words, law):  # type: ignore[no-untyped-def]
    """Fill ``out`` from ``i`` on: (next i, words used, what is open, block)."""
    lows, highs, guide, shift, linear, quadratic, mask, fine = law
    used, places, steps = 0, (_U(1) << shift) - _U(1), _U(64) - fine
    step = 1.0 / np.float64(_U(1) << fine)
    while i < out.size and used + 2 <= words.size:
        coarse, word = words[used] & mask, words[used + 1]
        used += 2
        k = np.int64(guide[coarse >> _U(64 - _GUIDE)])
        while k < highs.size and coarse >= highs[k]:
            k += 1
        if k == highs.size or coarse >= lows[k]:
            return i, used, _WHICH_BLOCK, k
        place = np.int64((word >> _U(1)) & places)
        start = k << np.int64(shift)
        if place:
            y = np.float64(place) * (linear + quadratic * np.float64(2 * start + place))
            accept = _below(np.float64(word >> steps) * step, step, y)
            if accept < 0:
                return i, used, _WHETHER, k
            if accept == 0:
                continue
        elif k == 0 and word & _U(1):
            continue
        out[i] = -(start + place) if word & _U(1) else start + place
        i += 1
    return i, used, _DONE, np.int64(0)


class _Table:
    """A law as the compiled loop needs it; uniforms begin with ``coarse`` and ``fine`` bits."""

    def __init__(self, law: IntegerLaw, coarse: int, fine: int) -> None:
        self._law, self._coarse, self._fine = law, coarse, fine
        lows, highs = law.blocks(coarse)
        top = (1 << coarse) - 1  # the highest word is open, whatever the block
        count = next(k + 1 for k, high in enumerate(highs) if high > top)
        words = [
            np.array([min(x, top) << (64 - coarse) for x in xs[:count]], np.uint64)
            for xs in (lows, highs)
        ]
        first = np.arange(1 << _GUIDE, dtype=np.uint64) << _U(64 - _GUIDE)
        self._numbers = _Numbers(
            words[0],
            words[1],
            np.searchsorted(words[1], first, side="right"),
            _U(law.block.bit_length() - 1),
            _double(law.linear),
            _double(law.quadratic),
            _U((1 << 64) - (1 << (64 - coarse))),
            _U(fine),
        )

    def fill(self, out: npt.NDArray[np.int64], stream: Stream) -> None:
        done = 0
        while done < len(out):
            missing = min(len(out) - done, _CHUNK)
            words = np.frombuffer(
                stream.bytes(16 * (missing + missing // 32 + 4)), dtype="<u8"
            ).astype(np.uint64, copy=False)
            at = 0
            while True:
                done, used, open_, k = _draw(out, done, words[at:], self._numbers)
                at += used
                if open_ == _DONE:
                    break
                value = self._settle(int(words[at - 2]), int(words[at - 1]), open_, k, stream)
                if value is not None:
                    out[done] = value
                    done += 1

    def _settle(self, coarse: int, word: int, open_: int, k: int, stream: Stream) -> int | None:
        """The rest of a trial in exact arithmetic; None if it is refused."""

        def more() -> int:
            return int.from_bytes(stream.bytes(8), "little")

        law = self._law
        if open_ == _WHICH_BLOCK:
            k = law.decide_block(coarse >> (64 - self._coarse), self._coarse, more)
        place, negative = (word >> 1) & (law.block - 1), bool(word & 1)
        if not law.decide_accept(k, place, word >> (64 - self._fine), self._fine, more):
            return None
        value = k * law.block + place
        if value == 0 and negative:
            return None
        return -value if negative else value


def _double(x: Any) -> float:
    """A fraction rounded once, or 0 beyond all doubles, where it is not used (one-place blocks)."""
    return float(x) if x < 2**1000 else 0.0


@lru_cache(maxsize=32)
def _table(law: IntegerLaw, coarse: int, fine: int) -> _Table:
    return _Table(law, coarse, fine)


def draw_integers(
    n: int, law: IntegerLaw, *, stream: Stream, coarse_bits: int = 64, fine_bits: int = 36
) -> npt.NDArray[np.int64]:
    """``n`` independent integers of exactly that law, shape (n,), from the stream's next bytes.

    An integer takes about 17 bytes.

    Formal guarantee: exact, given uniform bytes; see the module's docstring. ``coarse_bits`` and
    ``fine_bits`` say how many bits the compiled loop looks at before it hands over to exact
    arithmetic: they change the speed and the numbers, not the law (tests use few). The law's scale
    must not exceed :data:`LARGEST_SCALE`.
    """
    out = np.empty(n, np.int64)
    _table(law, coarse_bits, fine_bits).fill(out, stream)
    return out
