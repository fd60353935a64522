"""Tests whether the bits of sketch vectors are independent and equally biased.

No object can make a good generator fail.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.types import Interval
from dpaudit_local.apple.bits.tails import at_least, at_most, runs_two_sided
from dpaudit_local.apple.model import Check

__all__ = [
    "LEAST_SPREAD",
    "Check",
    "check_copies",
    "check_neighbours",
    "check_positions",
    "check_spread",
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
    p, says = 1.0, "every place has about as many ones"
    for what, counts, g in (
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
                p, says = adjusted, f"{what.format(i)} has {c} ones in {vectors * g} bits"
    return Check("positions", min(1.0, p + 1 - flip.confidence), says)


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
    says = f"{worst} are less independent" if p < 1 else "adjacent bits are independent"
    return Check("neighbours", p, says)


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
