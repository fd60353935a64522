"""The pancake's exact density, as its owner computes it; shared by every attack that holds the key.

Completing the square over the peaks (Lemma 2.6 of arXiv 2509.23834, worked out again) turns the
mixture Σ_k exp(−πk²/r²)·exp(−(x−kP)²/(2s²)) into exp(−x²/(2σ²))·ϑ(γx/(√(2π)σ)) with ϑ(c) = Σ_k
exp(−π(k−c)²/β²). So the pancake is the claimed Gaussian times one periodic factor, its *tilt*,
along each secret direction:

    log density(v) = log N(v; 0, σ²I) + Σ_j log tilt(⟨v, u_j⟩)

The cost of ϑ is nine terms at most whatever β: below β = 1 the peaks next to c, from there on its
Poisson sum.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.numeric.arrays import double, library
from dpaudit.numeric.normal import all_finite
from dpaudit.protocols import Array

__all__ = [
    "basis",
    "check_candidates",
    "check_rows",
    "log_density",
    "log_theta",
    "log_tilt",
]

# neglected terms are below exp(−12π) = 5e-17 of the sum at β = 1, the worst case,
# and vanish from there
_TERMS = 4


def basis(key: PancakeKey) -> npt.NDArray[np.float64]:
    """The key's orthonormal secret directions, float64, shape (k, dim)."""
    rows = getattr(key, "basis", None)
    return np.array(key.direction[None] if rows is None else rows, dtype=np.float64)


def check_rows(name: str, values: Array, *, dim: int, axes: int) -> None:
    """Raise unless ``values`` have ``axes`` axes, ``dim`` values in the last, all finite.

    Raises:
        UsageError: they have not.
    """
    if values.ndim != axes or values.shape[-1] != dim:
        raise UsageError(
            f"{name} of shape {tuple(values.shape)}: needs {axes} axes and rows must have the "
            f"key's {dim} values; reshape it, or take the key that the noise was made with"
        )
    if not all_finite(values):
        raise UsageError(
            f"{name}: contain NaN or infinity; an attack needs finite values, drop those rows"
        )


def check_candidates(releases: Array, candidates: Array, *, dim: int) -> Array:
    """``candidates`` (m, d) or (t, m, d) with three axes, (1, m, d) or (t, m, d).

    For ``releases`` (t, d).

    Raises:
        UsageError: dimensions that do not fit ``dim`` or each other, or values that are not finite.
    """
    if candidates.ndim == 2:
        candidates = candidates[None]
    check_rows("releases", releases, dim=dim, axes=2)
    check_rows("candidates", candidates, dim=dim, axes=3)
    if len(candidates) not in (1, len(releases)):
        raise UsageError(
            f"candidates for {len(candidates)} releases: there are {len(releases)} releases; "
            "give one list for all, shape (m, d), or one per release, shape (t, m, d)"
        )
    return candidates


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value}: must be a finite number > 0")


def log_theta(c: Array, beta: float) -> Array:
    """Log Σ_k exp(−π(k−c)²/β²) over all integers k, elementwise, float64, for any β > 0.

    Memory is a few times that of ``c`` for every β. Relative error of the sum about 1e-15; never
    overflows (for β < 1e-150 it is −inf away from the peaks).

    Raises:
        UsageError: β not a finite number > 0.
    """
    _positive(beta=beta)
    c = double(c)
    xp = library(c)
    total = xp.zeros_like(c)
    if beta >= 1:
        for m in range(1, _TERMS + 1):
            total += 2 * math.exp(-math.pi * (m * beta) * (m * beta)) * xp.cos(2 * math.pi * m * c)
        return math.log(beta) + xp.log1p(total)
    f = c - xp.round(c)
    for j in range(1, _TERMS + 1):
        if math.pi * (j * j - j) / beta / beta > 745:  # exp is 0 from there
            break
        for sign in (-2 * j, 2 * j):
            total += xp.exp(xp.clip(sign * f - j * j, None, 0) * math.pi / beta / beta)
    with np.errstate(over="ignore"):
        return xp.log1p(total) - math.pi * xp.square(f / beta)


def log_tilt(x: Array, *, sigma: float, beta: float, gamma: float) -> Array:
    """Log of the pancake's density along a secret direction over that of N(0, σ²).

    Elementwise, normalised.

    Raises:
        UsageError: σ, β or γ not a finite number > 0.
    """
    _positive(sigma=sigma, beta=beta, gamma=gamma)
    r = math.hypot(beta, gamma)
    everything = float(log_theta(np.zeros(()), r))
    return (
        log_theta(double(x) * (gamma / (math.sqrt(2 * math.pi) * sigma)), beta)
        + math.log(r / beta)
        - everything
    )


def log_density(
    along: Array, square: Array, *, dim: int, sigma: float, beta: float, gamma: float
) -> Array:
    """Log-density in R^dim of noise v, from its k coordinates along the secret directions and |v|².

    ``along`` has shape (..., k), ``square`` (...), the result (...): k log-mixtures plus the
    Gaussian log-density of the dim − k coordinates orthogonal to all directions.

    Raises:
        UsageError: σ, β or γ not a finite number > 0.
    """
    tilt = log_tilt(along, sigma=sigma, beta=beta, gamma=gamma).sum(-1)
    return (
        tilt - double(square) / (2 * sigma**2) - dim * (math.log(sigma) + math.log(2 * math.pi) / 2)
    )
