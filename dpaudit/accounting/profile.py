"""The exact profile of the Gaussian pancake towards its key holder, also under added noise.

The proof for added noise is written out in ``dpaudit_mitigations/smoothing/PROOF.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import scipy

from dpaudit.accounting._checks import bisect, positive, probability
from dpaudit.accounting._phase import (
    FINE,
    ROOT_2PI,
    Array,
    Pair,
    crossings,
    gaussian_profile,
    graded,
    integrate,
)
from dpaudit.errors import UsageError

__all__ = [
    "ProfileValue",
    "averaged",
    "delta_of",
    "independent",
    "inverse",
    "invert",
    "pancake_delta",
    "pancake_epsilon",
    "pancake_epsilon_lower",
    "pancake_epsilon_upper",
    "peak_spacing",
    "peak_width",
    "smoothed_pancake",
    "smoothing_epsilon",
    "smoothing_eta",
    "smoothing_ratio",
    "smoothing_tau",
    "smoothing_tau_at_ratio",
]


def peak_spacing(*, sigma: float, beta: float, gamma: float) -> float:
    """Distance P of neighbouring pancakes along the key (arXiv 2509.23834, Lemma 2.6)."""
    positive(sigma=sigma, beta=beta, gamma=gamma)
    return math.sqrt(2 * math.pi) * sigma * gamma / (beta * beta + gamma * gamma)


def peak_width(*, sigma: float, beta: float, gamma: float) -> float:
    """Standard deviation s of one pancake along the key (arXiv 2509.23834, Lemma 2.6)."""
    positive(sigma=sigma, beta=beta, gamma=gamma)
    return sigma * beta / math.hypot(beta, gamma)


def pancake_epsilon_upper(
    delta: float, *, sigma: float, beta: float, gamma: float, sensitivity: float = 1.0
) -> float:
    """ε that the pancake keeps towards its key holder: a Gaussian's at peak width (Theorem 4.4)."""
    positive(sensitivity=sensitivity)
    probability(delta)
    t = sensitivity / peak_width(sigma=sigma, beta=beta, gamma=gamma)
    return max(0.0, t * t / 2 - t * float(scipy.special.ndtri(delta)))


def pancake_epsilon_lower(
    delta: float, *, beta: float, gamma: float, fraction: float = 0.25
) -> float:
    """ε that the pancake mechanism exceeds towards the key holder (Theorem 4.2).

    ``fraction`` is the distance of the two query results along the key in peak spacings, modulo 1,
    at most 1/2; 1/4 is its median over keys when the spacing is far below Δ/√d, the size of that
    distance (Proposition 4.3); where it is not, as at γ = 2√d and σ = 50, the median is near 0.01.
    Returns 0 where the theorem says nothing.

    >>> f"{pancake_epsilon_lower(1e-10, beta=1e-5, gamma=32):.4e}"
    '4.9087e+08'
    """
    positive(beta=beta, gamma=gamma)
    probability(delta)
    if not 0 <= fraction <= 0.5:
        raise UsageError(f"fraction={fraction}: must lie in [0, 1/2]")
    # f·P/(2s)
    x = fraction * (gamma / beta) * math.sqrt(math.pi / (2 * (beta * beta + gamma * gamma)))
    if x <= 0:
        return 0.0
    # exact form ln((1−δ−2Φ(−x)) / (2Φ(−x))), written with log Φ; the paper's closed form
    # approximates it
    log_tail = math.log(2) + float(scipy.special.log_ndtr(-x))
    inside = 1 - delta - math.exp(log_tail)
    return max(0.0, math.log(inside) - log_tail) if inside > 0 else 0.0


_CERTAIN = 1e-13  # a relative error that counts as none

_ROUGH = 1e-6  # relative: of the integrals that a search begins with

_NEAR = 1e-10  # relative: how far from its end such a search is taken to be off

_DIRECT_GAMMA = 64.0  # up to here the lattice is summed when it does not average out


@dataclass(frozen=True)
class ProfileValue:
    """A number and its error: the true one lies in ``value ± error`` as its function promises."""

    value: float
    error: float


