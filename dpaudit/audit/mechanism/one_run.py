"""How much one run shows: guesses of which canaries were in, each in or out by a fair coin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.bounds import least_level
from dpaudit.errors import UsageError

__all__ = [
    "FEWEST",
    "Guesses",
    "OneRun",
    "Ranked",
    "Refutes",
    "Trial",
    "bounds",
    "largest_refuted",
    "least_p",
    "one_run",
    "one_run_p",
    "one_run_p_chosen",
    "one_run_p_tradeoff",
    "tradeoff_of_epsilon",
    "tradeoff_of_mu",
    "tradeoff_of_profile",
    "trials",
]

FEWEST = 8
"""Least number of canaries."""
_FARTHEST = 64.0
"""Largest ε tried."""

Array = npt.NDArray[np.float64]
Inverse = Callable[[float], float]
Claimed = Inverse | tuple[float, float]
"""What is tested: a trade-off curve, or one pair (ε, δ)."""


@dataclass(frozen=True)
class Guesses:
    """``top`` highest scores guessed in, ``bottom`` lowest guessed out, ``right`` of them right."""

    top: int
    bottom: int
    right: int

    @property
    def count(self) -> int:
        """Number of guesses; the auditor abstains on the other canaries."""
        return self.top + self.bottom

    def __str__(self) -> str:
        both = (self.top, "highest in"), (self.bottom, "lowest out")
        sides = [f"{n} {side}" for n, side in both if n]
        return f"{' and '.join(sides)}: {self.right} of {self.count} right"


@dataclass(frozen=True)
class Trial:
    """``guesses`` about some of ``canaries`` canaries, and the share of α that they may spend.

    The coins of ``left_out`` other canaries chose how many to guess; 0 if that was fixed before.
    """

    canaries: int
    guesses: Guesses
    share: float
    left_out: int = 0

    def __str__(self) -> str:
        chosen = f", chosen by {self.left_out} other canaries" if self.left_out else ""
        return f"{self.guesses}{chosen}"

    @property
    def numbers(self) -> dict[str, float]:
        """For a result's details; ``share`` is of α."""
        g = self.guesses
        return {
            "top": g.top,
            "bottom": g.bottom,
            "right": g.right,
            "canaries": self.canaries,
            "left_out": self.left_out,
            "share": self.share,
        }

    def p(self, claimed: Claimed) -> float:
        """An upper bound for P(so many right) under what is ``claimed``.

        Raises:
            ValueError: a curve, where the number of guesses was chosen: no bound is proven.
        """
        if callable(claimed):
            return one_run_p_tradeoff(self.canaries, self._fixed, claimed)
        bound = one_run_p_chosen if self.left_out else one_run_p
        return bound(self.canaries, self.guesses, epsilon=claimed[0], delta=claimed[1])

    def refutes(self, level: float, claimed: Claimed) -> bool:
        """Whether :meth:`p` is at most ``level``, faster."""
        if callable(claimed):
            return _rejects(self.canaries, self._fixed, claimed, level)
        if self.left_out:
            epsilon, delta = claimed
            return _chosen_rejects(self.canaries, _cut(self.guesses, epsilon), delta, level)
        return self.p(claimed) <= level

    @property
    def _fixed(self) -> Guesses:
        if self.left_out:
            raise ValueError("a chosen number of guesses is not compared with a trade-off curve")
        return self.guesses


@dataclass(frozen=True)
class OneRun:
    """Simultaneous lower bounds at confidence 1 − α, p-values of the claims, and their guesses."""

    epsilon: float
    by_epsilon: Trial
    mu: float
    by_mu: Trial
    p: float
    by_p: Trial
    p_mu: float
    by_p_mu: Trial
    tried: int
    ceiling: float
    """The largest ε that could be shown, if every guess were right."""


