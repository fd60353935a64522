"""Gaussian, Laplace and binomial noise: exact privacy profiles and calibrations."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpaudit.accounting._checks import below_one, bisect, least_epsilon, positive, probability
from dpaudit.errors import UsageError

__all__ = [
    "binomial_coins",
    "binomial_delta",
    "binomial_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_paper",
    "laplace_epsilon",
]


def gaussian_sigma_paper(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """σ as the pancake paper calibrates it: ``ε = t²/2 − t·Φ⁻¹(δ)``, ``t = Δ/σ`` (Theorem 2.3).

    Formal guarantee: N(0, σ²I) is then (ε, δ)-DP, since the exact δ only subtracts a positive term.
    Not claimed: tightness; :func:`gaussian_sigma` needs a little less noise.

    >>> [round(gaussian_sigma_paper(e, 1e-10), 4) for e in (0.125, 0.25, 0.5, 1.0)]
    [50.9692, 25.5237, 12.8008, 6.439]
    """
    positive(epsilon=epsilon, sensitivity=sensitivity)
    probability(delta)
    q = float(scipy.special.ndtri(delta))
    root = math.sqrt(q * q + 2 * epsilon)
    # Φ⁻¹(δ) + √(Φ⁻¹(δ)² + 2ε) cancels for small ε; for q < 0 its conjugate does not.
    t = 2 * epsilon / (root - q) if q < 0 else q + root
    return sensitivity / t


def gaussian_delta(epsilon: float, *, sigma: float, sensitivity: float = 1.0) -> float:
    """The exact privacy profile δ(ε) of the Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    Raises:
        UsageError: ε is NaN, or σ or Δ not a finite number above 0.

    >>> round(gaussian_delta(1.0, sigma=1.0), 6)
    0.126937
    """
    if math.isnan(epsilon):
        raise UsageError(f"epsilon={epsilon}: must be a number")
    positive(sigma=sigma, sensitivity=sensitivity)
    if epsilon == math.inf:
        return 0.0
    t = sensitivity / sigma
    first = scipy.special.log_ndtr(t / 2 - epsilon / t)
    second = epsilon + scipy.special.log_ndtr(-t / 2 - epsilon / t)
    return float(max(0.0, -math.exp(first) * math.expm1(min(0.0, second - first))))


def gaussian_epsilon(delta: float, *, sigma: float, sensitivity: float = 1.0) -> float:
    """The least ε ≥ 0 at which the Gaussian mechanism is (ε, δ)-DP: inverts ``gaussian_delta``."""
    probability(delta)
    positive(sigma=sigma, sensitivity=sensitivity)
    t = sensitivity / sigma
    # Theorem 2.3's bound is never too small
    high = t * t / 2 - t * float(scipy.special.ndtri(delta))
    return least_epsilon(
        lambda e: gaussian_delta(e, sigma=sigma, sensitivity=sensitivity), delta, high
    )


def gaussian_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """The least σ for which the Gaussian mechanism is (ε, δ)-DP.

    Analytic calibration, Balle and Wang 2018.

    >>> gaussian_sigma(0.25, 1e-10) < gaussian_sigma_paper(0.25, 1e-10)
    True
    """
    positive(epsilon=epsilon, sensitivity=sensitivity)
    probability(delta)
    high = gaussian_sigma_paper(epsilon, delta)
    low = high
    while gaussian_delta(epsilon, sigma=low) <= delta:
        low /= 2
        if low < high * 2.0**-60:
            return low * sensitivity
    # in units of Δ, so that the solver's absolute tolerance does not meet a Δ of its own size
    return sensitivity * bisect(
        lambda s: math.log(max(gaussian_delta(epsilon, sigma=s), 1e-320)) - math.log(delta),
        low,
        high * (1 + 1e-12),
    )


def laplace_epsilon(delta: float, *, scale: float, sensitivity: float = 1.0) -> float:
    """The least ε ≥ 0 at which one number plus Laplace noise is (ε, δ)-DP.

    It is max(0, Δ/scale + 2·ln(1 − δ)). At δ = 0 this is Δ/scale (Dwork, McSherry, Nissim and Smith
    2006, Proposition 1), which holds for a vector of L1 sensitivity Δ too; above δ = 0 it is for
    one number.

    Raises:
        UsageError: δ outside [0, 1), or the scale or Δ not a finite number above 0.

    >>> laplace_epsilon(0.0, scale=0.5)
    2.0
    """
    below_one(delta)
    positive(scale=scale, sensitivity=sensitivity)
    return max(0.0, sensitivity / scale + 2 * math.log1p(-delta))


_MOST = 1 << 36

_LOST = 60.0  # nats below the largest term at which a sum is cut: 1e-26 of it


def _check(coins: int) -> None:
    if not (isinstance(coins, int) and 1 <= coins <= _MOST):
        raise UsageError(f"coins={coins}: must be a whole number from 1 to 2^36")


def _stirling(x: float) -> float:
    """Ln x! less Stirling's formula for it, to a few units in the 16th digit of one."""
    if x < 16:
        return math.lgamma(x + 1) - (x + 0.5) * math.log(x) + x - 0.5 * math.log(2 * math.pi)
    s = x * x
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / s) / s) / s) / s) / x


