"""What Gaussian noise on top of a pancake repairs: ratio R, deviation η, and a τ for either.

The proof is written out in ``dpaudit_mitigations/smoothing/PROOF.md``.
"""

from __future__ import annotations

import math

from dpaudit.accounting._checks import bisect, positive
from dpaudit.accounting.profile import peak_width
from dpaudit.errors import UsageError

__all__ = [
    "smoothed_pancake",
    "smoothing_epsilon",
    "smoothing_eta",
    "smoothing_ratio",
    "smoothing_tau",
    "smoothing_tau_at_ratio",
]

_SAYS_NOTHING = 0.2  # below this β′² the waves add up to more than 1: 2·(e^−0.2π + e^−0.8π) > 1


def smoothed_pancake(
    tau: float, *, sigma: float, beta: float, gamma: float
) -> tuple[float, float, float]:
    """(σ′, β′, γ′) of the pancake that (σ, β, γ) plus independent N(0, τ²I) is, exactly.

    Convolution leaves peaks and weights where they are (P and r stay) and widens each to
    ``√(s²+τ²)``; with ``σ′² = σ²+τ²``, ``β′ = r·√(s²+τ²)/σ′`` and ``γ′ = γσ/σ′`` that is again
    Lemma 2.6's law. So :func:`~dpaudit.accounting.pancake_delta` at these is the exact profile
    after smoothing.

    >>> [round(x, 6) for x in smoothed_pancake(0.05, sigma=1.0, beta=1e-3, gamma=32.0)]
    [1.001249, 1.598004, 31.960075]
    """
    positive(tau=tau, sigma=sigma, beta=beta, gamma=gamma)
    total = math.hypot(sigma, tau)
    width = math.hypot(peak_width(sigma=sigma, beta=beta, gamma=gamma), tau)
    return total, math.hypot(beta, gamma) * width / total, gamma * sigma / total


def smoothing_ratio(*, tau: float, sigma: float, beta: float, gamma: float) -> float:
    """R of a pancake smoothed by N(0, τ²I): a smoothed peak's width over the peaks' distance.

    Both are corrected:

    ``R = √(s²+τ²)·(γσ/r)/(P·√(σ²+τ²)) = β′/√(2π)``, with β′ of :func:`smoothed_pancake`. About 0.86
    leaves η = 1e-6, 1.5 leaves 1e-19.

    >>> round(smoothing_ratio(tau=0.05, sigma=1.0, beta=1e-3, gamma=32.0), 4)
    0.6375
    """
    return smoothed_pancake(tau, sigma=sigma, beta=beta, gamma=gamma)[1] / math.sqrt(2 * math.pi)


def smoothing_eta(
    *, tau: float, sigma: float, beta: float, gamma: float, waves: float = math.inf
) -> float:
    """η such that a pancake smoothed by N(0, τ²I) has 1 ± η times the density of N(0, σ²+τ²).

    With R of :func:`smoothing_ratio`, ``W = 2Σ exp(−2π²m²R²)`` and ``L = 2Σ exp(−πm²r²)``, Poisson
    summation puts the ratio between ``(1−W)/(1+L)`` and ``(1+W)/(1+L)``; R² ≤ r²/2π makes L ≤ W,
    and so ``η = (W+L)/(1+L)``. Smoothing by discrete Gaussians on a lattice is as good for the
    first ``waves`` terms of W, and the others are then counted as if it did nothing to them:
    ``2Σ exp(−πm²β²)`` over m > ``waves``.

    Formal guarantee: what :func:`smoothing_epsilon` makes of it, if η < 1. Returns ``inf`` where it
    says nothing.

    >>> f"{smoothing_eta(tau=0.05, sigma=1.0, beta=1e-3, gamma=32):.2e}"
    '6.56e-04'
    """
    wide = smoothed_pancake(tau, sigma=sigma, beta=beta, gamma=gamma)[1]
    rest = math.erfc(math.sqrt(math.pi) * beta * waves) / beta  # the sum is below the integral
    return _eta(wide * wide, beta * beta + gamma * gamma, rest)


def _eta(wide: float, r2: float, rest: float = 0.0) -> float:
    """η at β′² = ``wide`` and r² = ``r2``; ``rest`` is added to W."""
    if wide < _SAYS_NOTHING:
        return math.inf
    wave = rest + 2 * sum(math.exp(-math.pi * m * m * wide) for m in range(1, 50))
    lattice = 2 * sum(math.exp(-math.pi * m * m * r2) for m in range(1, 50))
    return (wave + lattice) / (1 + lattice) if wave < 1 else math.inf


def smoothing_epsilon(eta: float, *, directions: int = 1) -> float:
    """The log of the largest ratio of densities within 1 ± η of the Gaussian's in every direction.

    Formal guarantee: with k ``directions`` the smoothed pancake is (ε + this, (1+η)^k·δ)-DP towards
    the key holder wherever the Gaussian with variance σ²+τ² is (ε, δ)-DP. Infinite where η ≥ 1.

    >>> round(smoothing_epsilon(0.5), 4)
    1.0986
    """
    return directions * (math.log1p(eta) - math.log1p(-eta)) if eta < 1 else math.inf


def smoothing_tau(eta: float, *, sigma: float, gamma: float) -> float:
    """The least smoothing τ that brings η down to ``eta`` for every β, for γ at least ``gamma``.

    η falls as β and γ grow (β′² = β² + γ²τ²/(σ²+τ²) grows with both, and r with it), so the worst
    case is β → 0 at that γ.

    Raises:
        UsageError: η ≥ 1, which says nothing; or no τ ≤ σ reaches it: the pancakes are too far
            apart (γ too small).
    """
    positive(eta=eta, sigma=sigma, gamma=gamma)
    if eta >= 1:
        raise UsageError(f"eta={eta}: must be below 1; take e.g. 1e-6")

    def excess(turns: float) -> float:  # τ in units of σ/γ, which is about the peaks' distance
        share = (turns / gamma) ** 2
        return min(_eta(turns * turns / (1 + share), gamma * gamma), 10.0) - eta

    if excess(gamma) > 0:
        raise UsageError(
            f"gamma={gamma}: pancakes this far apart need smoothing beyond σ; "
            "defend against a larger γ"
        )
    return sigma / gamma * bisect(excess, 0.1, gamma)


def smoothing_tau_at_ratio(ratio: float, *, sigma: float, gamma: float) -> float:
    """The least smoothing τ with R ≥ ``ratio`` for every β, given the smallest γ to defend against.

    ``τ²/(σ²+τ²) = 2π·ratio²/γ²``, which is R at β → 0 turned round. So the L2 error grows by
    ``√(1 + τ²/σ²) = (1 − 2π·ratio²/γ²)^−½``; for γ ≥ 2√d that is 1 + 0.79·ratio²/d, and a little
    more for small d.

    Raises:
        UsageError: no τ ≤ σ reaches it: the pancakes are too far apart (γ too small).

    >>> round(smoothing_tau_at_ratio(1.5, sigma=1.0, gamma=32.0), 4)
    0.1183
    """
    positive(ratio=ratio, sigma=sigma, gamma=gamma)
    share = 2 * math.pi * (ratio / gamma) ** 2
    if share > 0.5:
        raise UsageError(
            f"gamma={gamma}: ratio={ratio} needs smoothing beyond σ; "
            f"defend against γ ≥ {2 * math.sqrt(math.pi) * ratio:.3g}"
        )
    return sigma * math.sqrt(share / (1 - share))
