"""The pancake along its key as a Gaussian times a periodic function, and its phase's loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting._checks import number, positive
from dpaudit.errors import UsageError

__all__ = ["REACH", "Array", "Pair", "Phase", "gaussian_profile", "log_comb", "phase_of"]

Array = npt.NDArray[np.float64]

ROOT_2PI = math.sqrt(2 * math.pi)
_ROOT_2PI_DIGITS = Decimal(
    "2.506628274631000502415765284811045253006986740609938316629923576342294"
)
_UNDERFLOW = 750.0  # exp(−x) is 0 in doubles from here on
REACH = 13.0  # standard deviations of the phase that are integrated; 2Φ(−13) < 1.3e-38 is left out


def phase_of(along: float, *, sigma: float, gamma: float) -> float:
    """``along·γ/(√(2π)σ)`` less the nearest whole number, exact for these doubles."""
    with localcontext() as context:
        context.prec = 80
        turns = Decimal(along) * Decimal(gamma) / (_ROOT_2PI_DIGITS * Decimal(sigma))
        return float(turns - turns.to_integral_value())


def _rest(u: Array, beta: float) -> Array:
    """What the other teeth add to the nearest: ln Σ_k exp(−π(k² − 2ku)/β²), k from −4 to 4.

    For |u| ≤ 1/2 and β < 1. Computed only where a term is above 0 in doubles: for β = 1e-3 within
    1.2e-4 of half a period.
    """
    a = np.asarray(np.abs(u))
    out = np.zeros(a.shape)
    reach = _UNDERFLOW * beta**2 / math.pi
    near = 1 - 2 * a < reach
    if not near.any():
        return out
    a = a[near]
    others = np.zeros(a.shape)
    for k in range(1, 5):
        if k * k - k < reach:
            term = np.exp(-math.pi * (k * k - 2 * k * a) / beta**2)
            if k * k < reach:  # of the tooth on the other side
                term += np.exp(-math.pi * (k * k + 2 * k * a) / beta**2)
            others += term
    out[near] = np.log1p(others)
    return out


def log_comb(u: Array, beta: float) -> Array:
    """The comb, ln θ(u) = ln Σ_k exp(−π(k−u)²/β²), |u| ≤ 1/2; from β = 1 on by Fourier series."""
    if beta < 1:
        return np.asarray(-math.pi * (u / beta) ** 2 + _rest(u, beta))
    waves = sum(
        2 * math.exp(-math.pi * (m * beta) ** 2) * np.cos(2 * math.pi * m * u) for m in range(1, 5)
    )
    return np.asarray(math.log(beta) + np.log1p(waves))


def gaussian_profile(epsilon: Array, t: float) -> Array:
    """The Gaussian mechanism's δ(ε) for any real ε at ``t = Δ/σ``; at t = 0 it is (1 − e^ε)₊."""
    # elsewhere the normal law is at 0 or 1 to within Φ(−39)
    near = np.abs(epsilon) < 40 * t + t * t
    out = np.empty(epsilon.shape)
    out[~near] = -np.expm1(np.minimum(epsilon[~near], 0.0))
    e = epsilon[near]
    first = scipy.special.log_ndtr(t / 2 - e / t)
    second = e + scipy.special.log_ndtr(-t / 2 - e / t)
    out[near] = -np.exp(first) * np.expm1(np.minimum(0.0, second - first))
    return out


@dataclass(frozen=True)
class Phase:
    """The wrapped normal law of the phase u and its loss h(u) = ln θ(u) − ln θ(u − shift).

    The shift is in [−1/2, 1/2]. Everything is a function of ``v = √(2π)·u/β``, in which one tooth
    of the comb is a standard normal.
    """

    beta: float
    shift: float

    @property
    def half(self) -> float:
        """Half the integrated range of v: half a period, or REACH."""
        return min(REACH, ROOT_2PI / 2 / self.beta)

    @property
    def tail(self) -> float:
        """Rigorous: no more lies outside, as wrapping a normal variable only brings it nearer."""
        return 0.0 if self.half < REACH else 2 * float(scipy.special.ndtr(-REACH))

    @property
    def kinks(self) -> list[float]:
        """The tooth, and where the nearest tooth changes (a kink of the loss for small β)."""
        at = [self.shift - 0.5, self.shift + 0.5, self.shift, 0.0, -0.5, 0.5]
        return [v for u in at if abs(v := u * ROOT_2PI / self.beta) <= self.half]

    def density(self, v: Array) -> Array:
        """Of v, from the comb's own normaliser over a period."""
        return np.asarray(np.exp(log_comb(v * (self.beta / ROOT_2PI), self.beta)) / ROOT_2PI)

    def loss(self, v: Array) -> Array:
        """h: of any size, with a relative rounding error of a few 1e-16."""
        u = v * (self.beta / ROOT_2PI)
        whole = np.round(u - self.shift)
        w = np.clip(u - self.shift - whole, -0.5, 0.5)
        if self.beta >= 1:
            return log_comb(u, self.beta) - log_comb(w, self.beta)
        step = self.shift + whole  # u − w, without cancellation
        parabolas = math.pi * (-step / self.beta) * ((2 * u - step) / self.beta)
        return np.asarray(parabolas + _rest(u, self.beta) - _rest(w, self.beta))


@dataclass(frozen=True)
class Pair:
    """Two neighbours as the key holder sees them: their difference along the key and across it."""

    sigma: float
    beta: float
    gamma: float
    along: float
    across: float

    def __post_init__(self) -> None:
        positive(sigma=self.sigma, beta=self.beta, gamma=self.gamma)
        number(along=self.along)
        if not 0 <= self.across < math.inf:
            raise UsageError(
                f"across={self.across}: must be a finite number ≥ 0; "
                "pass the norm orthogonal to the key"
            )

    @property
    def t(self) -> float:
        """The whole shift in standard deviations."""
        return math.hypot(self.along, self.across) / self.sigma

    @cached_property
    def phase(self) -> Phase:
        return Phase(self.beta, phase_of(self.along, sigma=self.sigma, gamma=self.gamma))

    @property
    def lattice(self) -> float:
        """``Σ_k exp(−πk²/r²)/r``: the pancake's normaliser over the Gaussian's, at least 1."""
        r2 = self.beta**2 + self.gamma**2
        return 1 + 2 * sum(math.exp(-math.pi * m * m * r2) for m in range(1, 40))

    @property
    def wave(self) -> float:
        """W = 2Σ exp(−πm²γ²across²/Δ²): dependence of phase and Gaussian loss; inf: no bound."""
        size = math.hypot(self.along, self.across)
        ratio = self.gamma * (self.across / size if size else 1.0)
        if ratio < 0.01:
            return math.inf
        terms = min(1000, 2 + int(math.sqrt(_UNDERFLOW / math.pi) / ratio))  # the others are 0
        return 2 * sum(math.exp(-math.pi * (m * ratio) ** 2) for m in range(1, terms))
