"""Confidence intervals, exact tails and multiplicity corrections behind every verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.types import Interval

__all__ = [
    "anderson_darling_p",
    "binomial_two_sided",
    "bonferroni",
    "chi_square_two_sided",
    "clopper_pearson",
    "epsilon_lower_bound",
    "holm",
    "kolmogorov_p",
    "normal_two_sided",
    "rounded_down",
]


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """The exact two-sided binomial interval (Clopper and Pearson 1934).

    Formal guarantee: covers the true probability with probability at least ``confidence``, whatever
    it is.

    Raises:
        UsageError: successes outside 0…trials, no trials, or a confidence outside (0, 1).

    >>> i = clopper_pearson(10, 10)
    >>> round(i.low, 4), i.high
    (0.6915, 1.0)
    """
    if not 0 <= successes <= trials or trials == 0:
        raise UsageError(
            f"successes={successes}, trials={trials}: need 0 ≤ successes ≤ trials and trials ≥ 1"
        )
    if not 0 < confidence < 1:
        raise UsageError(f"confidence={confidence}: must lie strictly between 0 and 1")
    a = (1 - confidence) / 2
    failures = trials - successes
    low = float(scipy.special.betaincinv(successes, failures + 1, a)) if successes else 0.0
    high = float(scipy.special.betainccinv(successes + 1, failures, a)) if failures else 1.0
    return Interval(low=low, high=high, confidence=confidence, method="Clopper-Pearson")


def epsilon_lower_bound(
    true_positives: int,
    positives: int,
    false_positives: int,
    negatives: int,
    *,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """A lower bound on ε at δ from one fixed event's counts on both hypotheses.

    (ε, δ)-DP demands P(E|1) ≤ e^ε·P(E|0) + δ and the same for the complement of E with the
    hypotheses swapped (Kairouz, Oh and Viswanath 2015); each probability is bounded by
    Clopper-Pearson at half the error.

    Formal guarantee: at most the true ε with probability ≥ ``confidence``, if the event was fixed
    before the counts were seen. Not claimed: tightness; with n trials a side it cannot exceed about
    ln n.

    Raises:
        UsageError: invalid counts, a confidence outside (0, 1), a δ outside [0, 1).

    >>> epsilon_lower_bound(500, 1000, 500, 1000, delta=1e-10)
    0.0
    """
    if not 0 <= delta < 1:
        raise UsageError(f"delta={delta}: must lie in [0, 1)")
    # one end of each two-sided interval is used: together they err with probability
    # ≤ 1 − confidence
    tp = clopper_pearson(true_positives, positives, confidence=confidence)
    fp = clopper_pearson(false_positives, negatives, confidence=confidence)
    bounds = [0.0]
    for numerator, denominator in ((tp.low, fp.high), (1 - fp.high, 1 - tp.low)):
        if numerator - delta > 0 and denominator > 0:
            bounds.append(math.log((numerator - delta) / denominator))
    return max(bounds)


def _probabilities(p: Sequence[float]) -> None:
    for value in p:
        # a NaN compares false with everything: `min` and `max` would hide it
        if not 0 <= value <= 1:
            raise UsageError(
                f"p={value}: a p-value lies in [0, 1]; the statistic behind it is broken"
            )


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (Holm 1979), in the order given.

    Formal guarantee: rejecting where the adjusted value is ≤ α has family-wise error ≤ α under any
    dependence.

    Raises:
        UsageError: a p-value outside [0, 1] or NaN.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    _probabilities(p)
    m = len(p)
    adjusted = [0.0] * m
    running = 0.0
    for rank, i in enumerate(sorted(range(m), key=lambda i: p[i])):
        running = max(running, min(1.0, (m - rank) * p[i]))
        adjusted[i] = running
    return adjusted


def bonferroni(p: Sequence[float]) -> float:
    """The smallest p-value times their number, at most 1: valid under any dependence.

    Raises:
        UsageError: a p-value outside [0, 1] or NaN.
    """
    _probabilities(p)
    return min(1.0, len(p) * min(p)) if p else 1.0


def normal_two_sided(z: float | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """P(|N(0,1)| ≥ |z|)."""
    return np.asarray(2 * scipy.special.ndtr(-np.abs(z)))


def chi_square_two_sided(x: float, df: float) -> float:
    """Twice the smaller tail of χ² with ``df`` degrees of freedom at ``x``; at most 1.

    Raises:
        UsageError: x negative or NaN (``min`` would make it a p-value of 1).
    """
    if not x >= 0:
        raise UsageError(f"x={x}: a χ² statistic is a number ≥ 0; the values behind it are broken")
    return float(min(1.0, 2 * min(scipy.special.chdtr(df, x), scipy.special.chdtrc(df, x))))


def binomial_two_sided(k: int, n: int, p: float) -> float:
    """Twice the smaller exact tail of Binomial(n, p) at ``k``, at most 1.

    Raises:
        UsageError: k outside 0…n, or p outside [0, 1].
    """
    if not 0 <= k <= n or not 0 <= p <= 1:
        raise UsageError(f"k={k}, n={n}, p={p}: need 0 ≤ k ≤ n and p in [0, 1]")
    upper = 1.0 if k <= 0 else float(scipy.special.betainc(k, n - k + 1, p))
    lower = 1.0 if k >= n else float(scipy.special.betaincc(k + 1, n - k, p))
    return min(1.0, 2 * min(upper, lower))


def kolmogorov_p(
    counts: npt.NDArray[np.int64], upto: npt.NDArray[np.float64] | None = None
) -> tuple[float, float]:
    """Kolmogorov-Smirnov statistic and p-value of counts in cells of (0, 1).

    ``upto`` is the distribution function at the inner edges, shape (cells − 1,); without it the
    cells are equal. The supremum over edges is at most the supremum over all points, so the p-value
    errs towards no finding. Uses Stephens' finite-n correction of the asymptotic law: for n ≥ 100
    and 1e-9 < p < 0.2 it is at most 6 % too small and 15 % too large (relative).
    """
    n = int(counts.sum())
    if n == 0:
        return 0.0, 1.0
    edges = np.arange(1, len(counts)) / len(counts) if upto is None else upto
    d = float(np.abs(np.cumsum(counts)[:-1] / n - edges).max())
    root = math.sqrt(n)
    return d, float(scipy.special.kolmogorov((root + 0.12 + 0.11 / root) * d))


def anderson_darling_p(a2: float) -> float:
    """P(A² ≥ ``a2``) for the Anderson-Darling statistic of a fully specified law, n large.

    A² is Σ Z_j²/(j(j+1)) in the limit (Anderson and Darling 1952); its upper tail tends to
    √3·erfc(√a²), which a factor 1 + 0.35/a² keeps from above for a² ≥ 1.9 (p ≤ 0.1): at most 1.1 %
    too large there, checked against a numerical inversion of the characteristic function down to
    1e-9. Smaller statistics give 1 for simplicity.

    Raises:
        UsageError: ``a2`` negative or NaN.
    """
    if not a2 >= 0:
        raise UsageError(
            f"a2={a2}: the Anderson-Darling statistic is a number ≥ 0; "
            "the counts behind it are broken"
        )
    if a2 < 1.9:
        return 1.0
    return float(min(1.0, math.sqrt(3) * math.erfc(math.sqrt(a2)) * (1 + 0.35 / a2)))


def rounded_down(bound: float) -> str:
    """A lower bound to three digits, never more than was shown.

    >>> rounded_down(8.7699), rounded_down(0.0), rounded_down(0.29)
    ('8.76', '0', '0.29')
    """
    if not 0 < bound < math.inf:
        return f"{bound:.3g}"
    exact = Decimal(repr(bound))
    step = Decimal(1).scaleb(exact.adjusted() - 2)
    return f"{float(exact.quantize(step, ROUND_FLOOR)):.3g}"
