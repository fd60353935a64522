"""The coin behind sketch vectors: its bias with an exact interval, whatever was sketched, and the ε that follows."""

from __future__ import annotations

import math

from dpaudit.deployments.apple.bits.tails import at_least, at_most
from dpaudit.errors import UsageError
from dpaudit.types import Interval

__all__ = ["coin_interval", "epsilon_of_flip"]

_HALVINGS = 60


def coin_interval(ones: int, vectors: int, m: int, *, confidence: float) -> Interval | None:
    """The bias q of the coins in ``vectors`` sketch vectors of m bits that hold ``ones`` ones in all.

    A Count Median (or Mean) Sketch of one object is m coins that come up 1 with probability q, of which the one at the
    hashed place is turned over (Tang et al. 2017, Figures 16 and 17). Wherever that place is, the ones of r vectors are
    Binomial(r(m−1), q) + Binomial(r, 1−q): their law does not depend on any object, hash function or key. The interval
    inverts both exact tails (Clopper and Pearson 1934, for a sum of two binomials).

    Formal guarantee: covers q with probability ≥ ``confidence``, if all coins are independent and equal. Proof that an
    interval is all it takes: dP(N ≥ n)/dq = r{P(C = n−1)(mq − 1) + P(C = n−2)(m(1−q) − 1)} with C the sum without one
    coin of each kind, so the tail grows on [1/m, 1 − 1/m]; below 1/m, N ≤ r + Binomial(r(m−1), 1/m) in law, and where
    that does not exclude such q either, the interval goes down to 0 (above 1 − 1/m by symmetry). None where every q is
    excluded, as for vectors without a single one: then these are no such vectors (with probability ≥ ``confidence``).

    Not claimed: that the vectors do hold their objects; that takes the code, or objects one knows.

    Raises:
        UsageError: no vectors, fewer than 3 bits, ones that do not fit, or a confidence outside (0, 1).

    >>> i = coin_interval(310, 10, 256, confidence=0.95)
    >>> i.low < 0.1192 < i.high
    True
    """
    if vectors < 1 or m < 3 or not 0 <= ones <= vectors * m:
        raise UsageError(f"ones={ones}, vectors={vectors}, m={m}: need vectors ≥ 1, m ≥ 3 and 0 ≤ ones ≤ vectors·m")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence={confidence}: must lie strictly between 0 and 1")
    a = (1 - confidence) / 2
    if _too_few(ones, vectors, m, a) or _too_few(vectors * m - ones, vectors, m, a):
        return None
    return Interval(
        low=_lowest(ones, vectors, m, a),
        high=1 - _lowest(vectors * m - ones, vectors, m, a),
        confidence=confidence,
        method="exact law of the ones, both tails inverted",
    )


def epsilon_of_flip(flip: Interval, *, differing: int) -> Interval:
    """ε of a vector of coins with bias in ``flip``, where two objects' vectors differ in ``differing`` coins.

    Each of those multiplies the likelihood ratio by at most max(q, 1−q)/min(q, 1−q), and some vector attains all of them
    at once: ε = differing·|ln((1−q)/q)| exactly. 2 for a sketch (two objects, two places), 1 for a single sign.

    >>> e = epsilon_of_flip(Interval(low=0.1, high=0.2, confidence=0.95, method=""), differing=2)
    >>> round(e.low, 4), round(e.high, 4)
    (2.7726, 4.3944)
    """
    ends = [differing * _log_odds(q) for q in (flip.low, flip.high)]
    low = 0.0 if flip.low <= 0.5 <= flip.high else min(ends)
    return Interval(low=low, high=max(ends), confidence=flip.confidence, method=flip.method)


def _log_odds(q: float) -> float:
    return math.inf if q in (0.0, 1.0) else abs(math.log1p(-q) - math.log(q))


def _too_few(ones: int, vectors: int, m: int, a: float) -> bool:
    """Whether so few ones or fewer have probability ≤ ``a`` at any bias: bounded below 1/m, at it, and above 1 − 1/m."""
    others, least = vectors * (m - 1), 1 / m
    return (
        at_most(ones, (others, least), (vectors, 1 - least)) <= a
        and at_most(ones, (0, 0.0), (vectors, 1 - least)) <= a
        and at_most(ones, (others, 1 - least), (0, 0.0)) <= a
    )


def _lowest(ones: int, vectors: int, m: int, a: float) -> float:
    """A bias below which so many ones or more have probability ≤ ``a``."""
    others = vectors * (m - 1)
    low, high = 1 / m, 1 - 1 / m
    if at_least(ones - vectors, (others, low), (0, 0.0)) > a:
        return 0.0

    def seen(q: float) -> bool:
        return at_least(ones, (others, q), (vectors, 1 - q)) > a

    if seen(low):
        return 0.0
    if not seen(high):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return low
