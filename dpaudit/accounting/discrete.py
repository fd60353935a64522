"""Noise on a lattice: the privacy of the discrete Gaussian and the discrete Laplace law.

The query may be rounded or not. Everything is in lattice units: queries are whole numbers, or are
rounded to whole numbers first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from dpaudit.accounting._checks import least_epsilon, positive, probability
from dpaudit.accounting.mechanisms import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.types import EpsilonBounds

__all__ = [
    "discrete_gaussian_bounds",
    "discrete_gaussian_delta",
    "discrete_laplace_bounds",
    "discrete_laplace_delta",
    "farthest",
    "zcdp_epsilon",
]

_SUMMED = 2048.0  # the largest scale whose profile is summed term by term
_LONGEST = 1 << 20
_NUMERICAL = 1 + 1e-9  # what a summed bound is raised by


def zcdp_epsilon(delta: float, *, rho: float) -> float:
    """An ε at which ρ-zCDP gives (ε, δ)-DP, at the best order α.

    Canonne, Kamath and Steinke 2020, Proposition 12:

    ε = αρ + (ln(1/δ) + (α − 1)·ln(1 − 1/α) − ln α)/(α − 1) holds at every α > 1.
    """
    probability(delta)
    positive(rho=rho)

    def at(log_order: float) -> float:
        over = math.exp(log_order)  # α − 1
        order = 1 + over
        return (
            order * rho + (-math.log(delta) - over * math.log1p(1 / over) - math.log(order)) / over
        )

    middle = 0.5 * math.log(-math.log(delta) / rho)
    best = scipy.optimize.minimize_scalar(at, bounds=(middle - 10, middle + 10), method="bounded")
    return max(0.0, min(float(best.fun), at(middle)))


def discrete_gaussian_delta(epsilon: float, *, scale: float, shift: int) -> float:
    """δ(ε) of one whole number plus the discrete Gaussian, between neighbours ``shift`` apart.

    Canonne, Kamath and Steinke 2020 (arXiv 2004.00010), Theorem 7, as Σ P(z)·(1 − e^(ε − L(z)))₊
    with L(z) = (2z·shift + shift²)/(2·scale²): exact but for rounding. It grows with ``shift``: the
    law is log-concave, so that every best test is {z ≥ c} at any shift.

    Raises:
        UsageError: ``scale`` above 2048: too many terms; :func:`discrete_gaussian_bounds` does
            without them.
    """
    positive(scale=scale)
    if scale > _SUMMED:
        raise UsageError(
            f"scale={scale}: sums are taken up to {_SUMMED:g}; use discrete_gaussian_bounds"
        )
    if shift == 0:
        return float(max(0.0, -math.expm1(epsilon)))
    reach = math.ceil(39 * scale) + 1
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    with np.errstate(over="ignore"):
        mass = np.exp(-0.5 * (z / scale) ** 2)
        loss = (z + abs(shift) / 2) / scale * (abs(shift) / scale)
        gain = -np.expm1(np.minimum(0.0, epsilon - loss))
    return float((mass * gain).sum() / mass.sum())


def discrete_laplace_delta(epsilon: float, *, scale: float, shift: int) -> float:
    """δ(ε) of one whole number plus the discrete Laplace law, between neighbours ``shift`` apart.

    The loss is shift/b for z ≥ 0, (shift − 2i)/b at z = −i for 0 < i < shift, and −shift/b below; b
    is ``scale``. Exact but for rounding; it grows with ``shift`` as the discrete Gaussian's does.
    """
    positive(scale=scale)
    m = abs(shift)
    if m > _LONGEST:
        raise UsageError(f"shift={shift}: sums are taken up to {_LONGEST}")
    q = math.exp(-1 / scale)
    i = np.arange(1, m, dtype=np.float64)
    inner = (
        np.exp(-i / scale)
        * -np.expm1(np.minimum(0.0, epsilon - (m - 2 * i) / scale))
        * -math.expm1(-1 / scale)
    )
    outer = -math.expm1(min(0.0, epsilon - m / scale))
    below = q**m * -math.expm1(min(0.0, epsilon + m / scale)) if m else 0.0
    return float((outer + inner.sum() + below) / (1 + q))


def discrete_gaussian_bounds(
    delta: float, *, scale: float, sensitivity: float, dim: int, rounded: bool = False
) -> EpsilonBounds:
    """Bounds for the ε at ``delta`` of ``dim`` whole numbers plus independent discrete Gaussians.

    ``scale`` is the noise's. ``sensitivity`` is the query's L2 sensitivity Δ. If ``rounded``, the
    query is rounded to whole numbers first, which can carry neighbours up to Δ + √dim apart; in one
    dimension they then lie ⌊Δ + 1⌋ apart at most. The least of

    - zCDP: ρ = Δ²/(2·scale²) (Canonne, Kamath and Steinke 2020, Theorem 4; Rényi divergences of
      independent coordinates add up), turned into (ε, δ) by Proposition 12;
    - in one dimension and up to scale 2048, Theorem 7 itself, summed;
    - the continuous Gaussian, a little narrower, which is tight for scales far above 1. Draw X from
      N(v, s² − t²) and round it at random to y with P(y) ∝ exp(−(y − X)²/2t²). For whole v that is
      the discrete Gaussian around v but for a factor within r^±1, r = ((1+η)/(1−η))^dim, η = 2Σ
      exp(−2π²t²m²), because by Poisson summation Σ_n exp(−(n − X)²/2t²) is t√(2π)·(1 ± η) for every
      X, and N(0, s² − t²) plus N(0, t²) is N(0, s²) (Peikert 2010, Theorem 3.1, is this argument).
      Post-processing keeps (ε, δ), so the discrete Gaussian is (ε + 2 ln r, rδ)-DP wherever the
      Gaussian of variance s² − t² is (ε, δ)-DP.

    ``low``: in one dimension Theorem 7 again; else the continuous Gaussian a little wider: the
    discrete one plus N(0, t²) is N(0, s² + t²) but for such a factor. It takes the sensitivity to
    be attained, in the worst case of rounding by neighbours that are only Δ − √dim apart.

    Raises:
        UsageError: ``scale`` or ``sensitivity`` not a finite number > 0, or δ not strictly between
            0 and 1.
    """
    probability(delta)
    positive(scale=scale, sensitivity=sensitivity)
    far = farthest(sensitivity, dim, rounded)
    near = max(0.0, sensitivity - math.sqrt(dim)) if rounded else sensitivity
    if dim == 1:
        near = float(math.ceil(near) if rounded else math.floor(near))
    near = min(near, far)
    if far == 0:
        return EpsilonBounds(low=0.0, high=0.0, says="whole numbers less than 1 apart are equal")
    if dim == 1 and scale <= _SUMMED:

        def profile(shift: float) -> Callable[[float], float]:
            return lambda e: discrete_gaussian_delta(e, scale=scale, shift=int(shift))

        start = zcdp_epsilon(delta, rho=far / scale * (far / scale) / 2)
        return EpsilonBounds(
            low=least_epsilon(profile(near), delta, start) / _NUMERICAL,
            high=least_epsilon(profile(far), delta, start) * _NUMERICAL,
            says="discrete Gaussian profile, summed (Canonne, Kamath and Steinke 2020, Theorem 7)",
        )
    high = zcdp_epsilon(delta, rho=far / scale * (far / scale) / 2)
    says = "discrete Gaussian by zCDP (Canonne, Kamath and Steinke 2020, Theorem 4)"
    low = 0.0
    for t in (1.0, 1.25, 1.5, 2.0):
        if t >= scale:
            continue
        factor = _log_factor(t, dim)
        if math.log(delta) - factor > -700:
            own = gaussian_epsilon(
                delta * math.exp(-factor), sigma=math.sqrt(scale**2 - t**2), sensitivity=far
            )
            if own + 2 * factor < high:
                high = own + 2 * factor
                says = "continuous Gaussian, rounded at random (Poisson summation)"
        inner = scale * t / math.hypot(scale, t)
        factor = _log_factor(inner, dim)
        if near and math.log(delta) + factor < 0:
            own = gaussian_epsilon(
                delta * math.exp(factor), sigma=math.hypot(scale, t), sensitivity=near
            )
            low = max(low, own - 2 * factor)
    return EpsilonBounds(low=min(low, high), high=high, says=says)


def discrete_laplace_bounds(
    delta: float, *, scale: float, sensitivity: float, dim: int
) -> EpsilonBounds:
    """Bounds for the ε at ``delta`` of ``dim`` whole numbers plus discrete Laplace noise.

    The noise is independent in each, and ``scale`` is its b. Whole numbers at L2 distance Δ have L1
    distance at most min(√dim·Δ, Δ²), and ε is at most that over b, at δ = 0 (Ghosh, Roughgarden and
    Sundararajan 2012). In one dimension the exact profile, both ways, if Δ is attained.
    """
    probability(delta)
    positive(scale=scale, sensitivity=sensitivity)
    pure = min(math.sqrt(dim) * sensitivity, sensitivity * sensitivity) / scale
    shift = math.floor(sensitivity)
    if dim > 1 or shift > _LONGEST or math.isinf(pure):
        return EpsilonBounds(
            low=0.0, high=pure, says="discrete Laplace by its L1 sensitivity, at δ = 0"
        )
    value = least_epsilon(
        lambda e: discrete_laplace_delta(e, scale=scale, shift=shift), delta, shift / scale
    )
    return EpsilonBounds(
        low=value / _NUMERICAL, high=value * _NUMERICAL, says="exact discrete Laplace profile"
    )


def farthest(sensitivity: float, dim: int, rounded: bool) -> float:
    """How far apart neighbours are at most, as whole vectors: a squared norm is whole."""
    far = sensitivity + (math.sqrt(dim) if rounded else 0.0)
    if dim == 1:
        return float(math.floor(far))
    return math.sqrt(math.floor(far * far * (1 + 1e-12))) if far < 2**26 else far


def _log_factor(t: float, dim: int) -> float:
    """The log factor ln r = dim·ln((1+η)/(1−η)), η = 2Σ exp(−2π²t²m²); infinite where η ≥ 1."""
    eta = 2 * sum(math.exp(-2 * (math.pi * t * m) ** 2) for m in range(1, 40))
    return dim * (math.log1p(eta) - math.log1p(-eta)) if eta < 1 else math.inf
