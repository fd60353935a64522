"""The pancake along its key as a Gaussian times a periodic function, and integrals of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting._checks import number, positive
from dpaudit.errors import UsageError

__all__ = [
    "FINE",
    "REACH",
    "Array",
    "Pair",
    "Phase",
    "crossings",
    "gaussian_profile",
    "graded",
    "integrate",
    "phase_of",
]

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


FINE = 1e-11

"""The relative error to which integrals are computed."""

_HALF_X = [0.9914553711208126, 0.9491079123427585, 0.8648644233597691, 0.7415311855993945]

_HALF_X += [0.5860872354676911, 0.4058451513773972, 0.20778495500789848]

_HALF_K = [0.022935322010529224, 0.06309209262997856, 0.10479001032225019, 0.14065325971552592]

_HALF_K += [0.1690047266392679, 0.19035057806478542, 0.20443294007529889]

_HALF_G = [0.0, 0.1294849661688697, 0.0, 0.27970539148927664, 0.0, 0.3818300505051189, 0.0]

X = np.array([-x for x in _HALF_X] + [0.0] + _HALF_X[::-1])

KRONROD = np.array([*_HALF_K, 0.20948214108472782, *_HALF_K[::-1]])

GAUSS = np.array([*_HALF_G, 0.4179591836734694, *_HALF_G[::-1]])

_STALLED = 0.8  # of the error before, twice in turn: halving the panels helps no more

# at a time: the integrand's arrays stay in the cache, and each needs no fresh pages
_PANELS = 512


def graded(points: list[float], *, half: float, depth: int = 50) -> Array:
    """Panel edges on [−half, half]: coarse, and around each point down to 2^−depth of the half."""
    near = half * np.exp2(-np.arange(depth + 1.0))
    edges = [np.linspace(-half, half, 27), np.array(points)]
    for point in points:
        edges += [point - near, point + near]
    return np.unique(np.clip(np.concatenate(edges), -half, half))


def crossings(f: Callable[[Array], Array], edges: Array) -> list[float]:
    """One zero of ``f`` in each panel whose ends differ in sign, by bisection."""
    sign = f(edges) > 0
    at = np.flatnonzero(sign[1:] != sign[:-1])
    low, high, left = edges[at], edges[at + 1], sign[at]
    for _ in range(60 if len(at) else 0):
        middle = (low + high) / 2
        same = (f(middle) > 0) == left
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return [float(x) for x in (low + high) / 2]


def integrate(
    f: Callable[[Array], Array], edges: Array, *, relative: float = FINE
) -> tuple[float, float]:
    """∫f over the edges' range, f ≥ 0, and Σ|Kronrod − Gauss| over panels.

    The sum is an estimate of the error. ``f`` is given the nodes in parts: a value of it may depend
    on its own node alone. Panels are halved until the sum is below ``relative`` times the integral,
    there are too many of them, or halving helps no more: even at a jump of ``f`` it halves the
    error, but not where that is the rounding of ``f`` itself.
    """
    low, high = edges[:-1], edges[1:]
    done, doubt, panels, stalled, before = 0.0, 0.0, 0, 0, np.inf
    for _ in range(60):
        middle, radius = (low + high) / 2, (high - low) / 2
        values = np.empty((len(low), 15))
        for part in (slice(i, i + _PANELS) for i in range(0, len(low), _PANELS)):
            values[part] = f((middle[part, None] + radius[part, None] * X).ravel()).reshape(-1, 15)
        kronrod = radius * (values @ KRONROD)
        gap = np.abs(kronrod - radius * (values @ GAUSS))
        total, wrong = done + float(kronrod.sum()), doubt + float(gap.sum())
        panels += len(low)
        bad = gap > 0.5 * relative * total / max(len(low), 100)
        stalled, before = stalled + 1 if wrong > _STALLED * before else 0, wrong
        if wrong <= relative * total or panels > 20_000 or stalled == 2 or not bad.any():
            return total, wrong
        done += float(kronrod[~bad].sum())
        doubt += float(gap[~bad].sum())
        low, high, middle = low[bad], high[bad], middle[bad]
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    return total, wrong
