"""Proposing hidden vectors u = f·w where numpy alone finds them, and judging any.

They are judged on rows that had no part in the proposal. Rows are normalised to σ = 1. Along the
true w a pancake's peaks lie 1/f apart, f = r²/(γ√(2π)), r² = β² + γ², so ⟨x, u⟩ is a whole number
up to a normal error of standard deviation β·r/(√(2π)·γ) (arXiv 2509.23834, worked out in
:mod:`dpaudit.noise.pancake`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

__all__ = [
    "SCANNED_DIM",
    "SHORTEST",
    "Estimate",
    "confirm",
    "estimate",
    "from_covariance",
    "from_scan",
    "fundamental",
    "refine",
    "resonance",
]

SHORTEST = 0.25
_LONGEST = 1024.0  # well below the inverse of float32's grid, where rounding itself would resonate
_STEPS = 6
_AS_STRONG = 0.98  # of a candidate's resonance, that a part of it must have
_MOST_PARTS = 64

Array = npt.NDArray[np.float64]


def resonance(x: Array, u: Array) -> Array:
    """|mean exp(2πi⟨x, u⟩) − its expectation under N(0, I)|, shape (m,).

    For vectors u (m, d) or (d,) and rows x (n, d). The expectation is exp(−2π²|u|²): it matters for
    |u| < 1 only. About √(π/4n) on honest noise, exp(−πβ²r²/γ²) at a pancake's own u.
    """
    u = np.atleast_2d(u)
    turns = 2 * np.pi * (x @ u.T)
    expected = np.exp(-2 * np.pi**2 * np.einsum("ij,ij->i", u, u))
    return np.asarray(np.hypot(np.cos(turns).mean(0) - expected, np.sin(turns).mean(0)))


def confirm(x: Array, u: Array) -> float:
    """p-value of one candidate u (d,) on held-out rows x (n, d).

    P(resonance at least this) ≤ 4·exp(−n·R²/4).

    Formal guarantee: super-uniform if the rows are independent N(0, I) and independent of u.
    Hoeffding's inequality for the means of cosine and sine, each bounded by 1, at R/√2, and the
    union bound. 1 where |u| is outside 0.25…1024: there the law is either too broad to tell or
    below the grid of float32.
    """
    length = float(np.linalg.norm(u))
    if not SHORTEST <= length <= _LONGEST or not len(x):
        return 1.0
    return min(1.0, 4 * math.exp(-len(x) * float(resonance(x, u)[0]) ** 2 / 4))


def _phases(x: Array, u: Array) -> Array:
    """⟨x, u⟩ less the nearest whole number, shape (n,), in ±1/2."""
    turns = x @ u
    return np.asarray(turns - np.rint(turns))


def refine(x: Array, u: Array) -> Array:
    """The u near ``u`` with the least squared phases over rows x (n, d).

    A few Gauss–Newton steps. The resonance is 1 − 2π² times the mean squared phase to second order,
    so this maximises it. Returns ``u`` itself where a step makes things worse (no pancake there).
    """
    best, least = u, float(np.square(_phases(x, u)).mean())
    for _ in range(_STEPS):
        step = np.linalg.lstsq(x, _phases(x, best), rcond=None)[0]
        moved = best - step
        square = float(np.square(_phases(x, moved)).mean())
        if not square < least:
            break
        best, least = moved, square
    return best


def fundamental(x: Array, u: Array) -> Array:
    """The shortest u/k, k = 1, 2, …, that resonates as strongly as ``u`` (d,); refined there.

    On rows x (n, d). With R at a pancake's own u, k·u has R^(k²) ≤ R: a search may well find such a
    harmonic, whose γ is k times too large. u/k of a pancake's own u has phases spread evenly over k
    values, whose resonance is about 0. Not below |u| = 0.25, where nothing is confirmed.
    """
    strong, shortest = _AS_STRONG * float(resonance(x, u)[0]), u
    for k in range(2, min(_MOST_PARTS, int(np.linalg.norm(u) / SHORTEST)) + 1):
        if float(resonance(x, u / k)[0]) >= strong:
            shortest = u / k
    return u if shortest is u else refine(x, shortest)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The pancake's parameters by a confirmed u; intervals hold with probability about 0.95 each.

    ``angle`` is what is left, in radians, between ``direction`` and the true w (root mean square).
    """

    direction: list[float]
    beta: float
    beta_low: float
    beta_high: float
    gamma: float
    gamma_low: float
    gamma_high: float
    angle: float


