"""The bits of sketch vectors: their bias, with an exact interval for any objects, and their ε.

Exact tails of sums of two binomials and of runs around a circle are behind the interval, and behind
checks of whether bits are independent and equally biased; no object can make a good generator fail.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.types import Interval
from dpaudit_local.apple.model import Check

__all__ = [
    "CHECKS",
    "SketchVectors",
    "at_least",
    "at_most",
    "check_spread",
    "coin_interval",
    "epsilon_of_flip",
    "runs_two_sided",
]

LEAST_SPREAD = 8
"""The least number of vectors for the check of their spread."""


def check_positions(
    places: npt.NDArray[np.int64], inside: npt.NDArray[np.int64], vectors: int, flip: Interval
) -> Check:
    """Whether some bit of all bytes, or some byte, has too many or too few ones.

    ``places`` (8,) counts the ones at each bit of all bytes, ``inside`` (m/8,) those in each byte
    of all vectors. The hashed place may be anywhere, so a group of g positions in r vectors has at
    most r hashed ones: its count is stochastically between Binomial(r(g−1), q) + Binomial(r, min(q,
    1−q)) and the same with max. With q anywhere in ``flip`` the tails are bounded by its ends; p is
    Bonferroni over all groups, plus what ``flip`` may miss. Exact and conservative.
    """
    least, most = min(flip.low, 1 - flip.high), max(flip.high, 1 - flip.low)
    groups = len(places) + len(inside)
    p, result = 1.0, "every place has about as many ones"
    for label, counts, g in (
        ("bit {} of all bytes", places, len(inside)),
        ("byte {}", inside, len(places)),
    ):
        for i in (int(counts.argmax()), int(counts.argmin())):
            c = int(counts[i])
            tail = min(
                at_least(c, (vectors * (g - 1), flip.high), (vectors, most)),
                at_most(c, (vectors * (g - 1), flip.low), (vectors, least)),
            )
            if (adjusted := 2 * groups * tail) < p:
                p, result = adjusted, f"{label.format(i)} has {c} ones in {vectors * g} bits"
    return Check("positions", min(1.0, p + 1 - flip.confidence), result)


def check_spread(ones: npt.NDArray[np.int64], m: int, flip: Interval) -> Check | None:
    """Whether the ones per vector, ``ones`` (r,), vary more or less than those of equal coins.

    The ones of a vector have variance m·q(1−q) wherever its hashed place is. Their sum of squares
    over it is χ² with r−1 degrees of freedom up to the law's own skewness (an approximation, good
    for m·q ≥ 20); computed at the ends of ``flip``. None for fewer than 8 vectors.
    """
    r = len(ones)
    if r < LEAST_SPREAD:
        return None
    squares = float(((ones - ones.mean()) ** 2).sum())
    variances = sorted(m * q * (1 - q) for q in (flip.low, flip.high))
    largest = m / 4 if flip.low <= 0.5 <= flip.high else variances[1]
    if variances[0] <= 0:
        return None
    over = float(scipy.special.chdtrc(r - 1, squares / largest))
    under = float(scipy.special.chdtr(r - 1, squares / variances[0]))
    expected = (r - 1) * m * (flip.low + flip.high) / 2 * (1 - (flip.low + flip.high) / 2)
    p = min(1.0, 2 * min(over, under) + 1 - flip.confidence)
    ratio = squares / expected
    return Check("spread", p, f"the ones per vector vary {ratio:.3g} times as much as expected")


def check_neighbours(bits: npt.NDArray[np.bool_]) -> Check:
    """Whether adjacent bits, or the same bit of adjacent bytes, are correlated; ``bits`` (r, m).

    Given the number of ones in a vector, their arrangement *up to rotation of the vector* is that
    of ones placed at random, whatever the bias and wherever the hashed place: a rotation moves that
    place along, and each class of arrangements that are rotations of each other has the hashed bit
    set in the same share of its members. So the number of runs of ones around the circle has a
    known law, as has the number around the eight circles of every eighth bit. Exact.
    """
    r, m = bits.shape
    whole = _runs_p(bits)
    apart = _runs_p(bits.reshape(r, m // 8, 8).transpose(0, 2, 1).reshape(8 * r, m // 8))
    worst = "adjacent bits" if whole <= apart else "the same bits of adjacent bytes"
    p = min(1.0, 2 * min(whole, apart))
    result = f"{worst} are less independent" if p < 1 else "adjacent bits are independent"
    return Check("neighbours", p, result)


def check_copies(bits: npt.NDArray[np.bool_], flip: Interval) -> Check | None:
    """Whether two vectors are too similar to be independent; ``bits`` (r, m).

    At each position two vectors differ with probability ≥ 2q(1−q), so their distance is
    stochastically at least Binomial(m, 2q(1−q)), wherever the hashed places are; Bonferroni over
    pairs. Exact and conservative. None for fewer than two vectors.
    """
    r, m = bits.shape
    if r < 2:
        return None
    x = bits.astype(np.float32)
    distance = np.rint(x.sum(1)[:, None] + x.sum(1)[None, :] - 2 * (x @ x.T)).astype(np.int64)
    distance[np.tril_indices(r)] = m + 1
    i, j = divmod(int(distance.argmin()), r)
    d = int(distance[i, j])
    differ = 2 * min(flip.low * (1 - flip.low), flip.high * (1 - flip.high))
    p = math.comb(r, 2) * at_most(d, (m, differ), (0, 0.0)) + 1 - flip.confidence
    return Check("copies", min(1.0, p), f"vectors {i} and {j} differ in {d} of {m} bits")


def _runs_p(circles: npt.NDArray[np.bool_]) -> float:
    size = circles.shape[1]
    starts = circles & ~np.roll(circles, 1, axis=1)
    ones = circles.sum(1)
    return runs_two_sided(int(starts.sum()), [(size, int(k)) for k in ones])


_HALVINGS = 60


def coin_interval(ones: int, vectors: int, m: int, *, confidence: float) -> Interval | None:
    """The bias q of the bits of ``vectors`` sketch vectors of m bits with ``ones`` ones in total.

    A Count Median (or Mean) Sketch of one object is m coins that come up 1 with probability q, of
    which the one at the hashed place is flipped (Tang et al. 2017, Figures 16 and 17). Wherever
    that place is, the ones of r vectors are Binomial(r(m−1), q) + Binomial(r, 1−q): their law does
    not depend on any object, hash function or key. The interval inverts both exact tails (Clopper
    and Pearson 1934, for a sum of two binomials).

    Formal guarantee: covers q with probability ≥ ``confidence``, if all coins are independent and
    equal. Proof that an interval suffices: dP(N ≥ n)/dq = r{P(C = n−1)(mq − 1) + P(C = n−2)(m(1−q)
    − 1)} with C the sum without one coin of each kind, so the tail grows on [1/m, 1 − 1/m]; below
    1/m, N is stochastically at most r + Binomial(r(m−1), 1/m), and if that does not exclude such q
    either, the interval goes down to 0 (above 1 − 1/m by symmetry). None if every q is excluded, as
    for vectors without a single one: then these are not such vectors (with probability ≥
    ``confidence``).

    Not claimed: that the vectors hold their objects; that takes the code, or known objects.

    Raises:
        UsageError: no vectors, fewer than 3 bits, ones that do not fit, or a confidence outside (0,
            1).

    >>> i = coin_interval(310, 10, 256, confidence=0.95)
    >>> i.low < 0.1192 < i.high
    True
    """
    if vectors < 1 or m < 3 or not 0 <= ones <= vectors * m:
        raise UsageError(
            f"ones={ones}, vectors={vectors}, m={m}: "
            "must have vectors ≥ 1, m ≥ 3 and 0 ≤ ones ≤ vectors·m"
        )
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
    """ε of bits with bias in ``flip``, if two objects differ in ``differing`` of them.

    Each of those multiplies the likelihood ratio by at most max(q, 1−q)/min(q, 1−q), and some
    vector attains all of them at once: ε = differing·|ln((1−q)/q)| exactly. ``differing`` is 2 for
    a sketch (two objects, two places) and 1 for a single sign.

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
    """Whether ``ones`` or fewer have probability ≤ ``a`` at any bias.

    Bounded below 1/m, at 1/m, and above 1 − 1/m.
    """
    others, least = vectors * (m - 1), 1 / m
    return (
        at_most(ones, (others, least), (vectors, 1 - least)) <= a
        and at_most(ones, (0, 0.0), (vectors, 1 - least)) <= a
        and at_most(ones, (others, 1 - least), (0, 0.0)) <= a
    )


