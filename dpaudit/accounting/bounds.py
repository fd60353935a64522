"""The pancake's shape along the key, and the paper's two bounds on what it leaves of privacy."""

from __future__ import annotations

import math

import scipy

from dpaudit.accounting._checks import positive, probability
from dpaudit.errors import UsageError

__all__ = ["pancake_epsilon_lower", "pancake_epsilon_upper", "peak_spacing", "peak_width"]


def peak_spacing(*, sigma: float, beta: float, gamma: float) -> float:
    """Distance P of neighbouring pancakes along the key (arXiv 2509.23834, Lemma 2.6)."""
    positive(sigma=sigma, beta=beta, gamma=gamma)
    return math.sqrt(2 * math.pi) * sigma * gamma / (beta * beta + gamma * gamma)


def peak_width(*, sigma: float, beta: float, gamma: float) -> float:
    """Standard deviation s of one pancake along the key (arXiv 2509.23834, Lemma 2.6)."""
    positive(sigma=sigma, beta=beta, gamma=gamma)
    return sigma * beta / math.hypot(beta, gamma)


def pancake_epsilon_upper(delta: float, *, sigma: float, beta: float, gamma: float, sensitivity: float = 1.0) -> float:
    """ε that the pancake keeps even towards its key holder: the Gaussian's at the peak width (Theorem 4.4)."""
    positive(sensitivity=sensitivity)
    probability(delta)
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
    positive(beta=beta, gamma=gamma)
    probability(delta)
    if not 0 <= fraction <= 0.5:
        raise UsageError(f"fraction={fraction}: must lie in [0, 1/2]")
    x = fraction * (gamma / beta) * math.sqrt(math.pi / (2 * (beta * beta + gamma * gamma)))  # f·P/(2s)
    if x <= 0:
        return 0.0
    # exact form ln((1−δ−2Φ(−x)) / (2Φ(−x))) written with log Φ, which the closed form in the paper approximates
    log_tail = math.log(2) + float(scipy.special.log_ndtr(-x))
    inside = 1 - delta - math.exp(log_tail)
    return max(0.0, math.log(inside) - log_tail) if inside > 0 else 0.0
