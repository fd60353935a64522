"""What a Haar rotation leaves of a pancake: how far its norm's law is from honest noise's. A theorem, ours."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["norm_deviation"]

_SHELLS = 64

Array = npt.NDArray[np.float64]


def norm_deviation(*, dim: int, beta: float, gamma: float, outside: float, directions: int = 1) -> float:
    """η: the density of a rotated pancake lies within 1 ± η of the Gaussian's wherever the noise is not very short.

    "Very short" is a squared length below a·σ², with P(χ²_{d−k} < a) = ``outside``, k the ``directions``. Both the Gaussian
    (χ²_d) and the pancake (χ²_{d−k} and more) are that short with probability ``outside`` at most. inf where nothing is
    proven.

    Proof. By Poisson summation (smoothing/PROOF.md, Sections 1 and 3, τ = 0) a pancake's density over the Gaussian's is
    Σ_m exp(−π|m|²β²)·exp(i⟨a_m, v⟩)/(1+L)^k, m over Z^k, |a_m| = √(2π)·γ|m|/σ, L = 2Σ exp(−πj²r²). A Haar rotation averages
    that over the sphere of radius |v|, where exp(i⟨a, v⟩) has the mean Λ(|a||v|), Λ(x) = Γ(ν+1)(2/x)^ν·J_ν(x), ν = d/2 − 1.
    So the ratio is (1 + Σ_{m≠0} exp(−π|m|²β²)·Λ(√(2π)γ|m||v|/σ))/(1+L)^k, exactly. And |Λ(x)| is at most 1; at most
    Γ(ν+1)(2/x)^ν, as |J_ν| ≤ 1; and below Λ's first zero, which is above ν, at most exp(−x²/4(ν+1)) (Euler's product,
    and Rayleigh's sum of the inverse squares of its zeros). Together these bounds fall with x, so with W the sum of
    their terms at |v|² = aσ² the ratio lies within (1 ± W)/(1+L)^k. Of the (2t+1)^k − (2t−1)^k integer points with largest
    coordinate t none is shorter than t.
    """
    nu, count = dim / 2 - 1, directions
    low = 2 * float(scipy.special.gammaincinv((dim - count) / 2, outside)) * (1 - 1e-6) if dim > count else 0.0
    if not (nu > count and low > 0):
        return math.inf
    one = math.sqrt(2 * math.pi * low) * gamma
    last = max(_SHELLS, math.ceil(nu / one))
    t = np.arange(1, last + 1, dtype=np.float64)
    points = (2 * t + 1) ** count - (2 * t - 1) ** count
    most = _at_most(t * one, nu)
    rest = (
        2 * count * 3.0 ** (count - 1) * float(most[-1]) * last**count / (nu - count)
    )  # from there on E falls as t^−ν
    wave = float((points * np.exp(-math.pi * (beta * t) ** 2) * most).sum()) + rest
    r2 = beta * beta + gamma * gamma
    lattice = (
        1 + 2 * float(np.exp(-math.pi * r2 * np.arange(1, 2 + math.ceil(4 / math.sqrt(r2))) ** 2).sum())
    ) ** count - 1
    return (wave + lattice) / (1 + lattice) if wave < 1 else math.inf


def _at_most(x: Array, nu: float) -> Array:
    """A bound on |Λ| from each x on."""
    tail = np.minimum(0.0, math.lgamma(nu + 1) + nu * np.log(2 / np.maximum(x, nu)))
    short = np.where(x < nu, -x * x / (4 * (nu + 1)), -math.inf)
    out: Array = np.exp(np.maximum(tail, short))
    return out
