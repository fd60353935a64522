"""Adaptive Gauss–Kronrod integration, all panels at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpaudit.accounting._phase import Array

__all__ = ["FINE", "crossings", "graded", "integrate"]

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