def pancake_delta(
    epsilon: float, *, sigma: float, beta: float, gamma: float, along: float, across: float
) -> ProfileValue:
    """The exact δ(ε) of the pancake towards its key holder, for one difference of two queries.

    ``along`` is the difference's component on the secret direction, ``across`` the norm of the
    rest. With ``T = √(2π)σ/γ``, Lemma 2.6's mixture f is ``∝ exp(−x²/2σ²)·θ(x/T)`` with ``θ(u) =
    Σ_k exp(−π(k−u)²/β²)`` of period 1 (arXiv 2509.23834; completing the square turns its peaks kP
    into these teeth kT under the envelope). The privacy loss ``ln f(x) − ln f(x−along) +
    N(across²/2σ², across²/σ²)`` is therefore that of N(0, σ²I) at the whole shift ``Δ =
    √(along²+across²)`` plus ``h(u) = ln θ(u) − ln θ(u − along/T)`` of the phase u = x/T mod 1.
    Poisson summation over the periods makes the two independent up to a factor ``1 ± W``, ``W =
    2Σ_m exp(−πm²γ²across²/Δ²)``, and so, with δ_G the Gaussian mechanism's profile at Δ/σ (Balle
    and Wang 2018),

        ``δ(ε) = ∫ θ(u)·δ_G(ε − h(u)) du / (β·(1 + 2Σ_m exp(−πm²r²)))``, r² = β²+γ².

    Where W is not negligible (small γ, or nearly all of the difference along the key) and γ ≤ 64,
    the periods are summed one by one instead. f is symmetric, hence both directions (D against D′
    and D′ against D) have the same profile, and the sign of ``along`` does not matter.

    What ``error`` holds. Rigorous: the phases and periods left out, and the dependence of phase and
    Gaussian loss (the lesser of W and a bound O(γ⁻²) from the integrand's variation). An estimate:
    the quadrature error, Σ|Kronrod − Gauss|. Not in it: rounding, as if ε and ``along`` were off by
    a few units in their 16th digit; for a loss of 1e12 that is an ε off by 1e-4, and β = 1e-6 shows
    the 10th digit of ``along``·γ/σ.

    Raises:
        UsageError: a parameter is not finite or not above 0, ``across`` is negative or ε is NaN.

    >>> round(pancake_delta(1.0, sigma=1.0, beta=3.0, gamma=32.0, along=0.6, across=0.8).value, 6)
    0.126937
    """
    if math.isnan(epsilon):
        raise UsageError(f"epsilon={epsilon}: must be a number; pass the ε at which δ is wanted")
    return delta_of(epsilon, Pair(sigma, beta, gamma, along, across))


def pancake_epsilon(
    delta: float, *, sigma: float, beta: float, gamma: float, along: float, across: float
) -> ProfileValue:
    """The least ε ≥ 0 with ``δ(ε) ≤ delta``: the inverse of :func:`pancake_delta`.

    ``error`` is such that at ``value − error`` the profile less its error is still at least
    ``delta``, and at ``value + error`` the profile plus its error is at most that; it is as
    rigorous as the profile's own error, plus rounding.

    Raises:
        UsageError: as :func:`pancake_delta`, or δ not strictly between 0 and 1.

    >>> pair = {"along": 0.1, "across": 0.9949874371067}
    >>> exact = pancake_epsilon(1e-10, sigma=1.0, beta=1e-5, gamma=32.0, **pair)
    >>> f"{exact.value:.4e}"
    '2.4043e+09'
    """
    probability(delta)
    pair = Pair(sigma, beta, gamma, along, across)
    return inverse(delta_of, pair, delta)