def estimate(fitted: Array, held_out: Array, u: Array) -> Estimate:
    """β, γ and w from u, with its phases on fresh rows ``held_out``.

    u was fitted by least squares on rows ``fitted`` (n, d). The phases on held-out rows have
    variance v·(1 + d/(n − d − 1)), v = β²r²/(2πγ²): χ² gives the interval for v. |u| = f =
    r²/(γ√(2π)) has standard error √(v/n). Both are then solved for β and γ. Not claimed: accuracy
    above β = 0.5, where phases wrap round.
    """
    d = len(u)
    length = float(np.linalg.norm(u))
    spare = max(1, len(fitted) - d - 1)
    phases = _phases(held_out, u)
    square = float(phases @ phases) / (1 + d / spare)
    m = len(held_out)

    def solve(variance: float, f: float) -> tuple[float, float]:
        product = math.sqrt(2 * math.pi * variance)  # β·r/γ
        gamma = f * math.sqrt(2 * math.pi)
        beta = product
        for _ in range(20):
            gamma_next = f * math.sqrt(2 * math.pi) - beta * beta / gamma
            gamma = gamma_next if gamma_next > 0 else gamma / 2
            beta = product * gamma / math.hypot(beta, gamma)
        return beta, gamma

    v = square / m
    error = 1.96 * math.sqrt(v / spare)
    beta, gamma = solve(v, length)
    return Estimate(
        direction=[float(value) for value in u / length],
        beta=beta,
        beta_low=solve(square / float(scipy.special.chdtri(m, 0.025)), length)[0],
        beta_high=solve(square / float(scipy.special.chdtri(m, 0.975)), length)[0],
        gamma=gamma,
        gamma_low=solve(v, length - error)[1],
        gamma_high=solve(v, length + error)[1],
        angle=math.sqrt(v * max(1, d - 1) / spare) / length,
    )


SCANNED_DIM = 3
_REACH = {2: 6.0, 3: 3.0}  # |u| up to here
# of the grid in u: the resonance falls off as exp(−2π²|Δu|²), and the nearest point is within 0.104
# at d = 3
_STEP = 0.12
_CHUNK = 4096
_SCAN_ROWS = 400


def from_covariance(x: Array) -> Array:
    """Vectors u (m, d) along the covariance's outermost eigenvectors.

    At the frequency that resonates most. A pancake's variance along w differs from 1 by about
    4πγ²·exp(−πγ²), so this finds γ below about 1.5 from d·(2/deviation)² rows and nothing above 2,
    at any d.
    """
    n, d = x.shape
    _, vectors = np.linalg.eigh(x.T @ x / n)
    frequency = np.arange(SHORTEST, 4.0, 0.01)
    candidates = []
    for w in {0: vectors[:, 0], d - 1: vectors[:, -1]}.values():
        score = resonance((x @ w)[:, None], frequency[:, None])
        candidates.append(w * frequency[int(score.argmax())])
    return np.array(candidates)


def from_scan(x: Array) -> Array:
    """For d ≤ 3: the three best u (3, d), one of each ±u, of a grid over |u| ≤ 6 (d = 2) or 3."""
    d = x.shape[1]
    reach = _REACH[d]
    axis = np.arange(-reach, reach + _STEP / 2, _STEP)
    half = axis[axis > -_STEP / 2]
    grid = np.array(list(itertools.product(half, *[axis] * (d - 1))))
    length = np.linalg.norm(grid, axis=1)
    grid = grid[(length >= SHORTEST) & (length <= reach)]
    rows = x[:_SCAN_ROWS]
    score = np.concatenate(
        [resonance(rows, grid[i : i + _CHUNK]) for i in range(0, len(grid), _CHUNK)]
    )
    return np.asarray(grid[np.argsort(score)[-3:][::-1]])