def one_run(
    scores: Array,
    member: npt.NDArray[np.bool_],
    *,
    claim: PrivacyClaim,
    alpha: float,
    ties: np.random.Generator,
    guesses: int | None = None,
    share: float | None = None,
) -> OneRun:
    """Bounds from the scores (m,) of m canaries, each in or out by a fair coin (``member``, (m,)).

    A score may depend on all that the mechanism released and on no coin. What is guessed is said by
    :func:`trials`. ``share`` of α is for ε, by :func:`one_run_p` and :func:`one_run_p_chosen`; the
    rest is for μ, by :func:`one_run_p_tradeoff`. It is 1/2 where μ is claimed, else 0.9.

    Formal guarantee: P(ε bound above the true ε at the claimed δ, or μ bound above the true μ, or p
    ≤ x under the claim for x ≤ α) ≤ α. Proof: each function bounds P(V ≥ v), V right guesses in the
    trial, for guesses of the kind that it is used for; so p(V) ≤ x with probability at most x. The
    union bound over trials, and over ε and μ, gives the rest. Not claimed: tightness; one run shows
    less than the truth where canaries disturb each other.

    Raises:
        UsageError: fewer than 8 canaries, or ``guesses`` outside 1…m.
    """
    ranked = Ranked.of(scores, member, ties)
    return bounds(
        lambda level: trials(ranked, guesses=guesses, level=level),
        claim=claim,
        alpha=alpha,
        share=share,
    )


def bounds(
    trials_at: TrialsAt,
    *,
    claim: PrivacyClaim,
    alpha: float,
    share: float | None = None,
) -> OneRun:
    """As :func:`one_run`, of the trials that ``trials_at`` makes."""
    epsilon, delta, mu = claim.epsilon, claim.delta, claim.mu
    of_epsilon = (0.9 if mu is None else 0.5) if share is None else share
    of_mu = 1 - of_epsilon

    def at_epsilon(trial: Trial, level: float, e: float) -> bool:
        return trial.refutes(level, (e, delta))

    def at_mu(trial: Trial, level: float, u: float) -> bool:
        return trial.refutes(level, tradeoff_of_mu(u))

    trials_of_epsilon, trials_of_mu = trials_at(alpha * of_epsilon), trials_at(None)
    eps, by_eps = largest_refuted(trials_of_epsilon, alpha * of_epsilon, at_epsilon)
    most_mu, by_mu = largest_refuted(trials_of_mu, alpha * of_mu, at_mu)
    p, by_p = least_p(trials_of_epsilon, lambda trial: trial.p((epsilon, delta)))
    p_mu, by_p_mu = (
        (1.0, by_mu) if mu is None else least_p(trials_of_mu, lambda t: t.p(tradeoff_of_mu(mu)))
    )
    return OneRun(
        epsilon=eps,
        by_epsilon=by_eps,
        mu=most_mu,
        by_mu=by_mu,
        p=min(1.0, p / of_epsilon),
        by_p=by_p,
        p_mu=min(1.0, p_mu / of_mu),
        by_p_mu=by_p_mu,
        tried=len(trials_of_epsilon),
        ceiling=max(_ceiling(trial, alpha * of_epsilon) for trial in trials_of_epsilon),
    )


def _ceiling(trial: Trial, alpha: float) -> float:
    """The largest ε that a trial could show, if every guess were right: q^r = its level."""
    guesses = _most_chosen(trial.canaries) if trial.left_out else trial.guesses
    wrong = -math.expm1(math.log(alpha * trial.share) / max(1, guesses.count))
    return math.log1p(-wrong) - math.log(wrong) if wrong < 0.5 else 0.0


TrialsAt = Callable[[float | None], Sequence[Trial]]
"""The guesses that are made against (ε, δ) at a level of error, or against a curve (None)."""
Refutes = Callable[[Trial, float, float], bool]
"""Whether a trial refutes a parameter at a level, and with it all smaller ones."""


def largest_refuted(
    candidates: Sequence[Trial], alpha: float, refutes: Refutes
) -> tuple[float, Trial]:
    """The largest parameter that a trial refutes at its share of ``alpha``, and which does.

    0 and the first trial if there is none.
    """
    best, by = 0.0, candidates[0]
    for trial in candidates:
        bound = _largest_rejected(lambda x, t=trial: refutes(t, alpha * t.share, x), best)  # type: ignore[misc]
        if bound > best:
            best, by = bound, trial
    return best, by


def least_p(candidates: Sequence[Trial], p_of: Callable[[Trial], float]) -> tuple[float, Trial]:
    """The least p-value of the trials, each divided by its share, and which has it."""
    values = [min(1.0, p_of(trial) / trial.share) for trial in candidates]
    at = int(np.argmin(values))
    return values[at], candidates[at]


