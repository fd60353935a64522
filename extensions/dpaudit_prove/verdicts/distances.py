"""How far exact laws are from a claimed one, and from each other at neighbouring inputs.

δ(ε) of the direction (a, b) is sup P_a(S) − e^ε·P_b(S) over all sets S of outputs. With lower
bounds m ≤ P and the residuals r, D = Σ (m_a(x) − e^ε·m_b(x))₊ gives D − e^ε·r_b ≤ δ(ε) ≤ D + r_a:
the set {m_a > e^ε·m_b} reaches the first, and P_a(S) ≤ m_a(S) + r_a, P_b(S) ≥ m_b(S) the second.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Literal

from dpaudit.errors import UsageError
from dpaudit.results.text import one_line
from dpaudit_prove.exploration.law import ExactLaw
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.enclosures import Bounds, Range, exp_bounds, log_bounds

__all__ = ["Distance", "Epsilon", "distance", "epsilon_at", "judge", "profile", "rationals"]

_RESOLVED = Fraction(1, 1 << 10)
_COARSE_BITS = 96


@dataclass(frozen=True)
class Distance:
    """A program's law P against a claimed law Q.

    Attributes:
        total_variation: bounds of sup |P(S) − Q(S)| over all sets S of outputs.
        event: outputs, each of which P is proved to have more often than Q, most first: together
            they are the set S of the lower bound.
        log_ratio: bounds of the largest |ln(P(x)/Q(x))|, over the outputs whose own ratio is known
            to within 2^-10; infinite if the claim gives one of them no probability.
    """

    total_variation: Bounds
    event: tuple[Hashable, ...]
    log_ratio: Range


def distance(law: ExactLaw, claim: ClaimedLaw) -> Distance:
    """Bounds of the distance between ``law`` and ``claim``.

    With m(x) ≤ P(x), Σ m = 1 − r and Q the claim, L = Σ (m(x) − Q(x))₊ is a sum over the outputs
    of the law alone, since Q ≥ 0. It is a lower bound, reached by S = {m > Q}. As Σ (Q − m)₊ = L +
    r and P ≥ m, the total variation Σ (Q − P)₊ is at most L + r.
    """
    claimed = {output: claim.probability(output) for output in law.mass}
    gains = {output: mass - claimed[output].upper for output, mass in law.mass.items()}
    event = sorted((o for o, gain in gains.items() if gain > 0), key=lambda o: -gains[o])
    low = sum((gains[output] for output in event), Fraction(0))
    high = sum(
        (max(Fraction(0), mass - claimed[output].lower) for output, mass in law.mass.items()),
        law.residual,
    )
    return Distance(
        total_variation=Bounds(low, min(Fraction(1), high)),
        event=tuple(event),
        log_ratio=_log_ratio(law, claimed),
    )


def _log_ratio(law: ExactLaw, claimed: dict[Hashable, Bounds]) -> Range:
    low: Fraction | float = Fraction(0)
    high: Fraction | float = Fraction(0)
    for output, mass in law.mass.items():
        if claimed[output].upper == 0:
            return Range(math.inf, math.inf)
        least, most = _absolute_log(mass, law.upper(output), claimed[output])
        if most - least <= _RESOLVED:
            low, high = max(low, least), max(high, most)
    return Range(low, high)


def _absolute_log(
    mass: Fraction, most: Fraction, claimed: Bounds
) -> tuple[Fraction, Fraction | float]:
    """Bounds for |ln(P/Q)| with P in [mass, most]."""
    if claimed.lower <= 0:
        return Fraction(0), math.inf
    low = log_bounds(mass / claimed.upper, bits=_COARSE_BITS).lower
    high = log_bounds(most / claimed.lower, bits=_COARSE_BITS).upper
    if low <= 0 <= high:
        return Fraction(0), max(-low, high)
    return min(abs(low), abs(high)), max(abs(low), abs(high))


_LARGEST_EPSILON = 1000
_UNITS = 1 << 100
_LN = re.compile(r"ln\(?\s*([0-9]+(?:/[0-9]+|\.[0-9]+)?)\s*\)?")


@dataclass(frozen=True)
class Epsilon:
    """An ε ≥ 0 with bounds of e^ε, both exact where ε is the logarithm of a rational.

    >>> Epsilon.parse("ln(3)").ratio
    Bounds(lower=Fraction(3, 1), upper=Fraction(3, 1))
    >>> Epsilon.parse("0").ratio.upper
    Fraction(1, 1)
    """

    text: str
    ratio: Bounds

    @classmethod
    def parse(cls, text: str) -> Epsilon:
        """Read ``0.5``, ``1/2`` or ``ln(3)``; decimals are exact.

        Raises:
            UsageError: anything else, a negative number, or one above 1000.
        """
        wrong = f"epsilon={one_line(text)}: must be a number from 0 to 1000, or such as ln(3)"
        try:
            if match := _LN.fullmatch(text.strip()):
                value = Fraction(match[1])
                if not 1 <= value <= 2**1000:
                    raise UsageError(wrong)
                return cls(text.strip(), Bounds(value, value))
            return cls.of(Fraction(text))
        except (ValueError, ZeroDivisionError):
            raise UsageError(wrong) from None

    @classmethod
    def of(cls, value: Fraction | int) -> Epsilon:
        """A rational ε.

        Raises:
            UsageError: negative, or above 1000.
        """
        if not 0 <= value <= _LARGEST_EPSILON:
            raise UsageError(f"epsilon={float(value):g}: must lie between 0 and {_LARGEST_EPSILON}")
        return cls(str(value), exp_bounds(value))

    @property
    def near(self) -> float:
        """ε as the nearest number, or almost: for figures."""
        return max(0.0, float(log_bounds(self.ratio.lower).lower))


@dataclass(frozen=True)
class ProfilePoint:
    """Bounds of δ at one ε, for neighbours in either order.

    Attributes:
        epsilon: as it was written.
        delta: bounds of the larger δ of the two directions.
        direction: which input is the first of the pair in the direction of the lower bound.
        event: the set S of the lower bound: (P_first(S) − e^ε·P_second(S)) ≥ delta.lower.
    """

    epsilon: str
    delta: Bounds
    direction: Literal["a", "b"]
    event: tuple[Hashable, ...]


class _Direction:
    """D of the module's docstring as a function of e^ε, for one order of the neighbours."""

    def __init__(self, first: ExactLaw, second: ExactLaw) -> None:
        rows = sorted(
            (
                (_ratio(mass, second.lower(output)), mass, output)
                for output, mass in first.mass.items()
            ),
            key=lambda row: -row[0],
        )
        self._keys = [-row[0] for row in rows]  # ascending
        self._outputs = [row[2] for row in rows]
        self._first = [Fraction(0), *accumulate(row[1] for row in rows)]
        self._second = [Fraction(0), *accumulate(second.lower(row[2]) for row in rows)]
        self._residuals = first.residual, second.residual

    def lower(self, ratio: Fraction) -> Fraction:
        return self._excess(ratio) - ratio * self._residuals[1]

    def upper(self, ratio: Fraction) -> Fraction:
        return self._excess(ratio) + self._residuals[0]

    def event(self, ratio: Fraction) -> tuple[Hashable, ...]:
        return tuple(self._outputs[: self._count(ratio)])

    def needed_ratio(self, delta: Fraction) -> Fraction | float:
        """e^ε is at least this; 1 if nothing is needed."""
        return self._largest(Fraction(0), self._residuals[1], delta)

    def sufficient_ratio(self, delta: Fraction) -> Fraction | float:
        """No e^ε needs to be larger than this."""
        return self._largest(self._residuals[0], Fraction(0), delta)

    def _largest(
        self, more_first: Fraction, more_second: Fraction, delta: Fraction
    ) -> Fraction | float:
        largest: Fraction | float = Fraction(1)
        for first, second in zip(self._first, self._second, strict=True):
            excess = first + more_first - delta
            if excess > 0:
                largest = max(largest, _ratio(excess, second + more_second))
        return largest

    def _count(self, ratio: Fraction) -> int:
        return bisect_left(self._keys, -ratio)

    def _excess(self, ratio: Fraction) -> Fraction:
        count = self._count(ratio)
        return self._first[count] - ratio * self._second[count]