def delta_of(epsilon: float, pair: Pair, *, relative: float = FINE) -> ProfileValue:
    """:func:`pancake_delta` for a :class:`Pair`, integrated to ``relative``."""
    if epsilon == math.inf or pair.t == 0:
        return ProfileValue(max(0.0, -math.expm1(min(0.0, epsilon))) if epsilon < 0 else 0.0, 0.0)
    if epsilon == -math.inf:
        return ProfileValue(1.0, 0.0)
    if pair.along == 0:  # the pancake has no part in it
        return ProfileValue(float(gaussian_profile(np.array([epsilon]), pair.t)[0]), 0.0)
    if pair.wave > _CERTAIN and pair.gamma <= _DIRECT_GAMMA:
        return _by_period(epsilon, pair)
    return averaged(epsilon, pair, relative=relative)


def _edges(epsilon: float, pair: Pair, *, depth: int = 50) -> Array:
    phase = pair.phase
    edges = graded(phase.kinks, half=phase.half, depth=depth)
    roots = crossings(lambda v: phase.loss(v) - epsilon, edges)
    return np.union1d(edges, graded(roots, half=phase.half, depth=depth)) if roots else edges


def independent(epsilon: float, pair: Pair, *, relative: float = FINE) -> ProfileValue:
    """The identity of :func:`pancake_delta`, with phase and Gaussian loss as if independent."""
    phase, t = pair.phase, pair.t
    total, doubt = integrate(
        lambda v: phase.density(v) * gaussian_profile(epsilon - phase.loss(v), t),
        _edges(epsilon, pair),
        relative=relative,
    )
    return ProfileValue(
        min(1.0, total / pair.lattice), float((doubt + phase.tail) / pair.lattice + 1e-320)
    )


def averaged(epsilon: float, pair: Pair, *, relative: float = FINE) -> ProfileValue:
    """Phase and Gaussian loss taken as independent, with the bound on what that leaves out."""
    phase, t, wave = pair.phase, pair.t, pair.wave
    alone = independent(epsilon, pair, relative=relative)
    if wave == 0:
        return alone
    dependence = wave * (alone.value + alone.error)
    if wave > _CERTAIN:
        bend, more = integrate(
            lambda v: phase.density(v) * _variation((epsilon - phase.loss(v)) / t - t / 2, t),
            _edges(epsilon, pair),
            relative=1e-3,
        )
        share = pair.along / math.hypot(pair.along, pair.across)
        dependence = min(
            dependence, (bend + more) * math.pi / 6 / (pair.gamma * share) ** 2 / pair.lattice
        )
    return ProfileValue(alone.value, alone.error + dependence)


def _variation(z: Array, t: float) -> Array:
    """Total variation of the derivative of φ(y)·(1 − e^{t(z−y)})₊, at most.

    Its parts: the kink, then each Gaussian's own. Fourier coefficients of that function at
    frequency ω are at most this over ω²; ω = √(2π)·m·γ·along/Δ here.
    """

    def own(y: Array) -> Array:  # ∫_y^∞ |φ″|, at most
        return np.asarray(
            np.where(y > 1, np.abs(y) * np.exp(-y * y / 2), 4 * math.exp(-0.5)) / ROOT_2PI
        )

    lift = np.minimum(t * z + t * t / 2, 700.0)
    second = np.exp(lift) * own(z + t)
    late = z + t > 1  # there in one exponent, lest 0·inf
    second[late] = (z[late] + t) * np.exp(-(z[late] ** 2) / 2) / ROOT_2PI
    return np.asarray(t * np.exp(-z * z / 2) / ROOT_2PI + own(z) + second)