def _lowest(ones: int, vectors: int, m: int, a: float) -> float:
    """A bias below which ``ones`` or more have probability ≤ ``a``."""
    others = vectors * (m - 1)
    low, high = 1 / m, 1 - 1 / m
    if at_least(ones - vectors, (others, low), (0, 0.0)) > a:
        return 0.0

    def plausible(q: float) -> bool:
        return at_least(ones, (others, q), (vectors, 1 - q)) > a

    if plausible(low):
        return 0.0
    if not plausible(high):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if plausible(middle) else (middle, high)
    return low


CHECKS = 4
"""The number of checks that share a key's α."""
MOST_BITS = 2**20
MOST_VECTORS = 512
"""The checks of neighbours and copies use the first vectors, up to these totals."""
_CHUNK = 2**20


class SketchEstimate(NamedTuple):
    """The bias of one sketch per record (None: none fits), the number of vectors, the checks."""

    flip: Interval | None
    vectors: int
    checks: tuple[Check, ...]


class SketchVectors:
    """The vectors of one sketch of every record of a key.

    Memory is m bytes, 4 per vector, and 128 KiB for the checks.
    """

    def __init__(self, m: int) -> None:
        """For vectors of ``m`` bits, a multiple of 8."""
        self.m = m
        self.vectors = 0
        self._places = np.zeros(8, dtype=np.int64)
        self._bytes = np.zeros(m // 8, dtype=np.int64)
        self._ones = array("i")
        self._packed: list[npt.NDArray[np.uint8]] = []
        self._room = max(2, min(MOST_VECTORS, MOST_BITS // m))

    def add(self, packed: npt.NDArray[np.uint8]) -> None:
        """Add vectors (n, m/8), bit i in byte i // 8 at 1 << i % 8."""
        step = max(1, _CHUNK // packed.shape[1])
        for start in range(0, len(packed), step):
            bits = np.unpackbits(packed[start : start + step], axis=1, bitorder="little")
            bytewise = bits.reshape(len(bits), -1, 8)
            self._places += bytewise.sum((0, 1), dtype=np.int64)
            self._bytes += bytewise.sum((0, 2), dtype=np.int64)
            self._ones.frombytes(bits.sum(1, dtype=np.intc).tobytes())
            if self._room:
                some = packed[start : start + min(step, self._room)].copy()
                self._packed.append(some)
                self._room -= len(some)
            self.vectors += len(bits)

    def estimate(self, *, interval_alpha: float, check_alpha: float) -> SketchEstimate | None:
        """The bias and the checks; None without vectors.

        The interval misses the bias with probability ≤ ``interval_alpha``. Each check's p-value is
        valid (of ``check_spread`` approximately) whatever the bias: it uses its own interval at a
        tenth of ``check_alpha``.
        """
        if not self.vectors:
            return None
        ones = int(self._places.sum())
        flip = coin_interval(ones, self.vectors, self.m, confidence=1 - interval_alpha)
        wide = coin_interval(ones, self.vectors, self.m, confidence=1 - check_alpha / 10)
        if flip is None or wide is None:
            return SketchEstimate(None, self.vectors, ())
        packed = np.concatenate(self._packed)
        bits = np.unpackbits(packed, axis=1, bitorder="little").astype(np.bool_)
        checks = (
            check_positions(self._places, self._bytes, self.vectors, wide),
            check_spread(np.frombuffer(self._ones, dtype=np.intc).astype(np.int64), self.m, wide),
            check_neighbours(bits),
            check_copies(bits, wide),
        )
        return SketchEstimate(flip, self.vectors, tuple(c for c in checks if c is not None))


_NEGLIGIBLE = 1e-15
"""Added to every tail: more than the mass that is cut off the ends of the summed laws."""


def at_least(successes: int, first: tuple[int, float], second: tuple[int, float]) -> float:
    """P(X + Y ≥ successes), at most 1, of independent X ~ Binomial(*first), Y ~ Binomial(*second).

    Never below the exact value beyond rounding (relative 1e-9): Y's law is summed over all but
    1e-20 of its mass, and 1e-15 is added. The second pair should be the smaller one: time and
    memory grow with its standard deviation.

    >>> round(at_least(1, (2, 0.5), (1, 0.5)), 6)
    0.875
    """
    values, law = _binomial_law(*second)
    return min(1.0, float(law @ _upper(successes - values, *first)) + _NEGLIGIBLE)


def at_most(successes: int, first: tuple[int, float], second: tuple[int, float]) -> float:
    """P(X + Y ≤ successes), as :func:`at_least`.

    >>> round(at_most(0, (2, 0.5), (1, 0.5)), 6)
    0.125
    """
    (n, p), (k, r) = first, second
    return at_least(n + k - successes, (n, 1 - p), (k, 1 - r))


def runs_two_sided(runs: int, circles: Iterable[tuple[int, int]]) -> float:
    """Twice the smaller exact tail of the number of runs of ones, at most 1.

    Each circle is (size, ones): its ones lie anywhere on it, every arrangement equally likely. With
    N ones among m places P(k runs) = (m/k)·C(N−1, k−1)·C(m−N−1, k−1) / C(m, N); circles are
    independent.

    >>> round(runs_two_sided(2, [(4, 2)]), 6)  # of the six arrangements two have the ones apart
    0.666667
    """
    start, law = 0, np.ones(1)
    for (size, ones), times in sorted(Counter(circles).items()):
        if 0 < ones < size:
            start, law = _sum((start, law), _power(_runs_law(size, ones), times))
    below = float(law[: max(0, runs - start + 1)].sum())
    above = float(law[max(0, runs - start) :].sum())
    return min(1.0, 2 * (min(below, above) + _NEGLIGIBLE))


def _binomial_law(n: int, p: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The values of a binomial variable with non-negligible mass, and their probabilities."""
    width = math.ceil(10 * math.sqrt(n * p * (1 - p)) + 40)
    values = np.arange(max(0, math.floor(n * p) - width), min(n, math.ceil(n * p) + width) + 1)
    logs = (
        scipy.special.xlogy(values, p)
        + scipy.special.xlog1py(n - values, -p)
        + _log_choose(n, values)
    )
    return values, np.exp(logs)


def _upper(successes: npt.NDArray[np.int64], n: int, p: float) -> npt.NDArray[np.float64]:
    """P(Binomial(n, p) ≥ successes), elementwise."""
    inside = np.clip(successes, 1, max(n, 1))
    tail = scipy.special.betainc(inside, n - inside + 1, p) if n else np.zeros(len(successes))
    return np.where(successes <= 0, 1.0, np.where(successes > n, 0.0, tail))


def _runs_law(size: int, ones: int) -> tuple[int, npt.NDArray[np.float64]]:
    mean = ones * (size - ones) / (size - 1)  # the variance is smaller than that
    width = math.ceil(10 * math.sqrt(mean) + 40)
    k = np.arange(
        max(1, math.floor(mean) - width), min(ones, size - ones, math.ceil(mean) + width) + 1
    )
    logs = (
        math.log(size)
        - np.log(k)
        + _log_choose(ones - 1, k - 1)
        + _log_choose(size - ones - 1, k - 1)
    )
    return _trim(int(k[0]), np.exp(logs - _log_choose(size, np.asarray(ones))))


def _power(
    law: tuple[int, npt.NDArray[np.float64]], times: int
) -> tuple[int, npt.NDArray[np.float64]]:
    """The law of the sum of ``times`` independent copies."""
    result: tuple[int, npt.NDArray[np.float64]] = (0, np.ones(1))
    while times:
        if times & 1:
            result = _sum(result, law)
        times >>= 1
        if times:
            law = _sum(law, law)
    return result


def _sum(
    a: tuple[int, npt.NDArray[np.float64]], b: tuple[int, npt.NDArray[np.float64]]
) -> tuple[int, npt.NDArray[np.float64]]:
    return _trim(a[0] + b[0], np.convolve(a[1], b[1]))


def _trim(start: int, law: npt.NDArray[np.float64]) -> tuple[int, npt.NDArray[np.float64]]:
    """The law without its ends, which hold less than 1e-22 of the mass each."""
    inside = np.flatnonzero((np.cumsum(law) > 1e-22) & (np.cumsum(law[::-1])[::-1] > 1e-22))
    return start + int(inside[0]), law[inside[0] : inside[-1] + 1]


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.asarray(
        scipy.special.gammaln(n + 1)
        - scipy.special.gammaln(k + 1)
        - scipy.special.gammaln(n - k + 1)
    )
