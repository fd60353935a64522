"""The exact profile of a pancake behind a Haar rotation, by integration over its radius: for few dimensions or small γ."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting import ProfileValue, gaussian_epsilon
from dpaudit.accounting.profile import invert

__all__ = ["radial_ratio", "rotated_epsilon"]

Array = npt.NDArray[np.float64]

_WAVES = 3000
_ALONG, _ACROSS, _FINE = 2401, 401, 200  # points of the grid's axes, and more of them near 0 and Δ
_LOST = 1e-6  # of δ, left out at each end of each axis


@functools.lru_cache(maxsize=64)
def rotated_epsilon(
    delta: float, *, dim: int, sigma: float, beta: float, gamma: float, sensitivity: float
) -> ProfileValue:
    """ε at ``delta`` of one release with a pancake's noise under a secret Haar rotation, at two queries Δ apart.

    The rotated noise has the density φ_σ(v)·w(|v|/σ), with w of :func:`radial_ratio`. So
    ``δ(ε) = ∫∫ φ(x)·χ_{d−1}(y)·w(r)·(1 − e^{ε−l})₊ dy dx``, ``r² = x²+y²``, ``l = ln w(r) − ln w(r′) + (t² − 2tx)/2``,
    ``r′² = (x−t)²+y²``, ``t = Δ/σ``: x along the queries' difference, y across.

    ``error`` is an estimate: twice the change on doubling the grid's steps (the trapezoid rule, extrapolated), and what is
    left out. For one secret direction. Not claimed: distances below Δ, whose ε need not be smaller where w is far from 1;
    the lattice.
    """
    t = sensitivity / sigma
    lost = _LOST * delta
    far = float(scipy.special.ndtri(1 - lost)) if lost > 1e-16 else -float(scipy.special.ndtri(lost))
    step = np.geomspace(1e-5, 1.0, _FINE)
    x = _axis(-far - t, far + t, _ALONG, -step, step, t - step, t + step)
    low, high = (2 * f((dim - 1) / 2, lost) for f in (scipy.special.gammaincinv, scipy.special.gammainccinv))
    y = _axis(math.sqrt(low), math.sqrt(high), _ACROSS, np.geomspace(math.sqrt(low), math.sqrt(high), _FINE))
    reach = math.hypot(far + 2 * t, y[-1]) * 1.001
    shells = reach * gamma / math.sqrt(2 * math.pi)
    radius = _axis(0.0, reach, min(20_000, max(1000, math.ceil(24 * shells))), np.geomspace(1e-7, 1.0, _FINE))
    ratio, left_out = radial_ratio(radius, dim=dim, beta=beta, gamma=gamma)
    if not np.isfinite(ratio).all():  # Λ overflows in hundreds of dimensions
        return ProfileValue(0.0, math.inf)
    log_ratio = scipy.interpolate.CubicSpline(radius, np.log(np.maximum(ratio, 1e-300)))
    doubt = left_out / np.maximum(ratio, 1e-12)
    here, there = np.hypot(x[:, None], y), np.hypot(x[:, None] - t, y)
    near = log_ratio(here)
    loss = near - log_ratio(there) + (t * t - 2 * t * x[:, None]) / 2
    unsure = np.interp(here, radius, doubt) + np.interp(there, radius, doubt)
    log_chi = (dim - 2) * np.log(y) - y * y / 2 - math.lgamma((dim - 1) / 2) - (dim - 3) / 2 * math.log(2)
    mass = np.exp(near + log_chi - x[:, None] ** 2 / 2) / math.sqrt(2 * math.pi)

    possible = mass * unsure
    highest = (loss + unsure).max(1)

    def over(values: Array, rows: slice, every: int) -> float:
        """The integral of what is 0 but in ``rows``, on every point or every other one."""
        lines = np.zeros(len(x))
        lines[rows] = np.trapezoid(values[:, ::every], y[::every])
        return float(np.trapezoid(lines[::every], x[::every]))

    def profile(epsilon: float) -> ProfileValue:
        found = np.flatnonzero(highest > epsilon)
        rows = slice(found[0], found[-1] + 1) if len(found) else slice(0)
        lost_here = loss[rows]
        inside = mass[rows] * -np.expm1(np.minimum(0.0, epsilon - lost_here))
        fine, coarse = over(inside, rows, 1), over(inside, rows, 2)
        missing = over(np.where(lost_here > epsilon - unsure[rows], possible[rows], 0.0), rows, 1) + 4 * lost
        return ProfileValue(max(0.0, fine + (fine - coarse) / 3), 2 * abs(fine - coarse) + missing)

    return invert(profile, delta, start=gaussian_epsilon(delta, sigma=sigma, sensitivity=sensitivity) + 1e-3)


def _axis(low: float, high: float, points: int, *more: Array) -> Array:
    """Ascending points from ``low`` to ``high``, evenly spaced, and ``more`` where something may be narrow."""
    every = np.concatenate([np.linspace(low, high, points), *more])
    return np.unique(every[(low <= every) & (every <= high)])


def radial_ratio(radius: Array, *, dim: int, beta: float, gamma: float) -> tuple[Array, Array]:
    """A rotated pancake's density over the Gaussian's at each |v|/σ (n,), w; and a bound on the waves left out (n,).

    ``w(r) = (1 + 2Σ_m exp(−πm²β²)·Λ(√(2π)γmr))/(1 + 2Σ exp(−πm²(β²+γ²)))``, Λ the sphere's transform: the identity
    that :func:`~dpaudit_mitigations.rotation.norms.norm_deviation` proves.
    """
    nu, total, left = dim / 2 - 1, np.ones(len(radius)), np.zeros(len(radius))
    active = np.arange(len(radius))
    log_gamma = math.lgamma(nu + 1)
    for m in range(1, _WAVES + 1):
        weight = 2 * math.exp(-math.pi * (m * beta) ** 2)
        x = math.sqrt(2 * math.pi) * gamma * m * radius[active]
        total[active] += weight * scipy.special.hyp0f1(nu + 1, -x * x / 4)
        # |J_ν(x)| < x^−½ past its turning point; the sum over the waves that follow is below m + 1/β of them
        far = np.maximum(x, 2 * nu + 2)
        rest = np.where(x < far, 1.0, np.exp(log_gamma + nu * np.log(2 / far)) / np.sqrt(far))
        rest *= weight * min(m / max(nu - 0.5, 0.05), 0.5 / beta)
        left[active] = rest
        active = active[rest > 1e-13]
        if weight < 1e-17 or not active.size:
            break
    r2 = beta * beta + gamma * gamma
    lattice = 1 + 2 * sum(math.exp(-math.pi * r2 * j * j) for j in range(1, 2 + math.ceil(4 / math.sqrt(r2))))
    return total / lattice, left / lattice