def _ratio(first: Fraction, second: Fraction) -> Fraction | float:
    return first / second if second else math.inf


def _directions(law_a: ExactLaw, law_b: ExactLaw) -> tuple[_Direction, _Direction]:
    return _Direction(law_a, law_b), _Direction(law_b, law_a)


def profile(
    law_a: ExactLaw, law_b: ExactLaw, epsilons: Iterable[Epsilon]
) -> tuple[ProfilePoint, ...]:
    """Bounds of δ(ε) at each ε, for the worse direction."""
    directions = _directions(law_a, law_b)
    return tuple(_point(directions, epsilon) for epsilon in epsilons)


def _point(directions: tuple[_Direction, _Direction], epsilon: Epsilon) -> ProfilePoint:
    # δ falls with ε: the lower bound holds at the larger e^ε, the upper one at the smaller
    lows = [direction.lower(epsilon.ratio.upper) for direction in directions]
    highs = [direction.upper(epsilon.ratio.lower) for direction in directions]
    worse = 0 if lows[0] >= lows[1] else 1
    low = max(Fraction(0), *lows)
    return ProfilePoint(
        epsilon=epsilon.text,
        delta=Bounds(low, min(Fraction(1), max(highs))),
        direction="b" if worse else "a",
        event=directions[worse].event(epsilon.ratio.upper) if low else (),
    )


