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

    ``left_out`` other canaries chose how many to guess.
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
            "share": self.share,
        }

    def p(self, *curves: Inverse, pair: tuple[float, float] | None = None) -> float:
        """An upper bound for P(so many right), under all ``curves`` and (ε, δ) = ``pair``.

        Each is an upper bound for the same probability, and so the least of them is one.
        """
        tails = [one_run_p_tradeoff(self.canaries, self.guesses, curve) for curve in curves]
        if pair is not None:
            epsilon, delta = pair
            tails.append(one_run_p(self.canaries, self.guesses, epsilon=epsilon, delta=delta))
        return min(tails)

    def refutes(
        self, level: float, *curves: Inverse, pair: tuple[float, float] | None = None
    ) -> bool:
        """Whether :meth:`p` is at most ``level``, faster."""
        if pair is not None:
            epsilon, delta = pair
            if one_run_p(self.canaries, self.guesses, epsilon=epsilon, delta=delta) <= level:
                return True
        return any(_rejects(self.canaries, self.guesses, curve, level) for curve in curves)


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
    :func:`trials`. ``share`` of α is for ε, by :func:`one_run_p` and :func:`one_run_p_tradeoff`;
    the rest is for μ, by the latter. It is 1/2 where μ is claimed, else 0.9.

    Formal guarantee: P(ε bound above the true ε at the claimed δ, or μ bound above the true μ, or p
    ≤ x under the claim for x ≤ α) ≤ α. Proof: each trial's guesses are fixed beforehand, or chosen
    by the coins of canaries that it leaves out. Given those coins, the mechanism is as private for
    each canary left as without them. So both functions bound P(V ≥ v) for every v, V right guesses
    in the trial; then p(V) ≤ x with probability at most x for the lesser of them. The union bound
    over trials, and over ε and μ, gives the rest. Not claimed: tightness; one run shows less than
    the truth where canaries disturb each other.

    Raises:
        UsageError: fewer than 8 canaries, or ``guesses`` outside 1…m.
    """
    ranked = Ranked.of(scores, member, ties)
    return bounds(
        lambda level, refutes: trials(ranked, guesses=guesses, level=level, refutes=refutes),
        claim=claim,
        alpha=alpha,
        share=share,
    )


def bounds(
    trials_at: Callable[[float, Refutes], Sequence[Trial]],
    *,
    claim: PrivacyClaim,
    alpha: float,
    share: float | None = None,
) -> OneRun:
    """As :func:`one_run`, of the trials that ``trials_at`` makes at a level."""
    epsilon, delta, mu = claim.epsilon, claim.delta, claim.mu
    of_epsilon = (0.9 if mu is None else 0.5) if share is None else share
    of_mu = 1 - of_epsilon

    def at_epsilon(trial: Trial, level: float, e: float) -> bool:
        return trial.refutes(level, tradeoff_of_epsilon(e, delta), pair=(e, delta))

    def at_mu(trial: Trial, level: float, u: float) -> bool:
        return trial.refutes(level, tradeoff_of_mu(u))

    trials_of_epsilon = trials_at(alpha * of_epsilon, at_epsilon)
    trials_of_mu = trials_at(alpha * of_mu, at_mu)
    eps, by_eps = largest_refuted(trials_of_epsilon, alpha * of_epsilon, at_epsilon)
    most_mu, by_mu = largest_refuted(trials_of_mu, alpha * of_mu, at_mu)
    claimed = tradeoff_of_epsilon(epsilon, delta)
    p, by_p = least_p(trials_of_epsilon, lambda trial: trial.p(claimed, pair=(epsilon, delta)))
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
    wrong = -math.expm1(math.log(alpha * trial.share) / max(1, trial.guesses.count))
    return math.log1p(-wrong) - math.log(wrong) if wrong < 0.5 else 0.0


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


_FIXED = ((0.3, 0.3, 0.3), (0.08, 0.08, 0.3), (0.08, 0.0, 0.2))
"""The parts of all canaries that are guessed in and out, and their share of α."""
_CHOSEN = 0.2
"""The share of α of the guesses that are chosen by ``_RESERVED`` of the canaries."""
_RESERVED = 0.2
_FEW = 40
_CAUTION = 0.1
"""The quantile of the posterior of the share of right guesses, by which they are chosen."""


@dataclass(frozen=True)
class Ranked:
    """Canaries by score: ``order`` from the lowest, and whether each was in, in file order.

    Equal scores are in random order: in that of the file they would be guessed by the order of the
    coins. ``reserved`` says which are kept for the choice of a plan.
    """

    order: npt.NDArray[np.intp]
    member: npt.NDArray[np.bool_]
    reserved: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, scores: Array, member: npt.NDArray[np.bool_], ties: np.random.Generator) -> Ranked:
        """Rank scores (m,); at least 8."""
        m = len(scores)
        if m < FEWEST:
            raise UsageError(
                f"canaries={m}: a one-run audit needs at least {FEWEST}; record more scores"
            )
        shuffled = ties.permutation(m)
        reserved = np.zeros(m, dtype=bool)
        reserved[ties.permutation(m)[: round(_RESERVED * m)]] = True
        return cls(shuffled[np.argsort(scores[shuffled], kind="stable")], member, reserved)

    def among(self, some: npt.NDArray[np.bool_] | None = None) -> Callable[[int, int], Guesses]:
        """What guesses about so many at the top and the bottom give, of all or some canaries."""
        order = self.order if some is None else self.order[some[self.order]]
        coins = self.member[order]
        right_in = np.concatenate([[0], np.cumsum(coins[::-1])])
        right_out = np.concatenate([[0], np.cumsum(~coins)])
        return lambda a, b: Guesses(a, b, int(right_in[a] + right_out[b]))


def trials(
    ranked: Ranked, *, guesses: int | None, level: float, refutes: Refutes
) -> tuple[Trial, ...]:
    """What is guessed: the highest scores in and the lowest out, of so many canaries.

    With ``guesses``, half of them (rounded up) in and half out. Otherwise 30 % and 8 % of the
    canaries in and as many out; the highest 8 % alone; and numbers which a random fifth of the
    canaries chooses (those that would show the largest parameter by ``refutes``, if about as many
    were right as there) and which are then judged on the others. Fewer than 40 canaries: all.

    Raises:
        UsageError: ``guesses`` outside 1…m.
    """
    m, every = len(ranked.member), ranked.among()
    if guesses is not None and not 1 <= guesses <= m:
        raise UsageError(f"guesses={guesses}: must lie in 1…{m}, the number of canaries")
    if guesses is not None or m < _FEW:
        n = m if guesses is None else guesses
        return (Trial(m, every(n - n // 2, n // 2), 1.0),)
    fixed = [Trial(m, every(round(a * m), round(b * m)), share) for a, b, share in _FIXED]
    judged = m - int(ranked.reserved.sum())
    plan = _choose_plan(ranked.among(ranked.reserved), m - judged, judged, level * _CHOSEN, refutes)
    return (*fixed, Trial(judged, ranked.among(~ranked.reserved)(*plan), _CHOSEN, m - judged))


def _choose_plan(
    guesses_of: Callable[[int, int], Guesses], n: int, m: int, level: float, refutes: Refutes
) -> tuple[int, int]:
    """The numbers of top and bottom guesses about ``m`` canaries that promise most, by ``n``."""
    best, plan, clearest = 0.0, (m - m // 2, m // 2), -math.inf
    count = m
    while count >= FEWEST:
        for top in (count, count - count // 2, 0):
            bottom = count - top
            of = guesses_of(round(top * n / m), round(bottom * n / m))
            if not of.count or (count == m and 0 in (top, bottom)):
                continue
            right = float(
                scipy.special.betaincinv(of.right + 0.5, of.count - of.right + 0.5, _CAUTION)
            )
            trial = Trial(m, Guesses(top, bottom, int(right * count)), 1.0)
            bound = _largest_rejected(lambda x, t=trial: refutes(t, level, x), best)  # type: ignore[misc]
            clear = (2 * right - 1) * math.sqrt(count)
            if bound > best or (best == 0 and clear > clearest):
                best, plan = bound, (top, bottom)
            clearest = max(clear, clearest)
        count //= 2
    return plan


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


def one_run_p(m: int, guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """An upper bound for P(so many right guesses) under (ε, δ)-DP.

    Steinke, Nasr and Jagielski 2023, Theorem 5.2, in the form for guesses with abstentions:
    f(v) + 2mδ·max_i (f(v − i) − f(v))/i with f(v) = P(Bin(r, q) ≥ v), q = e^ε/(1 + e^ε), r guesses
    of which v are right, and i = 1…v.

    >>> round(one_run_p(100, Guesses(50, 50, 75), epsilon=math.log(3), delta=0.0), 4)
    0.5535
    """
    v, r = guesses.right, guesses.count
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
