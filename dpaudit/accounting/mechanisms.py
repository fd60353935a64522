"""The Gaussian, Laplace and exponential mechanisms: exact privacy profiles and calibrations."""

from __future__ import annotations

import math

import scipy

from dpaudit.accounting._checks import below_one, bisect, least_epsilon, positive, probability
from dpaudit.errors import UsageError

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_paper",
    "laplace_delta",
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


def laplace_delta(epsilon: float, *, scale: float, sensitivity: float = 1.0) -> float:
    """The exact profile δ(ε) of one number plus Laplace noise, density ∝ exp(−|x|/scale).

    The neighbours are Δ apart. With t = Δ/scale the loss is t for x ≤ 0, t − 2x/scale between, −t
    for x ≥ Δ; so the best test at ε is {x ≤ (t − ε)·scale/2}, and δ = 1 − e^((ε − t)/2) for |ε| ≤
    t, 0 above, 1 − e^ε below. Not claimed for a vector of L1 sensitivity Δ, of which only δ = 0 at
    ε = t is.

    Raises:
        UsageError: ε is NaN, or the scale or Δ is not a finite number above 0.

    >>> laplace_delta(1.0, scale=1.0), round(laplace_delta(0.0, scale=1.0), 6)
    (0.0, 0.393469)
    """
    if math.isnan(epsilon):
        raise UsageError(f"epsilon={epsilon}: must be a number")
    positive(scale=scale, sensitivity=sensitivity)
    t = sensitivity / scale
    return max(0.0, -math.expm1((epsilon - t) / 2)) if epsilon >= -t else -math.expm1(epsilon)


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
