"""Exact tails of the sum of two binomials, and of the runs of ones around a circle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["at_least", "at_most", "runs_two_sided"]

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
    return _trimmed(int(k[0]), np.exp(logs - _log_choose(size, np.asarray(ones))))


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
    return _trimmed(a[0] + b[0], np.convolve(a[1], b[1]))


def _trimmed(start: int, law: npt.NDArray[np.float64]) -> tuple[int, npt.NDArray[np.float64]]:
    """The law without its ends, which hold less than 1e-22 of the mass each."""
    kept = np.flatnonzero((np.cumsum(law) > 1e-22) & (np.cumsum(law[::-1])[::-1] > 1e-22))
    return start + int(kept[0]), law[kept[0] : kept[-1] + 1]


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.asarray(
        scipy.special.gammaln(n + 1)
        - scipy.special.gammaln(k + 1)
        - scipy.special.gammaln(n - k + 1)
    )
