"""Noise in shares: the privacy of sums of discrete Gaussians and of Skellam noise.

Everything is in lattice units: queries are whole numbers, or are rounded to whole numbers first.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.accounting._checks import positive, probability
from dpaudit.accounting.discrete import discrete_gaussian_bounds, farthest, zcdp_epsilon
from dpaudit.errors import UsageError
from dpaudit.types import EpsilonBounds

__all__ = [
    "discrete_gaussian_sum_bounds",
    "discrete_gaussian_sum_factor",
    "skellam_bounds",
    "skellam_rdp",
]

Orders = npt.NDArray[np.float64]

_ORDERS = np.unique(np.geomspace(2, 2**40, 40_000).astype(np.int64)).astype(np.float64)


def discrete_gaussian_sum_factor(scale: float, parties: int) -> float:
    """L such that a sum of ``parties`` discrete Gaussians is within e^±L of one discrete Gaussian.

    The one has scale s√k; the laws are that near at every whole number. For two of scales a and b,
    Σ_y exp(−y²/2a² − (x−y)²/2b²) is exp(−x²/2(a²+b²)) times Σ_y exp(−(y−cx)²/2t²), t² =
    a²b²/(a²+b²), c = a²/(a²+b²), and by Poisson summation the latter is t√(2π)·(1 ± η(t)), η(t) =
    2Σ_{m≥1} exp(−2π²t²m²), for every x. Adding the (j+1)-th to j of them has t² = s²·j/(j+1). Both
    laws sum to 1, so L = Σ_{j=1}^{k−1} ln((1+η_j)/(1−η_j)). (Kairouz, Liu and Steinke 2021 come to
    the same with their own constant, their τ = 10·Σ exp(−2π²s²·j/(j+1)).) Infinite where some η is
    1 or more.
    """
    total = 0.0
    for j in range(1, parties):
        t2 = scale * scale * j / (j + 1)
        eta = 2 * sum(math.exp(-2 * math.pi**2 * t2 * m * m) for m in range(1, 60))
        if eta >= 1:
            return math.inf
        total += math.log1p(eta) - math.log1p(-eta)
        if eta == 0:  # and so it is from here on
            break
    return total


def discrete_gaussian_sum_bounds(
    delta: float, *, scale: float, parties: int, sensitivity: float, dim: int, rounded: bool = False
) -> EpsilonBounds:
    """Bounds for the ε at ``delta`` of ``dim`` whole numbers, each plus a sum of noise.

    The sum is of ``parties`` discrete Gaussians of ``scale``. ``sensitivity`` (L2) and ``rounded``
    as in ``dpaudit.accounting.discrete.discrete_gaussian_bounds``. The least of

    - that function at scale·√parties, (ε₀, δ₀): laws within a factor e^±dL in all of ``dim``
      coordinates make the sum (ε₀ + 2dL, e^(dL)·δ₀)-DP (:func:`discrete_gaussian_sum_factor`);
    - Kairouz, Liu and Steinke 2021 (arXiv 2102.06387), Proposition 14: (Δ/(s√k) + τ√d)²/2-zCDP, for
      ``scale`` ≥ 1/2.

    ``low`` by the first argument the other way round; it takes the sensitivity to be attained.

    Raises:
        UsageError: ``scale`` or ``sensitivity`` not a finite number > 0, ``parties`` or ``dim``
            below 1, or δ not in (0, 1).
    """
    probability(delta)
    positive(scale=scale, sensitivity=sensitivity)
    _counts(parties=parties, dim=dim)
    whole = scale * math.sqrt(parties)
    own = {"scale": whole, "sensitivity": sensitivity, "dim": dim, "rounded": rounded}
    apart = dim * discrete_gaussian_sum_factor(scale, parties)
    low, high, says = 0.0, math.inf, "no bound: the shares are too small"
    if math.log(delta) - apart > -700:
        one = discrete_gaussian_bounds(delta * math.exp(-apart), **own)  # type: ignore[arg-type]
        high = one.high + 2 * apart
        says = f"sum of {parties} shares, by Poisson summation near one; {one.says}"
    if math.log(delta) + apart < 0:
        low = max(0.0, discrete_gaussian_bounds(delta * math.exp(apart), **own).low - 2 * apart)  # type: ignore[arg-type]
    if scale >= 0.5:
        far = farthest(sensitivity, dim, rounded)
        tau = 10 * sum(
            math.exp(-2 * (math.pi * scale) ** 2 * j / (j + 1)) for j in range(1, parties)
        )
        rho = (far / whole + tau * math.sqrt(dim)) ** 2 / 2
        theirs = zcdp_epsilon(delta, rho=rho) if rho > 0 else 0.0
        if theirs < high:
            high = theirs
            says = "distributed discrete Gaussian (Kairouz, Liu and Steinke 2021, Proposition 14)"
    return EpsilonBounds(low=min(low, high), high=high, says=says)


def skellam_rdp(order: Orders, *, variance: float, l1: float, l2: float) -> Orders:
    """Bound on Skellam noise's Rényi divergence at each whole ``order`` ≥ 2, shape (k,).

    ``l1`` and ``l2`` are the L1 and L2 sensitivities Δ₁ and Δ₂. With ``variance`` μ: αΔ₂²/2μ +
    min(((2α−1)Δ₂² + 6Δ₁)/4μ², 3Δ₁/2μ) (Agarwal, Kairouz and Liu 2021, arXiv 2110.04995, Theorem
    3.5).
    """
    more = np.minimum(
        ((2 * order - 1) * l2 * l2 + 6 * l1) / (4 * variance * variance), 3 * l1 / (2 * variance)
    )
    return np.asarray(order * (l2 * l2 / (2 * variance)) + more)


def skellam_bounds(
    delta: float, *, variance: float, sensitivity: float, dim: int, rounded: bool = False
) -> EpsilonBounds:
    """Bounds for the ε at ``delta`` of ``dim`` whole numbers plus independent Skellam noise.

    Its ``variance`` is μ. Closed under addition: k shares of variance μ/k are this. ``high`` from
    :func:`skellam_rdp` at the best whole order, by Canonne, Kamath and Steinke 2020, Proposition
    12; Δ₁ ≤ min(√d·Δ₂, Δ₂²) for whole vectors. ``low`` is 0: no claim.

    Raises:
        UsageError: ``variance`` or ``sensitivity`` not a finite number > 0, ``dim`` below 1, or δ
            not in (0, 1).
    """
    probability(delta)
    positive(variance=variance, sensitivity=sensitivity)
    _counts(dim=dim)
    says = "Skellam by Rényi divergence (Agarwal, Kairouz and Liu 2021, Theorem 3.5)"
    l2 = farthest(sensitivity, dim, rounded)
    if l2 == 0:
        return EpsilonBounds(low=0.0, high=0.0, says="whole numbers less than 1 apart are equal")
    l1 = min(math.sqrt(dim) * l2, l2 * l2)
    a = _ORDERS
    epsilon = skellam_rdp(a, variance=variance, l1=l1, l2=l2) + (
        -math.log(delta) + (a - 1) * np.log1p(-1 / a) - np.log(a)
    ) / (a - 1)
    return EpsilonBounds(low=0.0, high=max(0.0, float(epsilon.min())), says=says)


def _counts(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise UsageError(f"{name}={value}: must be at least 1")
