"""Bounds from counts of events fixed beforehand: of one event, and of the trade-off curve."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.claims.implied import upper_hull

__all__ = ["Band", "band", "epsilon_bounds", "hockey_stick_p", "least_level", "one_sided"]

_FOR_EXCESS = 0.1
"""Share of the error spent on δ."""
_SMALLEST = 1e-300

Array = npt.NDArray[np.float64]


def excess_allowed(draws: int, delta: float, *, alpha: float) -> int:
    """The least b with P(Binomial(draws, δ/2) > b) ≤ ``alpha``: events that δ alone explains."""
    if delta == 0:
        return 0
    low, high = -1, draws
    while high - low > 1:
        b = (low + high) // 2
        tail = float(scipy.special.betainc(b + 1, draws - b, delta / 2))
        low, high = (low, b) if tail <= alpha else (b, high)
    return high


def epsilon_bounds(
    inside: npt.ArrayLike, outside: npt.ArrayLike, *, draws: int, delta: float, alpha: float
) -> npt.NDArray[np.float64]:
    """Lower bounds for ε at δ from events with counts at the two neighbours.

    The events were seen ``inside`` times at neighbour 1 and ``outside`` times at neighbour 0.
    ``draws`` releases were made in all, each at a neighbour chosen by a fair coin. Under (ε, δ)-DP,
    P₁(E) ≤ e^ε·P₀(E) + δ, so each draw is an occurrence of E at neighbour 1 *in excess of*
    e^ε·P₀(E) with probability at most δ/2; such excess is at most b = :func:`excess_allowed` but
    with a tenth of the error. Of the other occurrences of E, given their number, those at neighbour
    1 are binomial with a share of at most e^ε/(1 + e^ε); Clopper and Pearson's (1934) one-sided
    bound for that share uses the rest of the error.

    Formal guarantee: each entry is at most the true ε with probability ≥ 1 − ``alpha``, if its
    event was fixed before the counts were seen. One binomial instead of two (as in
    :func:`dpaudit.stats.epsilon_lower_bound`) makes the gap to the truth up to √2 smaller. Not
    claimed: tightness; it cannot exceed about ln(draws/2). ``-inf`` where all occurrences may be
    excess.
    """
    k1, k0 = np.broadcast_arrays(np.asarray(inside, np.float64), np.asarray(outside, np.float64))
    spent = 0.0 if delta == 0 else _FOR_EXCESS * alpha
    sure = k1 - excess_allowed(draws, delta, alpha=spent)
    bound = np.full(sure.shape, -np.inf)
    some = sure > 0
    share = scipy.special.betaincinv(sure[some], k0[some] + 1, alpha - spent)
    rest = scipy.special.betainccinv(k0[some] + 1, sure[some], alpha - spent)
    with np.errstate(divide="ignore"):
        bound[some] = np.log(share) - np.log(rest)
    return bound


def hockey_stick_p(inside: int, outside: int, *, draws: int, epsilon: float, delta: float) -> float:
    """p-value of P₁(E) ≤ e^ε·P₀(E) + δ: the least level where :func:`epsilon_bounds` > ``epsilon``.

    Formal guarantee: super-uniform for an event that was fixed beforehand (the tests at all levels
    are nested). Without δ it is the exact binomial tail.
    """
    if inside == 0:
        return 1.0
    if delta == 0:
        return float(scipy.special.betainc(inside, outside + 1, scipy.special.expit(epsilon)))

    def rejects(alpha: float) -> bool:
        bound = epsilon_bounds(inside, outside, draws=draws, delta=delta, alpha=alpha)
        return float(bound) > epsilon

    return least_level(rejects)


@dataclass(frozen=True)
class Band:
    """Simultaneous bounds for P₀(E) and P₁(E) of several events, each of shape (events,).

    From them follow, all at once, lower bounds for ε at every δ, for δ at every ε, and for the μ of
    Gaussian differential privacy (Dong, Roth and Su 2022, Definition 2.6: the trade-off curve lies
    above that of N(0, 1) against N(μ, 1), so that Φ⁻¹(P₁(E)) − Φ⁻¹(P₀(E)) ≤ μ).
    """

    low0: Array
    high0: Array
    low1: Array
    high1: Array

    def merge(self, other: Band) -> Band:
        """Both as one; all bounds hold at once if those of both do."""
        mine, its = (dataclasses.astuple(each) for each in (self, other))
        return Band(*(np.concatenate(both) for both in zip(mine, its, strict=True)))

    def pairs(self) -> list[tuple[Array, Array]]:
        """Least probability at one neighbour, greatest at the other; complements, both ways."""
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
        for low, high in self.pairs():
            with np.errstate(divide="ignore", invalid="ignore"):
                bounds = np.log(low - at) - np.log(high)
            best = np.maximum(best, np.where(np.isfinite(bounds), bounds, 0.0).max(axis=1))
        return best

    def epsilon(self, delta: float) -> float:
        """A lower bound for ε at ``delta``; 0 if nothing is shown."""
        return float(self.epsilons([delta])[0])

    def delta(self, epsilon: float) -> float:
        """A lower bound for δ at ``epsilon``: the events' hockey-stick divergence."""
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = [
                low - np.where(high > 0, np.exp(epsilon) * high, 0.0) for low, high in self.pairs()
            ]
        return max(0.0, max(float(gap.max()) for gap in gaps))

    def mu(self) -> float:
        """A lower bound for μ; 0 if nothing is shown."""
        gaps = [scipy.special.ndtri(low) - scipy.special.ndtri(high) for low, high in self.pairs()]
        return max(0.0, max(float(np.max(gap[np.isfinite(gap)], initial=0.0)) for gap in gaps))

    def tests(self) -> tuple[Array, Array]:
        """The corners (P₀, P₁) of a concave curve of tests, from (0, 0) to (1, 1).

        The best test whose probability at neighbour 0 is at most the first has at least the second
        at neighbour 1: each event's greatest P₀ and least P₁, and what mixing two tests by a coin
        attains between them.
        """
        x = np.concatenate([self.high0, 1 - self.low0, [0.0, 1.0]])
        y = np.concatenate([self.low1, 1 - self.high1, [0.0, 1.0]])
        corners = np.array(upper_hull(sorted(zip(x.tolist(), y.tolist(), strict=True))))
        return corners[:, 0], corners[:, 1]

    def power(self, errors: Array) -> Array:
        """What P at one neighbour a test is sure to reach if P at the other is in ``errors`` (m,).

        The larger of both ways round.
        """
        x, y = self.tests()
        return np.maximum(np.interp(errors, x, y), np.interp(errors, 1 - y[::-1], 1 - x[::-1]))

    def renyi(self, orders: Array) -> Array:
        """Lower bounds for the Rényi divergence at ``orders`` (m,) > 1, the larger way round, (m,).

        The curve of :meth:`tests` is that of two distributions on its pieces and lies below the
        curve of the releases; so these distributions are a post-processing of releases at the two
        neighbours (Blackwell 1953; Dong, Roth and Su 2022, Theorem 2), and no divergence of theirs
        is larger than that of the releases. One event gives the divergence of two coins.
        """
        pieces = [np.diff(corners) for corners in self.tests()]
        some = (pieces[0] > 0) & (pieces[1] > 0)  # leaving pieces out only lowers a divergence
        p0, p1 = (np.log(masses[some]) for masses in pieces)
        at = np.asarray(orders, np.float64)[:, None]
        divergences = [
            scipy.special.logsumexp(at * a + (1 - at) * b, axis=1) / (at[:, 0] - 1)
            for a, b in ((p1, p0), (p0, p1))
        ]
        return np.asarray(np.maximum(0.0, np.maximum(*divergences)) * (1 - 1e-9))


