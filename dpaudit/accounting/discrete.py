"""Noise on a lattice: the discrete Gaussian and Laplace laws, and noise in shares (Skellam too).

The query may be rounded or not. Everything is in lattice units: queries are whole numbers, or are
rounded to whole numbers first.

And what Gaussian noise on a lattice costs under an accountant of the continuous mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting._checks import below_one, least_epsilon, number, positive, probability
from dpaudit.accounting.mechanisms import gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.types import EpsilonBounds

__all__ = [
    "LatticeSlack",
    "discrete_gaussian_bounds",
    "discrete_gaussian_delta",
    "discrete_gaussian_sum_bounds",
    "discrete_gaussian_sum_factor",
    "discrete_laplace_bounds",
    "discrete_laplace_delta",
    "farthest",
    "lattice_slack",
    "skellam_bounds",
    "skellam_rdp",
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
    theorem = "discrete Gaussian by zCDP (Canonne, Kamath and Steinke 2020, Theorem 4)"
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
                theorem = "continuous Gaussian, rounded at random (Poisson summation)"
        inner = scale * t / math.hypot(scale, t)
        factor = _log_factor(inner, dim)
        if near and math.log(delta) + factor < 0:
            own = gaussian_epsilon(
                delta * math.exp(factor), sigma=math.hypot(scale, t), sensitivity=near
            )
            low = max(low, own - 2 * factor)
    return EpsilonBounds(low=min(low, high), high=high, says=theorem)


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
    low, high, theorem = 0.0, math.inf, "no bound: the shares are too small"
    if math.log(delta) - apart > -700:
        one = discrete_gaussian_bounds(delta * math.exp(-apart), **own)  # type: ignore[arg-type]
        high = one.high + 2 * apart
        theorem = f"sum of {parties} shares, by Poisson summation near one; {one.says}"
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
            theorem = (
                "distributed discrete Gaussian (Kairouz, Liu and Steinke 2021, Proposition 14)"
            )
    return EpsilonBounds(low=min(low, high), high=high, says=theorem)


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
    theorem = "Skellam by Rényi divergence (Agarwal, Kairouz and Liu 2021, Theorem 3.5)"
    l2 = farthest(sensitivity, dim, rounded)
    if l2 == 0:
        return EpsilonBounds(low=0.0, high=0.0, says="whole numbers less than 1 apart are equal")
    l1 = min(math.sqrt(dim) * l2, l2 * l2)
    a = _ORDERS
    epsilon = skellam_rdp(a, variance=variance, l1=l1, l2=l2) + (
        -math.log(delta) + (a - 1) * np.log1p(-1 / a) - np.log(a)
    ) / (a - 1)
    return EpsilonBounds(low=0.0, high=max(0.0, float(epsilon.min())), says=theorem)


def _counts(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise UsageError(f"{name}={value}: must be at least 1")


@dataclass(frozen=True, slots=True)
class LatticeSlack:
    """A run on a lattice, as a run of the continuous Gaussian mechanism and a distance from it.

    Attributes:
        noise_multiplier: what to give the accountant.
        total_variation: η, the run's distance from that mechanism's, rounded.
    """

    noise_multiplier: float
    total_variation: float

    def delta(self, epsilon: float, *, delta: float) -> float:
        """δ of the run at ``epsilon``, where the accountant says (``epsilon``, ``delta``)."""
        number(epsilon=epsilon)
        below_one(delta)
        return min(1.0, delta + (1 + math.exp(epsilon)) * self.total_variation)


def lattice_slack(
    noise_multiplier: float, *, dim: int, steps: int, scale: float = 2.0**24
) -> LatticeSlack:
    """Account for ``steps`` releases g·(rint(S/g) + Z), as of ``dpaudit.secure_noise``.

    S is a vector of ``dim`` numbers that one record moves by at most C in ℓ₂; Z is discrete
    Gaussian, of independent integers, at ``scale`` s = σ/g or finer; σ = ``noise_multiplier`` × C.
    ``secure_noise`` has s in [2²⁴, 2²⁵).

    Formal guarantee: where an accountant (RDP, PRV, GDP or any other) gives (ε, δ) for the same run
    of the continuous Gaussian mechanism at ``result.noise_multiplier``, with the same sampling of
    batches, the run is (ε, ``result.delta(ε, delta=δ)``)-DP. Not claimed: anything of S itself, or
    of the generator behind Z.

    Proof. (1) |rint(a) − rint(b)| ≤ |a − b| + 1 in each coordinate, so K = rint(S/g) moves by at
    most C/g + √d. (2) Let R = rint(s·N(0, 1)). K + R = rint(K + s·N(0, 1)) is post-processing of
    the Gaussian mechanism of multiplier s/(C/g + √d) = z/(1 + z√d/s), which grows with s. (3) Let P
    be the law of Z, Q that of R, φ the density of s·N(0, 1), and u uniform on ±½. Then Q(k)/φ(k) =
    E exp(−u²/2s²)·cosh(ku/s²). By Jensen's inequality, log cosh y ≥ y²/2 − y⁴/12, E u² = 1/12 and
    E u⁴ = 1/80, ln(Q(k)/φ(k)) ≥ −1/24s² + k²/24s⁴ − k⁴/960s⁸. P = φ/N with N = Σφ(k) ≥ 1. By
    Poisson summation, with y = 2πms, E_P k² ≥ s²(1 − 2Σ_m y²e^(−y²/2)) and E_P k⁴ ≤ s⁴(3 +
    2Σ_m y⁴e^(−y²/2)); with their factors these sums over m ≥ 1 are below 3·10⁻⁷ and 10⁻⁵ at s = 1
    and fall faster than s⁻⁴. So KL(P‖Q) ≤ 3/960s⁴ + 10⁻⁷/s⁴ < 1/300s⁴ = κ. (4) The run is a
    function of its batches' coins and the T·d numbers Z, so it is within T·d·κ of the run with R in
    KL, and within η = √(T·d·κ/2) in total variation (Pinsker). (5) With P_x, Q_x the runs' laws,
    for neighbours x, x' and any event, P_x ≤ Q_x + η ≤ e^ε·Q_x' + δ + η ≤ e^ε·(P_x' + η) + δ + η.

    >>> slack = lattice_slack(1.0, dim=25_000_000, steps=10_000)
    >>> f"{slack.noise_multiplier:.5f} {slack.total_variation:.1e}"
    '0.99970 7.3e-11'
    >>> f"{slack.delta(3.0, delta=1e-5):.7e} {slack.delta(8.0, delta=1e-5):.3e}"
    '1.0001529e-05 1.022e-05'

    Raises:
        UsageError: an argument that is not a finite number above 0, or a scale below 1.
    """
    positive(noise_multiplier=noise_multiplier, dim=dim, steps=steps, scale=scale)
    if scale < 1:
        raise UsageError(f"scale={scale}: the bound holds from 1 lattice step on; take a finer one")
    distance = math.sqrt(steps * dim / (2 * 300)) / scale**2
    multiplier = noise_multiplier / (1 + noise_multiplier * math.sqrt(dim) / scale)
    return LatticeSlack(multiplier, min(1.0, distance))