def judge(
    law_a: ExactLaw, law_b: ExactLaw, *, epsilon: Epsilon, delta: Fraction
) -> tuple[Literal["proved", "refuted", "undecided"], ProfilePoint]:
    """Whether the mechanism is (ε, δ)-differentially private between these two neighbours.

    "proved" if δ(ε) is at most the claimed δ, "refuted" if it is above, "undecided" if the claimed
    δ lies within the bounds; and these, with the event that refutes. A residual above 0 leaves an
    upper bound above 0, so that δ = 0 is not proved then.

    Raises:
        UsageError: δ not in [0, 1].
    """
    _check_delta(delta)
    (point,) = profile(law_a, law_b, [epsilon])
    return point.delta.below(delta), point


def _check_delta(delta: Fraction) -> None:
    if not 0 <= delta <= 1:
        raise UsageError(f"delta={float(delta):g}: must lie between 0 and 1")


def rationals(points: Iterable[tuple[Epsilon, Bounds]]) -> list[list[str]]:
    """Each ε with bounds of its δ, for a certificate; rounded outwards unless e^ε is rational."""
    rows = []
    for epsilon, delta in points:
        low, high = delta.lower, delta.upper
        exact = epsilon.ratio.lower == epsilon.ratio.upper
        if not exact:
            low = Fraction(max(0, math.floor(low * _UNITS) - 1), _UNITS)
            high = (
                min(Fraction(math.ceil(high * _UNITS) + 1, _UNITS), Fraction(1)) if high else high
            )
        exponent = f"ln({epsilon.ratio.lower})" if exact else str(Fraction(epsilon.text))
        rows.append([exponent, str(low), str(high)])
    return rows


def epsilon_at(law_a: ExactLaw, law_b: ExactLaw, delta: Fraction) -> Range:
    """Bounds of the least ε ≥ 0 at which both directions have δ(ε) ≤ ``delta``; the upper one is
    infinite if none is proved.

    With S the first outputs in the order of m_a/m_b, δ(ε) ≤ δ needs e^ε ≥ (m_a(S) − δ)/(m_b(S) +
    r_b) for each S, and e^ε ≥ (m_a(S) + r_a − δ)/m_b(S) for each S suffices: both ends are
    logarithms of exact rationals.

    Raises:
        UsageError: δ not in [0, 1].
    """
    _check_delta(delta)
    directions = _directions(law_a, law_b)
    needed = max(direction.needed_ratio(delta) for direction in directions)
    enough = max(direction.sufficient_ratio(delta) for direction in directions)
    return Range(
        lower=math.inf if needed == math.inf else log_bounds(Fraction(needed)).lower,
        upper=math.inf if enough == math.inf else log_bounds(Fraction(enough)).upper,
    )