_AGAINST_CURVES = ((0.3, 0.3, 0.4), (0.08, 0.08, 0.4), (0.08, 0.0, 0.2))
"""The parts of all canaries that are guessed in and out, and their share of α."""
_AGAINST_EPSILON = ((0.3, 0.3, 0.04), (0.08, 0.0, 0.03), (0.0, 0.08, 0.03))
_CHOSEN = 0.9
"""The share of α of the guesses whose number is chosen."""
_SEEN = 0.1
"""The part of the canaries, in the middle, that is never among these."""
_FEW = 40
_PARTS = np.append(np.geomspace(1, 1 / 32, 16), 0.0)
_STEP = 0.9
_PRIOR = np.array([0.0, 5.0, 1.0])
"""Of the regression on 1, z and z³; z is the score, from the median, by the 10 to 90 % range."""
_WEIGHT = np.array([0.05, 0.05, 0.5])
_CLEARLY = 1.0


@dataclass(frozen=True)
class Ranked:
    """Canaries by score, the lowest first: scores (m,), and whether each was in (m,).

    Equal scores are in random order: in that of the file they would be guessed by the order of the
    coins.
    """

    scores: Array
    member: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, scores: Array, member: npt.NDArray[np.bool_], ties: np.random.Generator) -> Ranked:
        """Rank scores (m,); at least 8."""
        m = len(scores)
        if m < FEWEST:
            raise UsageError(
                f"canaries={m}: a one-run audit needs at least {FEWEST}; record more scores"
            )
        shuffled = ties.permutation(m)
        order = shuffled[np.argsort(scores[shuffled], kind="stable")]
        return cls(scores[order], member[order])

    def guess(self, top: int, bottom: int) -> Guesses:
        """What guesses about so many at the top and the bottom give."""
        m = len(self.member)
        right = self.member[m - top :].sum() + bottom - self.member[:bottom].sum()
        return Guesses(top, bottom, int(right))


