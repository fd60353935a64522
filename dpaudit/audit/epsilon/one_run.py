"""Auditing in one run: scores of many canaries, each in or out by a fair coin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.epsilon.tradeoff import least_level
from dpaudit.errors import UsageError

__all__ = ["Guesses", "OneRun", "one_run", "one_run_p", "one_run_p_tradeoff", "tradeoff_of_epsilon", "tradeoff_of_mu"]

_FEWEST = 8
_FARTHEST = 64.0
"""The largest ε that is looked for."""

Array = npt.NDArray[np.float64]
Inverse = Callable[[float], float]


@dataclass(frozen=True)
class Guesses:
    """``top`` canaries of the highest scores guessed in, ``bottom`` of the lowest guessed out; ``right`` of them are."""

    top: int
    bottom: int
    right: int

    @property
    def made(self) -> int:
        """How many guesses there are; about the others the auditor abstains."""
        return self.top + self.bottom

    def __str__(self) -> str:
        sides = [f"{n} {what}" for n, what in ((self.top, "highest in"), (self.bottom, "lowest out")) if n]
        return f"{' and '.join(sides)}: {self.right} of {self.made} right"


@dataclass(frozen=True)
class OneRun:
    """Lower bounds that hold at once with confidence 1 − α, the guesses behind them, and the p-value of the claim."""

    epsilon: float
    by_epsilon: Guesses
    mu: float
    by_mu: Guesses
    p: float
    p_mu: float
    by_p: Guesses
    tried: int


def one_run(
    scores: Array,
    member: npt.NDArray[np.bool_],
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    ties: np.random.Generator,
    mu: float | None = None,
    guesses: int | None = None,
) -> OneRun:
    """What the scores (m,) of m canaries show, ``member`` (m,) being the fair coins that put each in or left it out.

    A score may depend on all that the mechanism released and on no coin. Guesses are the ``guesses``/2 highest in and as
    many lowest out (rounded up to the top); where ``guesses`` is None all of m, m/2, m/4, … with both sides, the top
    or the bottom alone are tried, and α is divided among them.
    Half of α is for ε, by :func:`one_run_p`, or by :func:`one_run_p_tradeoff` where m·δ is so large that the former's
    term for δ would hide all (that depends on m, δ and α only); half is for μ, by the latter.

    Formal guarantee: P(ε bound above the true ε at ``delta``, or μ bound above the true μ, or p ≤ x under the claim
    for x ≤ α) ≤ α. Not claimed: tightness; one run shows less than the truth where canaries disturb each other.

    Raises:
        UsageError: fewer than 8 canaries, or ``guesses`` outside 1…m.
    """
    m = len(scores)
    if m < _FEWEST:
        raise UsageError(f"canaries={m}: a one-run audit needs at least {_FEWEST}; record more scores")
    if guesses is not None and not 1 <= guesses <= m:
        raise UsageError(f"guesses={guesses}: must lie in 1…{m}, the number of canaries")
    shuffled = ties.permutation(m)  # equal scores in file order would guess by the file's order, often the coins' own
    order = shuffled[np.argsort(scores[shuffled], kind="stable")]
    right_out = np.concatenate([[0], np.cumsum(~member[order])])
    right_in = np.concatenate([[0], np.cumsum(member[order[::-1]])])
    plans = [(guesses - guesses // 2, guesses // 2)] if guesses is not None else _plans(m)
    made = [Guesses(a, b, int(right_in[a] + right_out[b])) for a, b in plans]
    level = alpha / (2 * len(made))

    exact = m * delta <= level

    def p_of(g: Guesses, e: float) -> float:
        if exact:
            return one_run_p(m, g, epsilon=e, delta=delta)
        return one_run_p_tradeoff(m, g, tradeoff_of_epsilon(e, delta))

    def too_small(g: Guesses, e: float) -> bool:
        if exact:
            return one_run_p(m, g, epsilon=e, delta=delta) <= level
        return _rejects(m, g, tradeoff_of_epsilon(e, delta), level)

    eps, by_eps = 0.0, made[0]
    best_mu, by_mu = 0.0, made[0]
    for g in made:
        found = _largest(lambda e, g=g: too_small(g, e), eps)  # type: ignore[misc]
        if found > eps:
            eps, by_eps = found, g
        found = _largest(lambda u, g=g: _rejects(m, g, tradeoff_of_mu(u), level), best_mu)  # type: ignore[misc]
        if found > best_mu:
            best_mu, by_mu = found, g
    p_values = [p_of(g, epsilon) for g in made]
    p_mu = 1.0 if mu is None else min(one_run_p_tradeoff(m, g, tradeoff_of_mu(mu)) for g in made)
    at = int(np.argmin(p_values))
    spread = 2 * len(made)
    return OneRun(
        eps, by_eps, best_mu, by_mu, min(1.0, spread * p_values[at]), min(1.0, spread * p_mu), made[at], len(made)
    )


def _plans(m: int) -> list[tuple[int, int]]:
    plans, made = [], m
    while made >= _FEWEST:
        plans.append((made - made // 2, made // 2))
        if made < m:
            plans += [(made, 0), (0, made)]
        made //= 2
    return plans


def _largest(rejected: Callable[[float], bool], least: float) -> float:
    """The largest rejected value above ``least``, to 1e-4 from below; ``least`` if none is."""
    if not rejected(least + 1e-4):
        return least
    low, high = least + 1e-4, max(1.0, 2 * least)
    while high < _FARTHEST and rejected(high):
        low, high = high, 2 * high
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def one_run_p(m: int, guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """P(so many right guesses) under (ε, δ)-DP, at most (Steinke, Nasr and Jagielski 2023, Theorem 5.2).

    In the form for guesses with abstentions: f(v) + 2mδ·max_i (f(v − i) − f(v))/i with f(v) = P(Bin(r, q) ≥ v),
    q = e^ε/(1 + e^ε), r guesses of which v are right, and i = 1…v.

    >>> round(one_run_p(100, Guesses(50, 50, 75), epsilon=math.log(3), delta=0.0), 4)
    0.5535
    """
    v, r = guesses.right, guesses.made
    q = float(scipy.special.expit(epsilon))
    if v == 0:
        return 1.0
    at_least = float(scipy.special.betainc(v, r - v + 1, q))
    if delta == 0:
        return at_least
    i = np.arange(1, v + 1)
    fewer = np.ones(v)
    fewer[:-1] = scipy.special.betainc(v - i[:-1], r - v + i[:-1] + 1, q)
    return min(1.0, at_least + 2 * m * delta * float(((fewer - at_least) / i).max()))


def tradeoff_of_epsilon(epsilon: float, delta: float) -> Inverse:
    """The least P₀(E) that (ε, δ)-DP allows for an event with P₁(E) = y, as a function of y."""
    grow = math.exp(epsilon)
    return lambda y: max(0.0, (y - delta) / grow, 1 - delta - grow * (1 - y))


def tradeoff_of_mu(mu: float) -> Inverse:
    """The least P₀(E) that μ-GDP allows for an event with P₁(E) = y, as a function of y: Φ(Φ⁻¹(y) − μ)."""
    return lambda y: 0.0 if y <= 0 else float(scipy.special.ndtr(scipy.special.ndtri(min(1.0, y)) - mu))


def one_run_p_tradeoff(m: int, guesses: Guesses, inverse: Inverse) -> float:
    """P(at least so many right guesses) under a trade-off curve, at most: the largest that :func:`_rejects` allows."""
    return least_level(lambda tail: _rejects(m, guesses, inverse, tail))


def _rejects(m: int, guesses: Guesses, inverse: Inverse, tail: float) -> bool:
    """Whether no mechanism under the curve has P(at least so many right) ≥ ``tail``.

    The argument of Mahloujifar, Melis and Chaudhuri (2024), in short. Let p_t be the probability of t right guesses
    out of r, R_j = Σ_{t≥j} t·p_t/m and H_j = Σ_{t≥j} (r − t)·p_t/m. Turning canary i's coin turns a right guess about
    it into a wrong one; so the event "guess i right, t ≥ j right" becomes "guess i wrong, t ≥ j − 1 right", and the
    curve bounds the one by the other. Averaged over i (``inverse`` is convex): inverse(R_j) ≤ H_{j−1}. Given
    P(t ≥ v) = ``tail``, the demands are least if all of it is at v; then each p_{j−1} must be at least
    m·(inverse(R_j) − H_j)/(r − j + 1), and no less is asked later if it is more. A total above 1 is impossible.
    """
    v, r = guesses.right, guesses.made
    right, wrong = tail * v / m, tail * (r - v) / m
    limit = r / m
    for j in range(v, 0, -1):
        needed = inverse(right)
        if needed <= wrong:
            return False  # nothing more is asked for, here or below
        more = needed - wrong
        wrong = needed
        right += more * (j - 1) / (r - j + 1)
        if right + wrong > limit * (1 + 1e-12):
            return True
    return False
