"""How much noise, how much privacy: Gaussian calibration, privacy profiles, and the pancake's bounds.

Every function takes scalars and returns a float. δ is a probability, ε is in nats, Δ and σ share the query's unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy

from dpaudit.errors import UsageError

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_paper",
    "pancake_epsilon_lower",
    "pancake_epsilon_upper",
    "peak_spacing",
    "peak_width",
    "smoothing_eta",
    "smoothing_tau",
]


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")


def _probability(delta: float) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"delta={delta}: must lie strictly between 0 and 1")


def _bisect(f: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(f, low, high, xtol=1e-15, rtol=8.9e-16, maxiter=500))


def gaussian_sigma_paper(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """σ as the pancake paper calibrates it: ``ε = t²/2 − t·Φ⁻¹(δ)``, ``t = Δ/σ`` (Theorem 2.3).

    Formal guarantee: N(0, σ²I) is then (ε, δ)-DP, since the exact δ only subtracts a positive term. Not claimed:
    tightness; :func:`gaussian_sigma` needs a little less noise.

    >>> [round(gaussian_sigma_paper(e, 1e-10), 4) for e in (0.125, 0.25, 0.5, 1.0)]
    [50.9692, 25.5237, 12.8008, 6.439]
    """
    _positive(epsilon=epsilon, sensitivity=sensitivity)
    _probability(delta)
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
    _positive(sigma=sigma, sensitivity=sensitivity)
    if epsilon == math.inf:
        return 0.0
    t = sensitivity / sigma
    first = scipy.special.log_ndtr(t / 2 - epsilon / t)
    second = epsilon + scipy.special.log_ndtr(-t / 2 - epsilon / t)
    return float(max(0.0, -math.exp(first) * math.expm1(min(0.0, second - first))))


def gaussian_epsilon(delta: float, *, sigma: float, sensitivity: float = 1.0) -> float:
    """The least ε ≥ 0 at which the Gaussian mechanism is (ε, δ)-DP: the inverse of :func:`gaussian_delta`."""
    _probability(delta)
    if gaussian_delta(0.0, sigma=sigma, sensitivity=sensitivity) <= delta:
        return 0.0
    t = sensitivity / sigma
    high = t * t / 2 - t * float(scipy.special.ndtri(delta))  # Theorem 2.3's bound is never too small
    return _bisect(
        lambda e: math.log(max(gaussian_delta(e, sigma=sigma, sensitivity=sensitivity), 1e-320)) - math.log(delta),
        0.0,
        high * (1 + 1e-9) + 1e-12,
    )


def gaussian_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """The least σ for which the Gaussian mechanism is (ε, δ)-DP (analytic calibration, Balle and Wang 2018).

    >>> gaussian_sigma(0.25, 1e-10) < gaussian_sigma_paper(0.25, 1e-10)
    True
    """
    _positive(epsilon=epsilon, sensitivity=sensitivity)
    _probability(delta)
    high = gaussian_sigma_paper(epsilon, delta)
    low = high
    while gaussian_delta(epsilon, sigma=low) <= delta:
        low /= 2
        if low < high * 2.0**-60:
            return low * sensitivity
    # in units of Δ, so that the solver's absolute tolerance does not meet a Δ of its own size
    return sensitivity * _bisect(
        lambda s: math.log(max(gaussian_delta(epsilon, sigma=s), 1e-320)) - math.log(delta),
        low,
        high * (1 + 1e-12),
    )


def peak_spacing(*, sigma: float, beta: float, gamma: float) -> float:
    """Distance P of neighbouring pancakes along the key (arXiv 2509.23834, Lemma 2.6)."""
    _positive(sigma=sigma, beta=beta, gamma=gamma)
    return math.sqrt(2 * math.pi) * sigma * gamma / (beta * beta + gamma * gamma)


def peak_width(*, sigma: float, beta: float, gamma: float) -> float:
    """Standard deviation s of one pancake along the key (arXiv 2509.23834, Lemma 2.6)."""
    _positive(sigma=sigma, beta=beta, gamma=gamma)
    return sigma * beta / math.hypot(beta, gamma)


def pancake_epsilon_upper(delta: float, *, sigma: float, beta: float, gamma: float, sensitivity: float = 1.0) -> float:
    """ε that the pancake keeps even towards its key holder: the Gaussian's at the peak width (Theorem 4.4)."""
    _positive(sensitivity=sensitivity)
    _probability(delta)
    t = sensitivity / peak_width(sigma=sigma, beta=beta, gamma=gamma)
    return max(0.0, t * t / 2 - t * float(scipy.special.ndtri(delta)))


