"""The trade-off between the two errors of telling neighbours apart, as a band that holds everywhere at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["Band", "band", "least_level"]

_SMALLEST = 1e-300

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """Bounds for P₀(E) and P₁(E) of several events (events,), all true at once with the stated probability.

    From them follow, all at once, lower bounds for ε at every δ, for δ at every ε, and for the μ of Gaussian
    differential privacy (Dong, Roth and Su 2022, Definition 2.6: the trade-off curve lies above that of N(0, 1) against
    N(μ, 1), so that Φ⁻¹(P₁(E)) − Φ⁻¹(P₀(E)) ≤ μ).
    """

    low0: Array
    high0: Array
    low1: Array
    high1: Array

    def _pairs(self) -> list[tuple[Array, Array]]:
        """At least how likely at one neighbour, at most how likely at the other: events, complements, both ways."""
        return [
            (self.low1, self.high0),
            (self.low0, self.high1),
            (1 - self.high0, 1 - self.low1),
            (1 - self.high1, 1 - self.low0),
        ]

    def epsilons(self, deltas: npt.ArrayLike) -> Array:
        """Lower bounds for ε at each of ``deltas`` (m,), shape (m,); 0 where nothing is shown."""
        at = np.asarray(deltas, np.float64)[:, None]
        best = np.zeros(len(at))
        for low, high in self._pairs():
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.log(low - at) - np.log(high)
            best = np.maximum(best, np.where(np.isfinite(found), found, 0.0).max(axis=1))
        return best

    def epsilon(self, delta: float) -> float:
        """A lower bound for ε at ``delta``; 0 if nothing is shown."""
        return float(self.epsilons([delta])[0])

    def delta(self, epsilon: float) -> float:
        """A lower bound for δ at ``epsilon``: the hockey-stick divergence of what the events show."""
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = [low - np.where(high > 0, np.exp(epsilon) * high, 0.0) for low, high in self._pairs()]
        return max(0.0, max(float(gap.max()) for gap in gaps))

    def mu(self) -> float:
        """A lower bound for μ; 0 if nothing is shown."""
        gaps = [scipy.special.ndtri(low) - scipy.special.ndtri(high) for low, high in self._pairs()]
        return max(0.0, max(float(np.max(gap[np.isfinite(gap)], initial=0.0)) for gap in gaps))


def band(k0: npt.NDArray[np.int64], n0: int, k1: npt.NDArray[np.int64], n1: int, *, alpha: float) -> Band:
    """The band from counts (events,) among ``n0`` and ``n1`` releases at the two neighbours.

    Clopper and Pearson's intervals with the error divided equally among all of them. Against a band of constant width
    (Dvoretzky, Kiefer and Wolfowitz) it is far narrower where probabilities are small, and that is where ε shows.

    Formal guarantee: all bounds hold at once with probability ≥ 1 − ``alpha``, if the events were fixed beforehand.
    """
    a = alpha / (4 * len(k0))
    return Band(*_interval(k0, n0, a), *_interval(k1, n1, a))


def _interval(k: npt.NDArray[np.int64], n: int, a: float) -> tuple[Array, Array]:
    low = np.where(k == 0, 0.0, scipy.special.betaincinv(np.maximum(k, 1), n - k + 1, a))
    high = np.where(k == n, 1.0, scipy.special.betainccinv(k + 1, np.maximum(n - k, 1), a))
    return low, high


def least_level(contradicts: Callable[[float], bool]) -> float:
    """The least α at which ``contradicts(α)``: a p-value, since the bands at all levels are nested."""
    if not contradicts(1 - 1e-9):
        return 1.0
    if contradicts(_SMALLEST):
        return _SMALLEST
    low, high = math.log(_SMALLEST), 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if contradicts(math.exp(middle)) else (middle, high)
    return math.exp(high)
