"""The Gaussian mechanism: its exact privacy profile and its calibration."""

from __future__ import annotations

import math

import scipy

from dpaudit.accounting._checks import bisect, positive, probability
from dpaudit.errors import UsageError

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_sigma", "gaussian_sigma_paper"]


def gaussian_sigma_paper(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """σ as the pancake paper calibrates it: ``ε = t²/2 − t·Φ⁻¹(δ)``, ``t = Δ/σ`` (Theorem 2.3).

    Formal guarantee: N(0, σ²I) is then (ε, δ)-DP, since the exact δ only subtracts a positive term. Not claimed:
    tightness; :func:`gaussian_sigma` needs a little less noise.

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
    """The least ε ≥ 0 at which the Gaussian mechanism is (ε, δ)-DP: the inverse of :func:`gaussian_delta`."""
    probability(delta)
    if gaussian_delta(0.0, sigma=sigma, sensitivity=sensitivity) <= delta:
        return 0.0
    t = sensitivity / sigma
    high = t * t / 2 - t * float(scipy.special.ndtri(delta))  # Theorem 2.3's bound is never too small
    return bisect(
        lambda e: math.log(max(gaussian_delta(e, sigma=sigma, sensitivity=sensitivity), 1e-320)) - math.log(delta),
        0.0,
        high * (1 + 1e-9) + 1e-12,
    )


def gaussian_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """The least σ for which the Gaussian mechanism is (ε, δ)-DP (analytic calibration, Balle and Wang 2018).

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