def pancake_epsilon_lower(delta: float, *, beta: float, gamma: float, fraction: float = 0.25) -> float:
    """ε that the pancake mechanism exceeds towards the key holder (Theorem 4.2).

    ``fraction`` is the distance of the two query results along the key in peak spacings, modulo 1, at most 1/2; 1/4 is
    its median over keys when the spacing is far below Δ/√d, the size of that distance (Proposition 4.3); where it is
    not, as at γ = 2√d and σ = 50, the median is near 0.01. Returns 0 where the theorem says nothing.

    >>> f"{pancake_epsilon_lower(1e-10, beta=1e-5, gamma=32):.4e}"
    '4.9087e+08'
    """
    _positive(beta=beta, gamma=gamma)
    _probability(delta)
    if not 0 <= fraction <= 0.5:
        raise UsageError(f"fraction={fraction}: must lie in [0, 1/2]")
    x = fraction * (gamma / beta) * math.sqrt(math.pi / (2 * (beta * beta + gamma * gamma)))  # f·P/(2s)
    if x <= 0:
        return 0.0
    # exact form ln((1−δ−2Φ(−x)) / (2Φ(−x))) written with log Φ, which the closed form in the paper approximates
    log_tail = math.log(2) + float(scipy.special.log_ndtr(-x))
    inside = 1 - delta - math.exp(log_tail)
    return max(0.0, math.log(inside) - log_tail) if inside > 0 else 0.0


def smoothing_eta(*, tau: float, sigma: float, beta: float, gamma: float) -> float:
    """How far the density of a pancake smoothed by N(0, τ²I) can be from that of N(0, σ²+τ²), as a ratio 1 ± η.

    With ``R = √(s²+τ²)·(γσ/r)/(P·√(σ²+τ²))``, ``W = 2Σ exp(−2π²m²R²)`` and ``L = 2Σ exp(−πm²r²)``, Poisson summation
    puts the ratio between ``(1−W)/(1+L)`` and ``(1+W)/(1+L)``; R² ≤ r²/2π makes L ≤ W, and so ``η = (W+L)/(1+L)``.

    Formal guarantee: the smoothed pancake is (ε + ln((1+η)/(1−η)), (1+η)·δ)-DP towards the key holder wherever the
    Gaussian with variance σ²+τ² is (ε, δ)-DP, if η < 1. Returns ``inf`` where it says nothing.

    >>> f"{smoothing_eta(tau=0.05, sigma=1.0, beta=1e-3, gamma=32):.2e}"
    '6.56e-04'
    """
    _positive(tau=tau, sigma=sigma, beta=beta, gamma=gamma)
    r = math.hypot(beta, gamma)
    width = peak_width(sigma=sigma, beta=beta, gamma=gamma)
    spacing = peak_spacing(sigma=sigma, beta=beta, gamma=gamma)
    ratio = math.hypot(width, tau) * (gamma * sigma / r) / (spacing * math.hypot(sigma, tau))
    wave = 2 * sum(math.exp(-2 * (math.pi * m * ratio) ** 2) for m in range(1, 200))
    lattice = 2 * sum(math.exp(-math.pi * (m * r) ** 2) for m in range(1, 50))
    return (wave + lattice) / (1 + lattice) if wave < 1 else math.inf


def smoothing_tau(eta: float, *, sigma: float, gamma: float) -> float:
    """The least smoothing τ that brings η down to ``eta`` for every β, given the smallest γ to defend against.

    Raises:
        UsageError: η ≥ 1, which says nothing; or no τ ≤ σ reaches it: the pancakes are too far apart (γ too small).
    """
    _positive(eta=eta, sigma=sigma, gamma=gamma)
    if eta >= 1:
        raise UsageError(f"eta={eta}: must be below 1; take e.g. 1e-6")
    tiny = 1e-9  # β → 0 is the worst case: the narrowest pancakes

    def excess(tau: float) -> float:  # in units of σ/γ, which is about the peaks' distance
        return min(smoothing_eta(tau=tau / gamma, sigma=1.0, beta=tiny, gamma=gamma), 10.0) - eta

    if excess(gamma) > 0:
        raise UsageError(f"gamma={gamma}: pancakes this far apart need smoothing beyond σ; defend against a larger γ")
    return sigma / gamma * _bisect(excess, 0.1, gamma)
