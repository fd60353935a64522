"""One event that was fixed beforehand: how much ε its counts at two neighbours prove."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["epsilon_bounds", "excess_allowed", "hockey_stick_p"]

_FOR_EXCESS = 0.1
"""Share of the error that is spent on δ."""
_SMALLEST = 1e-300


def excess_allowed(draws: int, delta: float, *, alpha: float) -> int:
    """The least b with P(Binomial(draws, δ/2) > b) ≤ ``alpha``: how often δ alone explains an event."""
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
    """Lower bounds for ε at δ from events that were seen ``inside`` times at one neighbour and ``outside`` at the other.

    ``draws`` releases were made in all, each at a neighbour chosen by a fair coin. Under (ε, δ)-DP,
    P₁(E) ≤ e^ε·P₀(E) + δ, so each draw is an occurrence of E at neighbour 1 *in excess of* e^ε·P₀(E) with probability
    at most δ/2; such excess is at most b = :func:`excess_allowed` but with a tenth of the error. Of the other
    occurrences of E, given their number, those at neighbour 1 are binomial with a share of at most e^ε/(1 + e^ε);
    Clopper and Pearson's (1934) one-sided bound for that share uses the rest of the error.

    Formal guarantee: each entry is at most the true ε with probability ≥ 1 − ``alpha``, if its event was fixed before
    the counts were seen. One binomial instead of two (as in :func:`dpaudit.stats.epsilon_lower_bound`) makes the gap to
    the truth up to √2 smaller. Not claimed: tightness; it cannot exceed about ln(draws/2). ``-inf`` where all
    occurrences may be excess.
    """
    k1, k0 = np.broadcast_arrays(np.asarray(inside, np.float64), np.asarray(outside, np.float64))
    spent = 0.0 if delta == 0 else _FOR_EXCESS * alpha
    left = k1 - excess_allowed(draws, delta, alpha=spent)
    bound = np.full(left.shape, -np.inf)
    some = left > 0
    share = scipy.special.betaincinv(left[some], k0[some] + 1, alpha - spent)
    rest = scipy.special.betainccinv(k0[some] + 1, left[some], alpha - spent)
    with np.errstate(divide="ignore"):
        bound[some] = np.log(share) - np.log(rest)
    return bound


def hockey_stick_p(inside: int, outside: int, *, draws: int, epsilon: float, delta: float) -> float:
    """p-value of P₁(E) ≤ e^ε·P₀(E) + δ: the least level at which :func:`epsilon_bounds` exceeds ``epsilon``.

    Formal guarantee: super-uniform for an event that was fixed beforehand (the tests at all levels are nested). Without
    δ it is the exact binomial tail.
    """
    if inside == 0:
        return 1.0
    if delta == 0:
        return float(scipy.special.betainc(inside, outside + 1, scipy.special.expit(epsilon)))

    def rejects(alpha: float) -> bool:
        return float(epsilon_bounds(inside, outside, draws=draws, delta=delta, alpha=alpha)) > epsilon

    if not rejects(1 - 1e-9):
        return 1.0
    low, high = math.log(_SMALLEST), 0.0
    if rejects(_SMALLEST):
        return _SMALLEST
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if rejects(math.exp(middle)) else (middle, high)
    return math.exp(high)
