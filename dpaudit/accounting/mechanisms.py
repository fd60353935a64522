"""The Gaussian, Laplace and exponential mechanisms: exact privacy profiles and calibrations."""

from __future__ import annotations

import math

import scipy

from dpaudit.accounting._checks import below_one, bisect, least_epsilon, positive, probability
from dpaudit.errors import UsageError

__all__ = [
    "exponential_delta",
    "exponential_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gaussian_sigma_classical",
    "gaussian_sigma_paper",
    "laplace_delta",
    "laplace_epsilon",
    "laplace_scale",
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


def laplace_scale(epsilon: float, delta: float = 0.0, *, sensitivity: float = 1.0) -> float:
    """The least scale at which one number plus Laplace noise is (ε, δ)-DP.

    It is Δ/(ε − 2·ln(1 − δ)): Δ/ε at δ = 0. Not claimed: anything about noise in floating point,
    whose low bits reveal the value (Mironov 2012). The sources ``discrete-laplace`` and
    ``snapping`` are safe; the latter needs a little more scale.

    Raises:
        UsageError: ε or Δ not a finite number above 0, or δ outside [0, 1).

    >>> laplace_scale(0.5)
    2.0
    """
    below_one(delta)
    positive(epsilon=epsilon, sensitivity=sensitivity)
    return sensitivity / (epsilon - 2 * math.log1p(-delta))


def exponential_delta(epsilon: float, *, bound: float) -> float:
    """The exact worst-case profile δ(ε) of a mechanism whose log ratios lie within ``bound`` nats.

    The log ratios are those between two neighbours. That is ``bound``-bounded range (Durfee and
    Rogers 2019), and what an exponential mechanism of ε
    = ``bound`` has: its loss at an outcome is η·(change of the utility) plus one number for all
    outcomes. The worst loss sits on the two ends, t and t − bound, for some 0 ≤ t ≤ bound; then δ =
    (e^bound − e^t)(1 − e^(ε − t))/(e^bound − 1), greatest at t = (bound + ε)/2:

        δ(ε) = (1 − e^((ε − bound)/2))² / (1 − e^(−bound)) for 0 ≤ ε ≤ bound, and 0 above.

    Formal guarantee: no such mechanism has more, and some exponential mechanism comes as near as
    one likes (two groups of outcomes, one with utilities up by the sensitivity, the other down, in
    the right proportion). At ε = 0 it is tanh(bound/4), as much as randomised response with
    bound/2. Source: Dong, Durfee and Rogers 2020 (arXiv 1909.13830) for the two ends; the closed
    form is derived here: δ = E(1 − e^ε·Y)₊ is convex in Y = e^(−loss), E Y = 1.

    Raises:
        UsageError: ε negative or NaN, or ``bound`` not a finite number above 0.

    >>> exponential_delta(1.0, bound=1.0), round(exponential_delta(0.0, bound=1.0), 6)
    (0.0, 0.244919)
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon={epsilon}: must be a number ≥ 0")
    positive(bound=bound)
    return math.expm1((epsilon - bound) / 2) ** 2 / -math.expm1(-bound) if epsilon < bound else 0.0


def exponential_epsilon(
    eta: float, delta: float = 0.0, *, sensitivity: float = 1.0, monotone: bool = False
) -> float:
    """The least ε ≥ 0 at which every exponential mechanism with P ∝ exp(η·utility) is (ε, δ)-DP.

    Utilities change by at most ``sensitivity`` Δ between neighbours, so the log ratios lie within
    2ηΔ of one another; if ``monotone``, all change the same way and they lie within ηΔ (McSherry
    and Talwar 2007, Theorem 6). At δ = 0 that is ε; else the inverse of :func:`exponential_delta`.

    Raises:
        UsageError: η or Δ not a finite number above 0, or δ outside [0, 1).

    >>> exponential_epsilon(0.5), exponential_epsilon(0.5, monotone=True)
    (1.0, 0.5)
    """
    below_one(delta)
    positive(eta=eta, sensitivity=sensitivity)
    bound = (1 if monotone else 2) * eta * sensitivity
    # 1 − e^((ε − bound)/2) = √(δ·(1 − e^−bound))
    return max(0.0, bound + 2 * math.log1p(-math.sqrt(delta * -math.expm1(-bound))))


def gaussian_sigma_classical(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """σ = Δ·√(2 ln(1.25/δ))/ε, the formula of textbooks, for ε ≤ 1 only.

    Dwork and Roth 2014, Theorem A.1.

    Formal guarantee: N(0, σ²I) is then (ε, δ)-DP. The theorem's proof needs ε < 1; above that the
    formula is no proof, and for large ε it is false: at ε = 20, δ = 1e-5 the exact δ of that σ is
    over a hundred times as large. :func:`~dpaudit.accounting.gaussian_sigma` is right for every ε,
    and smaller.

    Raises:
        UsageError: ε not above 0 or above 1, δ not strictly between 0 and 1, Δ not a finite number
            above 0.

    >>> round(gaussian_sigma_classical(1.0, 1e-5), 4)
    4.8448
    """
    positive(epsilon=epsilon, sensitivity=sensitivity)
    probability(delta)
    if epsilon > 1:
        raise UsageError(
            f"epsilon={epsilon}: the classical formula is proven for ε ≤ 1 and wrong for large ε; "
            "use gaussian_sigma"
        )
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
