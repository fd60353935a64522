"""Symmetric laws on the integers, with their probabilities enclosed as tightly as requested.

Everything here is exact: fractions, integers, and ``decimal``'s exponential, which is correctly
rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache, lru_cache

__all__ = ["IntegerLaw"]

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