def _log_mass(k: int, n: int) -> float:
    """Ln P(X = k), X the heads of n coins, to some 1e-15·(1 + |2k − n|), after Loader 2000."""
    if k in {0, n}:
        return -n * math.log(2)
    lean = (2 * k - n) / n
    deviance = k * math.log1p(lean) + (n - k) * math.log1p(-lean)
    corrections = _stirling(n) - _stirling(k) - _stirling(n - k)
    return corrections - deviance - 0.5 * math.log(2 * math.pi * k * (n - k) / n)


def _log_delta(epsilon: float, n: int) -> float:
    if epsilon >= 700:  # far above ln n: only X = 0 counts, also at ε = ∞
        return -n * math.log(2)
    top = min(n, math.floor((n + 1) / (1 + math.exp(epsilon))))
    # top ≤ (n+1)/2, and there p(top−m)/p(top) ≤ exp(−2m(m−1)/(n+1)): 6√n terms are enough for any ε
    width = min(top, math.ceil(6 * math.sqrt(n)) + 64)
    k = np.arange(top, top - width - 1, -1, dtype=np.float64)  # top, top−1, …
    # ln p(k)/p(top)
    down = np.concatenate([[0.0], np.cumsum(np.log(k[:-1]) - np.log(n - k[:-1] + 1))])
    k, down = k[down > -_LOST], down[down > -_LOST]
    with np.errstate(divide="ignore"):
        # 1 − e^ε·p(k−1)/p(k)
        gain = -np.expm1(np.minimum(0.0, epsilon + np.log(k) - np.log(n - k + 1)))
    total = float((np.exp(down) * gain).sum())
    return _log_mass(top, n) + math.log(total) if total > 0 else -math.inf


def binomial_delta(epsilon: float, *, coins: int) -> float:
    """δ(ε) of one whole number plus Binomial(``coins``, 1/2): Σ (p(k) − e^ε·p(k−1))₊.

    Neighbours are 1 apart. Exact but for rounding (a relative error of about 1e-15·√n·(1 +
    √ln(1/δ))), summed in logarithms from the largest counting term down; terms below e^−60 of it
    are left out. p(k)/p(k−1) = (n−k+1)/k falls with k, so the best test is {X ≤ k*}, k* =
    ⌊(n+1)/(1+e^ε)⌋, and no term cancels another. p(n−k) = p(k) makes both directions the same.
    Never below P(X = 0) = 2^−n: the end of the range gives the neighbour away whatever ε. A vector
    of counts of which neighbours differ in one, by 1, has the same profile: the other coordinates'
    noise has the same law.

    Raises:
        UsageError: ε is negative or NaN, or coins not a whole number from 1 to 2^36.

    >>> binomial_delta(0.0, coins=1), binomial_delta(5.0, coins=2)
    (0.5, 0.25)
    """
    _check(coins)
    if not epsilon >= 0:
        raise UsageError(f"epsilon={epsilon}: must be a number ≥ 0")
    return math.exp(_log_delta(epsilon, coins))


def binomial_epsilon(delta: float, *, coins: int) -> float:
    """The least ε ≥ 0 with ``binomial_delta(ε) ≤ delta``; infinite if ``delta`` < 2^−coins.

    Raises:
        UsageError: δ not strictly between 0 and 1, or coins not a whole number from 1 to 2^36.

    >>> binomial_epsilon(1e-10, coins=20)
    inf
    """
    probability(delta)
    _check(coins)
    log_delta = math.log(delta)
    if log_delta < -coins * math.log(2):
        return math.inf
    if _log_delta(0.0, coins) <= log_delta:
        return 0.0
    high = math.log(coins) + 1  # from ln n on, δ is 2^−n
    if _log_delta(high, coins) - log_delta >= 0:  # equal to 2^−n to the last digit
        return math.log(coins)
    return bisect(lambda e: _log_delta(e, coins) - log_delta, 0.0, high)


def binomial_coins(epsilon: float, delta: float) -> int:
    """The least number of fair coins whose heads make a count (ε, δ)-DP for neighbours 1 apart.

    By bisection: one coin more is post-processing, so δ(ε) never rises with the number of coins.

    Raises:
        UsageError: ε not a finite number > 0, δ not strictly between 0 and 1, or more than 2^36
            coins.

    >>> binomial_coins(1.0, 1e-10), binomial_coins(0.1, 1e-10)
    (155, 11767)
    """
    positive(epsilon=epsilon)
    probability(delta)
    log_delta = math.log(delta)

    def enough(n: int) -> bool:
        return _log_delta(epsilon, n) <= log_delta

    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST:
            raise UsageError(
                f"epsilon={epsilon}, delta={delta}: takes more than 2^36 coins; take a larger ε"
            )
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