def _by_period(epsilon: float, pair: Pair) -> ProfileValue:
    """∫du Σ_j exp(−π(j+u)²/γ²)·θ(u)·δ_across(ε − h(u) − (along² − 2·along·x)/2σ²), normalised.

    x = (j+u)T.
    """
    phase, gamma = pair.phase, pair.gamma
    last = math.ceil(4.3 * gamma) + 1
    j = np.arange(-last, last + 1.0)
    a, b = pair.along / pair.sigma, pair.across / pair.sigma
    scale = phase.beta / ROOT_2PI

    def integrand(v: Array) -> Array:
        x = j + (v * scale)[:, None]  # in periods
        loss = phase.loss(v)[:, None] + a * a / 2 - (a * ROOT_2PI / gamma) * x
        weight = np.exp(-math.pi * (x / gamma) ** 2)
        return np.asarray(
            phase.density(v) * (weight * gaussian_profile(epsilon - loss, b)).sum(axis=1) / gamma
        )

    edges = _edges(epsilon, pair, depth=10 if gamma > 16 else 30)
    step = max(1, 400_000 // len(j))
    total, doubt = integrate(
        lambda v: np.concatenate([integrand(v[i : i + step]) for i in range(0, len(v), step)]),
        edges,
        relative=1e-9 if gamma <= 16 else 1e-8,
    )
    far = np.arange(last + 0.5, 2 * last + 40)
    missing = 2 * float(np.exp(-math.pi * (far / gamma) ** 2).sum()) / gamma
    most = (1 + gamma) / gamma * phase.tail  # Σ_j exp(−π(j+u)²/γ²) ≤ 1 + γ
    return ProfileValue(
        min(1.0, total / pair.lattice), float((doubt + missing + most) / pair.lattice + 1e-320)
    )


def pair_start(pair: Pair, delta: float) -> float:
    """An ε about large enough: Theorem 4.4's argument for this pair, or the phase's worst loss."""
    q = float(scipy.special.ndtri(delta))
    direct = math.hypot(pair.t, pair.phase.shift * ROOT_2PI / pair.beta)
    phase = pair.phase
    worst = float(phase.loss(graded(phase.kinks, half=phase.half)).max())
    return max(0.0, min(direct * direct / 2 - direct * q, worst + pair.t**2 / 2 - pair.t * q))


def invert(
    profile: Callable[[float], ProfileValue],
    delta: float,
    *,
    start: float,
    rough: Callable[[float], ProfileValue] | None = None,
) -> ProfileValue:
    """The least ε ≥ 0 with profile(ε) ≤ δ.

    The error covers both the profile's error and the search's. ``rough`` says cheaply, and only
    about, what ``profile`` says: the search begins with it, and nothing rests on it.
    """
    exact = cache(profile)  # the search asks again at both ends of its bracket, and at the root

    def excess(value: ProfileValue) -> float:
        return math.log(max(value.value, 1e-320)) - math.log(delta)

    def fine(epsilon: float) -> float:
        return excess(exact(epsilon))

    def about(epsilon: float) -> float:
        return fine(epsilon) if rough is None else excess(rough(epsilon))

    at_zero = exact(0.0)
    if at_zero.value + at_zero.error <= delta:
        return ProfileValue(0.0, 0.0)
    root = 0.0
    if at_zero.value > delta:
        high = start * (1 + 1e-9) + 1e-9
        while about(high) > 0:
            high *= 2
        low = 0.0
        if rough is not None and about(low) > 0:
            near = float(
                scipy.optimize.brentq(about, 0.0, high, xtol=1e-12, rtol=1e-12, maxiter=300)
            )
            width = _NEAR * max(near, 1e-3)
            low, high = max(0.0, near - width), near + width
            while low > 0 and fine(low) <= 0:
                low, width = max(0.0, low - width), 10 * width
            while fine(high) > 0:
                high, width = high + width, 10 * width
        root = float(scipy.optimize.brentq(fine, low, high, xtol=1e-13, rtol=1e-13, maxiter=300))
    error = 1e-14 * root + 1e-12
    while (up := exact(root + error)).value + up.error > delta:
        error *= 2
        if error > 1e3 * (root + 1e3):
            return ProfileValue(root, math.inf)
    while root - error > 0 and (down := exact(root - error)).value - down.error < delta:
        error *= 2
    return ProfileValue(root, error)


def inverse(profile: Callable[..., ProfileValue], pair: Pair, delta: float) -> ProfileValue:
    """:func:`invert` of :func:`delta_of` or :func:`independent` for a :class:`Pair`."""
    return invert(
        partial(profile, pair=pair),
        delta,
        start=pair_start(pair, delta),
        rough=partial(profile, pair=pair, relative=_ROUGH),
    )


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
