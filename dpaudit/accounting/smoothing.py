"""What independent Gaussian noise on top of a pancake mends."""

from __future__ import annotations

import math

from dpaudit.accounting._checks import bisect, positive
from dpaudit.accounting.bounds import peak_spacing, peak_width
from dpaudit.errors import UsageError

__all__ = ["smoothed_pancake", "smoothing_eta", "smoothing_tau"]


def smoothed_pancake(tau: float, *, sigma: float, beta: float, gamma: float) -> tuple[float, float, float]:
    """(σ′, β′, γ′) of the pancake that the pancake (σ, β, γ) plus independent N(0, τ²I) is, exactly.

    Convolution leaves peaks and weights where they are (P and r stay) and widens each to ``√(s²+τ²)``; with
    ``σ′² = σ²+τ²``, ``β′ = r·√(s²+τ²)/σ′`` and ``γ′ = γσ/σ′`` that is again Lemma 2.6's law. So
    :func:`~dpaudit.accounting.pancake_delta` at these is the exact profile after smoothing.

    >>> [round(x, 6) for x in smoothed_pancake(0.05, sigma=1.0, beta=1e-3, gamma=32.0)]
    [1.001249, 1.598004, 31.960075]
    """
    positive(tau=tau, sigma=sigma, beta=beta, gamma=gamma)
    total = math.hypot(sigma, tau)
    width = math.hypot(peak_width(sigma=sigma, beta=beta, gamma=gamma), tau)
    return total, math.hypot(beta, gamma) * width / total, gamma * sigma / total


def smoothing_eta(*, tau: float, sigma: float, beta: float, gamma: float) -> float:
    """How far the density of a pancake smoothed by N(0, τ²I) can be from that of N(0, σ²+τ²), as a ratio 1 ± η.

    With ``R = √(s²+τ²)·(γσ/r)/(P·√(σ²+τ²))``, ``W = 2Σ exp(−2π²m²R²)`` and ``L = 2Σ exp(−πm²r²)``, Poisson summation
    puts the ratio between ``(1−W)/(1+L)`` and ``(1+W)/(1+L)``; R² ≤ r²/2π makes L ≤ W, and so ``η = (W+L)/(1+L)``.

    Formal guarantee: the smoothed pancake is (ε + ln((1+η)/(1−η)), (1+η)·δ)-DP towards the key holder wherever the
    Gaussian with variance σ²+τ² is (ε, δ)-DP, if η < 1. Returns ``inf`` where it says nothing.

    >>> f"{smoothing_eta(tau=0.05, sigma=1.0, beta=1e-3, gamma=32):.2e}"
    '6.56e-04'
    """
    positive(tau=tau, sigma=sigma, beta=beta, gamma=gamma)
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
    positive(eta=eta, sigma=sigma, gamma=gamma)
    if eta >= 1:
        raise UsageError(f"eta={eta}: must be below 1; take e.g. 1e-6")
    tiny = 1e-9  # β → 0 is the worst case: the narrowest pancakes

    def excess(tau: float) -> float:  # in units of σ/γ, which is about the peaks' distance
        return min(smoothing_eta(tau=tau / gamma, sigma=1.0, beta=tiny, gamma=gamma), 10.0) - eta

    if excess(gamma) > 0:
        raise UsageError(f"gamma={gamma}: pancakes this far apart need smoothing beyond σ; defend against a larger γ")
    return sigma / gamma * bisect(excess, 0.1, gamma)
