"""The exponential mechanism in whole numbers: exact probabilities, exact draws, no logarithm or exponential anywhere."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import accumulate
from numbers import Rational

from dpaudit.errors import UsageError
from dpaudit.interfaces import Stream

__all__ = ["ExponentialMechanism"]

_MOST_BITS = 1 << 24  # of all weights together
_DIGITS, _UP, _DOWN = (
    Context(prec=60, rounding=r) for r in (ROUND_HALF_EVEN, ROUND_CEILING, ROUND_FLOOR)
)
_LARGEST_EPSILON = 1000


class ExponentialMechanism:
    """Chooses outcome r with probability proportional to base^(−u(r)/step), ``base`` a fraction in (0, 1), u its utility.

    McSherry and Talwar 2007 with a power of a fraction for e^(ηu), as Ilvento 2020 (arXiv
    1912.04222) does: there base = (x/2^y)^z, η = −z·log₂(x/2^y) in her base-2 terms. Utilities are
    whole multiples of ``step``, so that every weight is an integer over one common denominator, and
    nothing is ever rounded.

    Formal guarantee: e^ε = base^(−2·sensitivity/step) exactly (:attr:`ratio`), for utilities of
    which each changes by at most ``sensitivity`` between neighbours: the chosen outcome's weight
    changes by a factor of at most base^(−sensitivity/step), and the sum of all by at most as much
    the other way. If ``monotone``, all utilities change the same way, and one of the two is at most
    1: e^ε = base^(−sensitivity/step). No finite set of outcomes attains it, large ones come near.
    Draws are exact too, given uniform bytes: a whole number below the sum of the weights, by
    rejection.

    Threat model: an adversary who knows everything but the stream's key and sees the outcomes. Not
    claimed: constant time (the number of refusals and the arithmetic depend on the utilities); that
    a refusal of utilities is private; anything about how they were computed.

    >>> from dpaudit.randomness import KeyedStream
    >>> fair = ExponentialMechanism(Fraction(1, 2))
    >>> fair.probabilities([0, 1, 2])
    (Fraction(1, 7), Fraction(2, 7), Fraction(4, 7))
    >>> fair.ratio, round(fair.epsilon, 4)
    (Fraction(4, 1), 1.3863)
    >>> 0 <= fair.choose([0, 1, 2], stream=KeyedStream.from_seed(1)) <= 2
    True
    """

    def __init__(
        self,
        base: Fraction,
        *,
        sensitivity: int | Fraction = 1,
        step: int | Fraction = 1,
        monotone: bool = False,
    ) -> None:
        """``sensitivity`` and ``step`` are in the utilities' unit, fractions; the first a multiple of the second.

        Raises:
            UsageError: a base outside (0, 1) or not a fraction (floats are refused: they are seldom
                what was meant), a sensitivity or step not above 0, or a sensitivity that is no
                multiple of the step.
        """
        for name, value in (("base", base), ("sensitivity", sensitivity), ("step", step)):
            if isinstance(value, bool) or not isinstance(value, Rational) or value <= 0:
                raise UsageError(f"{name}={value}: must be a whole number or Fraction above 0")
        if base >= 1:
            raise UsageError(
                f"base={base}: must lie strictly between 0 and 1; nearer to 1 is more private"
            )
        self.base, self.sensitivity, self.step = (
            _fraction(base),
            _fraction(sensitivity),
            _fraction(step),
        )
        steps = self.sensitivity / self.step
        if steps.denominator != 1:
            raise UsageError(
                f"sensitivity={sensitivity}: must be a multiple of step={step}; take a finer step"
            )
        self.monotone = monotone
        self._exponent = (1 if monotone else 2) * int(steps)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float | Fraction,
        *,
        sensitivity: int | Fraction = 1,
        step: int | Fraction = 1,
        monotone: bool = False,
        bits: int = 20,
    ) -> ExponentialMechanism:
        """The mechanism of the largest ε not above ``epsilon`` whose base is a multiple of 2^−bits.

        More ``bits`` come nearer to ``epsilon`` and make the weights longer.

        Raises:
            UsageError: ε not above 0 or beyond 1000, ``bits`` not from 1 to 128, or no such base
                below 1: more are needed.
        """
        if not 0 < epsilon <= _LARGEST_EPSILON:
            raise UsageError(f"epsilon={epsilon}: a number above 0 and at most {_LARGEST_EPSILON}")
        if not 1 <= bits <= 128:
            raise UsageError(f"bits={bits}: must be from 1 to 128")
        unit = cls(Fraction(1, 2), sensitivity=sensitivity, step=step, monotone=monotone)
        share = Fraction(epsilon) / unit._exponent
        exponent = _DOWN.divide(Decimal(share.numerator), Decimal(share.denominator))
        # e^−share rounded up at each step, in contexts of our own: operators would round to the caller's
        wanted = _DIGITS.next_plus(_DIGITS.exp(exponent.copy_negate()))
        numerator = math.ceil(_UP.multiply(wanted, Decimal(1 << bits)))
        if numerator >= 1 << bits:
            raise UsageError(
                f"bits={bits}: too few for epsilon={epsilon}, the base would be 1; take more"
            )
        return cls(
            Fraction(numerator, 1 << bits), sensitivity=sensitivity, step=step, monotone=monotone
        )

    @property
    def ratio(self) -> Fraction:
        """e^ε, exactly."""
        return (1 / self.base) ** self._exponent

    @property
    def epsilon(self) -> float:
        """ε in nats, ln of :attr:`ratio` rounded up to the next double."""
        inverse = 1 / self.base
        near = _DIGITS.ln(_UP.divide(Decimal(inverse.numerator), Decimal(inverse.denominator)))
        exact = Fraction(_DIGITS.next_plus(near)) * self._exponent
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)

    def weights(self, utilities: Sequence[int | Fraction]) -> tuple[int, ...]:
        """Whole numbers in the exact proportion of the probabilities.

        With base = x/y and d the steps by which a utility falls short of the greatest, D the
        greatest such d: x^d·y^(D − d). Adding one number to all utilities changes nothing.

        Raises:
            UsageError: no utilities; one that is no multiple of the step; or weights of more than
                2^24 bits in all, which utilities clamped to a narrower public range, or a base of
                fewer bits, would not have.
        """
        if len(utilities) == 0:
            raise UsageError("utilities=[]: there must be something to choose from")
        steps = []
        for value in utilities:
            if isinstance(value, bool) or not isinstance(value, Rational):
                raise UsageError(
                    f"utilities={value}: whole numbers or Fractions only; round to multiples of the step"
                )
            whole = _fraction(value) / self.step
            if whole.denominator != 1:
                raise UsageError(
                    f"utilities={value}: no multiple of step={self.step}; round it, and count that as sensitivity"
                )
            steps.append(int(whole))
        best = max(steps)
        widest = best - min(steps)
        x, y = self.base.numerator, self.base.denominator
        if widest * y.bit_length() * len(steps) > _MOST_BITS:
            raise UsageError(
                f"utilities: {len(steps)} of them over {widest} steps need more than {_MOST_BITS} bits; clamp them to a "
                "narrower public range, or take a base of fewer bits"
            )
        return tuple(x ** (best - s) * y ** (widest - best + s) for s in steps)

    def probabilities(self, utilities: Sequence[int | Fraction]) -> tuple[Fraction, ...]:
        """The exact probabilities of the outcomes; none is 0. Refuses as :meth:`weights` does."""
        weights = self.weights(utilities)
        total = sum(weights)
        return tuple(Fraction(w, total) for w in weights)

    def choose(self, utilities: Sequence[int | Fraction], *, stream: Stream) -> int:
        """The index of one outcome, drawn with exactly its probability from ``stream.bytes``. Refuses as :meth:`weights`."""
        weights = self.weights(utilities)
        return bisect_right(list(accumulate(weights)), _below(sum(weights), stream))


def _fraction(value: int | Fraction) -> Fraction:
    """The same in Python's own whole numbers; numpy's, of which a Fraction may consist, overflow."""
    return Fraction(int(value.numerator), int(value.denominator))


def _below(bound: int, stream: Stream) -> int:
    """A whole number from 0 to ``bound`` − 1, each exactly equally likely: bits of the stream until they are below it."""
    bits = (bound - 1).bit_length()
    spare = -bits % 8
    while True:
        number = int.from_bytes(stream.bytes((bits + spare) // 8), "big") >> spare
        if number < bound:
            return number
