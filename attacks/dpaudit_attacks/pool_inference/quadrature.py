"""Gauss–Legendre nodes for the two behavioural parameters, and how many of them an attack needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = ["Prior", "default_nodes", "exact_nodes", "rule", "unit_rule", "weighed"]

Prior = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""A density, up to a constant, at an array of values of γ or of δ."""


def exact_nodes(observations: int) -> int:
    """⌈(n + 1)/2⌉: with so many nodes the integral of a polynomial of degree n is exact.

    >>> exact_nodes(7), exact_nodes(180)
    (4, 91)
    """
    return (observations + 2) // 2


def default_nodes(observations: int) -> int:
    """2.9·√n rounded up to a multiple of 8, or :func:`exact_nodes` where that is less.

    The integrand is as wide as 1/√n. Largest errors of a posterior, 20 to 40 people of uniform γ and δ each, against exact
    nodes, for evidence of a Count Mean Sketch (ε = 4, six pools of 228, weak and strong; ε = 8, three pools of 5; ε = 4,
    six pools of 10 with Zipf exponent 4) and for objects in the clear: n = 7 and 30 (exact); n = 90 (32 nodes) 2e-14;
    n = 180 (40 nodes) 2e-13; there 32 nodes give 2e-9, 24 nodes 2e-6.
    """
    return min(exact_nodes(observations), 8 * math.ceil(2.9 * math.sqrt(observations) / 8))


@cache
def unit_rule(nodes: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Gauss–Legendre nodes in (0, 1), rising, and weights that add up to 1.

    Raises:
        UsageError: fewer than one node.
    """
    if nodes < 1:
        raise UsageError(f"nodes={nodes}: quadrature needs at least 1 node a side")
    x, w = np.polynomial.legendre.leggauss(nodes)
    return (x + 1) / 2, w / 2


def rule(observations: int, nodes: int | None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The nodes in (0, 1) and weights for so many observations; ``nodes`` a side where given.

    Raises:
        UsageError: fewer than one node.
    """
    return unit_rule(default_nodes(observations) if nodes is None else nodes)


def weighed(
    weights: npt.NDArray[np.float64], prior: Prior | None, values: npt.NDArray[np.float64], *, name: str
) -> npt.NDArray[np.float64]:
    """Quadrature weights times a prior's density at the nodes ``values``; uniform where there is no prior.

    Raises:
        UsageError: a density that is negative, not finite, or 0 at every node.
    """
    if prior is None:
        return weights
    density = np.broadcast_to(np.asarray(prior(values), np.float64), values.shape)
    if not np.isfinite(density).all() or density.min() < 0 or not density.max() > 0:
        raise UsageError(f"{name}: a prior is a density, finite and ≥ 0, not 0 at all of the quadrature's nodes")
    return weights * density
