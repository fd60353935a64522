"""What a claim implies as (ε, δ) at many ε at once: lines above every test's two probabilities.

A pair (ε, δ) stands for P₁(E) ≤ e^ε·P₀(E) + δ for all events E and either order of the neighbours;
ε may be negative. Pairs that a claim implies hold all at once, so an audit may use the whole set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["Profile", "of_gaussian", "of_renyi", "of_tests", "upper_hull"]

Profile = tuple[tuple[float, float], ...]
"""Pairs (ε, δ)."""

Array = npt.NDArray[np.float64]

_AT = scipy.special.expit(np.linspace(-28.0, 28.0, 161))
"""The P₁(E) at which a tangent is taken."""
_TANGENTS = np.linspace(-5.0, 5.0, 41)
"""The Φ⁻¹ of P₀(E), from the middle, at which one is taken of μ-GDP's curve."""
_HALVINGS = 60
_MARGIN = 1e-12
_LARGEST = 300.0
"""Leaving pairs out only weakens what is implied."""


def of_renyi(orders: Array, divergences: Array) -> Profile:
    """Pairs that Rényi divergences of at most ``divergences`` (k,) at ``orders`` (k,) > 1 imply.

    An event E is a coin of probability x = P₀(E) or y = P₁(E), whose divergence y^α·x^(1−α) +
    (1−y)^α·(1−x)^(1−α) ≤ e^((α−1)D) is at most that of the releases. The allowed (x, y) are a
    convex set, as the left side is jointly convex; so each tangent of its border is a pair (ε, δ).
    Nothing smaller is implied for a single event. At a divergence of 0 the neighbours look alike:
    (0, 0).
    """
    if (divergences <= 0).any():
        return ((0.0, 0.0),)
    a, y = orders[:, None], _AT[None, :]
    limit = (a - 1) * divergences[:, None]
    log_y, log_not = np.log(y), np.log1p(-y)
    low = log_y - (limit - log_y) / (a - 1)
    high = np.broadcast_to(log_y, low.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        here = np.logaddexp(
            a * log_y + (1 - a) * middle, a * log_not + (1 - a) * np.log1p(-np.exp(middle))
        )
        low, high = np.where(here > limit, middle, low), np.where(here > limit, high, middle)
    x = np.exp(low)
    inside, outside = log_y - low, log_not - np.log1p(-x)
    slope = np.log1p(-1 / a) + inside
    slope += np.log1p(-np.exp(a * (outside - inside)))
    slope -= np.log1p(-np.exp((a - 1) * (outside - inside)))
    epsilons, deltas = slope.ravel(), (y - np.exp(low + slope)).ravel() + _MARGIN
    usable = np.flatnonzero(epsilons < _LARGEST)
    least = (_AT - deltas[usable, None]) * np.exp(-epsilons[usable])[:, None]
    best = usable[np.unique(least.argmax(axis=0))]
    return tuple(zip(epsilons[best].tolist(), deltas[best].tolist(), strict=True))


def of_gaussian(mu: float) -> Profile:
    """Tangents of the curve P₁ = Φ(Φ⁻¹(P₀) + μ) (Dong, Roth and Su 2022, Definition 2.6)."""
    at = _TANGENTS - mu / 2
    slopes = -mu * at - mu * mu / 2
    gaps = scipy.special.ndtr(at + mu) - np.exp(slopes) * scipy.special.ndtr(at)
    return tuple(zip(slopes.tolist(), (np.maximum(gaps, 0.0) + _MARGIN).tolist(), strict=True))


def upper_hull(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the least concave curve above ``points``, which come by increasing x."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (a, b), (c, d) = hull[-2:]
            if (d - b) * (x - a) > (y - b) * (c - a):
                break
            hull.pop()  # not above the line through its neighbours
        hull.append((x, y))
    return hull


def of_tests(corners: Sequence[tuple[float, float]]) -> Profile:
    """Pairs of the edges of the concave hull of ``corners`` (P₀, largest P₁), by increasing P₀."""
    edges = []
    for (a, b), (c, d) in pairwise(upper_hull(corners)):
        if c > a and d > b:
            slope = (d - b) / (c - a)
            edges.append((float(np.log(slope)), b - slope * a + _MARGIN))
    return tuple(edges) or ((0.0, 1.0),)