def band(
    k0: npt.NDArray[np.int64], n0: int, k1: npt.NDArray[np.int64], n1: int, *, alpha: float
) -> Band:
    """The band from counts (events,) among ``n0`` and ``n1`` releases at the two neighbours.

    Clopper and Pearson's intervals with the error divided equally among all of them. Against a band
    of constant width (Dvoretzky, Kiefer and Wolfowitz) it is far narrower where probabilities are
    small, and that is where ε shows.

    Formal guarantee: all bounds hold at once with probability ≥ 1 − ``alpha``, if the events were
    fixed beforehand.
    """
    a = alpha / (4 * len(k0))
    return Band(*_interval(k0, n0, a), *_interval(k1, n1, a))


def one_sided(k0: int, n0: int, k1: int, n1: int, *, alpha: float, split: float) -> Band:
    """Of one event, a lower bound of P₁ at ``split`` of ``alpha``, an upper one of P₀ at the rest.

    Formal guarantee: both hold with probability ≥ 1 − ``alpha``, if event and split were fixed
    beforehand. They are what δ takes, in both directions: P₁ of the event and P₀ of its complement.
    """
    counts = np.array([k0]), np.array([k1])
    _, high = _interval(counts[0], n0, (1 - split) * alpha)
    low, _ = _interval(counts[1], n1, split * alpha)
    return Band(np.zeros(1), high, low, np.ones(1))


def _interval(k: npt.NDArray[np.int64], n: int, a: float) -> tuple[Array, Array]:
    low = np.where(k == 0, 0.0, scipy.special.betaincinv(np.maximum(k, 1), n - k + 1, a))
    high = np.where(k == n, 1.0, scipy.special.betainccinv(k + 1, np.maximum(n - k, 1), a))
    return low, high


def least_level(contradicts: Callable[[float], bool]) -> float:
    """The least α at which ``contradicts(α)``: a p-value, as the bands at all levels are nested."""
    if not contradicts(1 - 1e-9):
        return 1.0
    if contradicts(_SMALLEST):
        return _SMALLEST
    low, high = math.log(_SMALLEST), 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if contradicts(math.exp(middle)) else (middle, high)
    return math.exp(high)
