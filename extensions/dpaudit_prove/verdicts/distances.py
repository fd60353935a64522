"""How far a program's exact law is from a claimed one: certified bounds."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction

from dpaudit_prove.exploration.law import ExactLaw
from dpaudit_prove.verdicts.claims import ClaimedLaw
from dpaudit_prove.verdicts.enclosures import Bounds, log_bounds

__all__ = ["Distance", "LogRatio", "distance"]

_RESOLVED = Fraction(1, 1 << 10)
_COARSE_BITS = 96


@dataclass(frozen=True)
class LogRatio:
    """The largest |ln(P(x)/Q(x))|, over the outputs whose own ratio is known to within 2^-10.

    Attributes:
        lower: proved for the output `where`; math.inf if the claim gives it no probability.
        upper: proved for every resolved output.
        where: the output of the lower bound; None if nothing is resolved.
        outputs: how many outputs are resolved.
        unresolved: P of all other outputs together is at most this.
    """

    lower: Fraction | float
    upper: Fraction | float
    where: Hashable
    outputs: int
    unresolved: Fraction


@dataclass(frozen=True)
class Distance:
    """A program's law P against a claimed law Q.

    Attributes:
        total_variation: bounds of sup |P(S) − Q(S)| over all sets S of outputs.
        event: outputs, each of which P is proved to have more often than Q, most first: together
            they are the set S of the lower bound.
        log_ratio: see :class:`LogRatio`.
    """

    total_variation: Bounds
    event: tuple[Hashable, ...]
    log_ratio: LogRatio


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


def _log_ratio(law: ExactLaw, claimed: dict[Hashable, Bounds]) -> LogRatio:
    low: Fraction | float = Fraction(0)
    high: Fraction | float = Fraction(0)
    least: Fraction | float
    most: Fraction | float
    where: Hashable = None
    outputs, resolved = 0, Fraction(0)
    for output, mass in law.mass.items():
        if claimed[output].upper == 0:
            least = most = math.inf
        else:
            least, most = _absolute_log(mass, law.upper(output), claimed[output])
            if most - least > _RESOLVED:
                continue
        outputs, resolved = outputs + 1, resolved + mass
        high = max(high, most)
        if where is None or least > low:
            low, where = least, output
    return LogRatio(low, high, where, outputs, 1 - resolved)


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