def trials(ranked: Ranked, *, guesses: int | None, level: float | None) -> tuple[Trial, ...]:
    """What is guessed: the highest scores in and the lowest out, of so many canaries.

    With ``guesses``, half of them (rounded up) in and half out. Otherwise against a curve 30 % and
    8 % of the canaries in and as many out, and the highest 8 % alone; against (ε, δ), at ``level``,
    numbers that the canaries which are not guessed choose, 30 % in and out, and 8 % at either end
    alone. Fewer than 40 canaries: all.

    Raises:
        UsageError: ``guesses`` outside 1…m.
    """
    m = len(ranked.member)
    if guesses is not None and not 1 <= guesses <= m:
        raise UsageError(f"guesses={guesses}: must lie in 1…{m}, the number of canaries")
    if guesses is not None or m < _FEW:
        n = m if guesses is None else guesses
        return (Trial(m, ranked.guess(n - n // 2, n // 2), 1.0),)
    plans = _AGAINST_CURVES if level is None else _AGAINST_EPSILON
    fixed = [Trial(m, ranked.guess(round(a * m), round(b * m)), share) for a, b, share in plans]
    if level is None:
        return tuple(fixed)
    chosen = _choose(ranked, level * _CHOSEN)
    return (Trial(m, chosen, _CHOSEN, m - chosen.count), *fixed)


def _most_chosen(m: int) -> Guesses:
    return Guesses(half := round((1 - _SEEN) / 2 * m), half, 0)


def _choose(ranked: Ranked, level: float) -> Guesses:
    """Numbers of top and bottom guesses that promise most, by the coins of all other canaries.

    Coins are looked at from the middle outwards. Those seen predict the others, by logistic
    regression on the score or rank; looking stops where no smaller number of guesses promises a
    larger ε. A wrong prediction costs power, not validity (:func:`one_run_p_chosen`).
    """
    most = _most_chosen(len(ranked.member))
    top, bottom = most.top, most.bottom
    while True:
        chance = _chances(ranked, bottom, len(ranked.member) - top)
        tops, bottoms = (np.round(n * _PARTS).astype(int) for n in (top, bottom))
        right_in = np.append(0.0, np.cumsum(chance[::-1]))[tops][:, None]
        right = right_in + np.append(0.0, np.cumsum(1 - chance))[bottoms]
        count = tops[:, None] + bottoms
        share = scipy.special.betaincinv(right, count - right + 1, level)
        a, b = np.unravel_index(np.argmax(np.where(count < FEWEST, 0.0, share)), share.shape)
        if a == b == 0:
            return ranked.guess(top, bottom)
        top = max(int(tops[a]), int(top * _STEP)) if a else top
        bottom = max(int(bottoms[b]), int(bottom * _STEP)) if b else bottom


def _chances(ranked: Ranked, start: int, stop: int) -> Array:
    """The probability that each canary was in (m,), as those from ``start`` to ``stop`` have it.

    By the score, or by its rank where that fits clearly better. Far scores are taken for clear ones
    until coins speak against it: the prior of z³ says so.
    """
    m = len(ranked.scores)
    scores = ranked.scores / (np.abs(ranked.scores).max() or 1.0)
    ranks = scipy.special.ndtri((np.arange(m) + 0.5) / m)
    (by_score, fit), (by_rank, other) = (
        _regress(z, ranked.member, start, stop) for z in (scores, ranks)
    )
    return by_rank if other > fit + _CLEARLY else by_score


def _regress(
    values: Array, member: npt.NDArray[np.bool_], start: int, stop: int
) -> tuple[Array, float]:
    """Chances (m,) by logistic regression on the values, and its penalised log-likelihood."""
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    z = np.clip((values - middle) / (high - low or 1.0), -4.0, 4.0)
    x = np.stack([np.ones_like(z), z, z**3], axis=1)
    seen, coins = x[start:stop], member[start:stop]
    weights = _PRIOR.copy()
    for _ in range(20):
        p = scipy.special.expit(seen @ weights)
        bend = (seen * (p * (1 - p))[:, None]).T @ seen + np.diag(_WEIGHT)
        step = np.linalg.solve(bend, seen.T @ (coins - p) - _WEIGHT * (weights - _PRIOR))
        weights += np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-3:
            break
    logits = seen @ weights
    likelihood = -np.logaddexp(0.0, np.where(coins, -logits, logits)).sum()
    penalty = (_WEIGHT * (weights - _PRIOR) ** 2).sum() / 2
    return np.asarray(scipy.special.expit(x @ weights)), float(likelihood - penalty)


def _largest_rejected(rejected: Callable[[float], bool], least: float) -> float:
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


def _cut(guesses: Guesses, epsilon: float) -> tuple[Array, Array]:
    """For t = 0…v: P(W ≥ v | W ≥ t) and t·P(W = t | W ≥ t); W ~ Bin(r, e^ε/(1 + e^ε))."""
    v, r = guesses.right, guesses.count
    t = np.arange(r + 1)
    ways = -scipy.special.betaln(t + 1, r - t + 1)
    log = ways + t * -np.log1p(math.exp(-epsilon)) + (r - t) * -np.log1p(math.exp(epsilon))
    log -= math.log(r + 1)
    at_least = np.logaddexp.accumulate(log[::-1])[::-1]
    at_least -= at_least[0]
    return np.exp(at_least[v] - at_least[: v + 1]), (t * np.exp(log - at_least))[: v + 1]


def one_run_p(m: int, guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """The largest P(V ≥ v) that an (ε, δ)-DP mechanism has; the number of guesses is fixed before.

    Let p_t be the probability of t right guesses out of r, and D the sum over t of (t·p_t −
    e^ε·(r − t + 1)·p_{t−1})₊ and ((r − t)·p_t − e^ε·(t + 1)·p_{t+1})₊. Turning a canary's coin
    turns "guessed right, t right" into "guessed wrong, t − 1 right"; so (ε, δ)-DP asks for D ≤ m·δ.
    Let W be binomial, as in :func:`_cut`. For every price λ ≥ 0 of D

        P(V ≥ v) ≤ A(λ) + λ·m·δ,  A(λ) = max over t ≤ v of P(W ≥ v | W ≥ t) − λ·t·P(W = t | W ≥ t):

    the law of W given W ≥ t has D = t·P(W = t | W ≥ t), and no law has more P(V ≥ v) − λ·D than the
    best of these (docs/statistics/one-run.md). The least of the right side over λ is the upper hull
    of the points (D, P(W ≥ v | W ≥ t)) at m·δ. Mixtures of such laws reach it, and mechanisms have
    them: no smaller bound is valid. For δ = 0 it is P(W ≥ v).

    >>> round(one_run_p(100, Guesses(50, 50, 75), epsilon=math.log(3), delta=0.0), 4)
    0.5535
    """
    tail, cost = _cut(guesses, epsilon)
    budget = m * delta
    over = int(np.searchsorted(cost, budget, side="right"))
    if over == len(cost):
        return 1.0
    i, last, p = over - 1, -1.0, float(tail[over - 1])
    while p > last and budget:  # the segment of the hull over the budget
        last = p
        j = over + int(np.argmax((tail[over:] - tail[i]) / (cost[over:] - cost[i])))
        slopes = (tail[j] - tail[:over]) / (cost[j] - cost[:over])
        i = int(np.argmin(slopes))
        p = float(tail[i] + (budget - cost[i]) * slopes[i])
    return min(1.0, p)


def one_run_p_chosen(m: int, guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """As :func:`one_run_p`, for a number of guesses chosen by all that was released and by coins.

    But only by the coins of canaries that are not guessed, looked at one after the other.

    Let G be the canaries guessed and ρ the plan. Turning the coin of a canary of G changes neither,
    as its coin was not looked at. So with p_{ρ,t} = P(plan ρ, t right) the sum of D over plans is
    at most m·δ; and for one λ for all plans P(p ≤ x) ≤ Σ_ρ A_ρ(λ)·P(ρ) + λ·Σ_ρ D_ρ ≤ x, if plan ρ
    is rejected where A_ρ(λ) ≤ x − λ·m·δ. A mechanism could spend its δ on the plan where it pays
    most; so λ must not depend on the plan. It is fixed by m·δ/x (:func:`_chosen_rejects`). For
    δ = 0 this is P(W ≥ v).
    """
    cut = _cut(guesses, epsilon)
    return least_level(lambda x: _chosen_rejects(m, cut, delta, x))


def _chosen_rejects(m: int, cut: tuple[Array, Array], delta: float, level: float) -> bool:
    """Whether A(λ) ≤ level − λ·m·δ, with λ·m·δ a share of ``level`` that grows with m·δ/level.

    λ grows with the level, and so does level − λ·m·δ: who rejects at one rejects at all above it.
    """
    tail, cost = cut
    if delta == 0:
        return bool(tail[0] <= level)
    ratio = m * delta / level
    share = (0.2 + ratio) / (20 + ratio)
    return bool((tail - share / ratio * cost).max() <= (1 - share) * level)


def tradeoff_of_epsilon(epsilon: float, delta: float) -> Inverse:
    """The least P₀(E) that (ε, δ)-DP allows for an event with P₁(E) = y, as a function of y."""
    grow = math.exp(epsilon)
    return lambda y: max(0.0, (y - delta) / grow, 1 - delta - grow * (1 - y))


def tradeoff_of_mu(mu: float) -> Inverse:
    """The least P₀(E) that μ-GDP allows, as a function of P₁(E) = y: Φ(Φ⁻¹(y) − μ)."""
    return lambda y: (
        0.0 if y <= 0 else float(scipy.special.ndtr(scipy.special.ndtri(min(1.0, y)) - mu))
    )


def tradeoff_of_profile(profile: Sequence[tuple[float, float]]) -> Inverse:
    """The least P₀(E) that (ε, δ)-DP allows for all pairs of ``profile`` at once."""
    pairs = np.asarray(profile, dtype=np.float64)
    delta, grow = pairs[:, 1], np.exp(pairs[:, 0])

    def inverse(y: float) -> float:
        lines = np.maximum((y - delta) / grow, 1 - delta - grow * (1 - y))
        return max(0.0, float(lines.max()))

    return inverse


def one_run_p_tradeoff(m: int, guesses: Guesses, inverse: Inverse) -> float:
    """An upper bound for P(at least so many right guesses) under a trade-off curve."""
    return least_level(lambda tail: _rejects(m, guesses, inverse, tail))


def _rejects(m: int, guesses: Guesses, inverse: Inverse, tail: float) -> bool:
    """Whether no mechanism under the curve has P(at least so many right) ≥ ``tail``.

    The argument of Mahloujifar, Melis and Chaudhuri (2024), in short. Let p_t be the probability of
    t right guesses out of r, R_j = Σ_{t≥j} t·p_t/m and H_j = Σ_{t≥j} (r − t)·p_t/m. Turning canary
    i's coin turns a right guess about it into a wrong one; so the event "guess i right, t ≥ j
    right" becomes "guess i wrong, t ≥ j − 1 right", and the curve bounds the one by the other.
    Averaged over i (``inverse`` is convex): inverse(R_j) ≤ H_{j−1}. Given P(t ≥ v) = ``tail``, the
    demands are least if all of it is at v; then each p_{j−1} must be at least m·(inverse(R_j) −
    H_j)/(r − j + 1), and a larger one lowers no later demand. A total above 1 is impossible.
    """
    v, r = guesses.right, guesses.count
    right, wrong = tail * v / m, tail * (r - v) / m
    limit = r / m
    for j in range(v, 0, -1):
        needed = inverse(right)
        if needed <= wrong:
            return False  # no further demand, here or below
        more = needed - wrong
        wrong = needed
        right += more * (j - 1) / (r - j + 1)
        if right + wrong > limit * (1 + 1e-12):
            return True
    return False
