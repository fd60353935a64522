"""Auditing in one run, from recorded scores of many canaries, each in or out by a fair coin."""

from __future__ import annotations

import array
import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.epsilon.bounds import least_level
from dpaudit.audit.epsilon.releases import ASSUMPTION_LEVEL
from dpaudit.audit.epsilon.verdict import (
    at_least,
    one_run_blind_spots,
    rounded_down,
    verdict_of,
)
from dpaudit.audit.options import PrivacyClaim
from dpaudit.errors import UsageError
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.results.arrays import Archive
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line
from dpaudit.samplers.endpoints.recordings import lines_of, open_text
from dpaudit.stats import binomial_two_sided
from dpaudit.types import MechanismResult, TestResult, Verdict

__all__ = [
    "SCORES",
    "Guesses",
    "OneRun",
    "audit_scores",
    "one_run",
    "one_run_p",
    "one_run_p_tradeoff",
    "read_scores",
    "tradeoff_of_epsilon",
    "tradeoff_of_mu",
]

SCORES = "scores:"
_FEWEST = 8
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
    def made(self) -> int:
        """Number of guesses; the auditor abstains on the other canaries."""
        return self.top + self.bottom

    def __str__(self) -> str:
        both = (self.top, "highest in"), (self.bottom, "lowest out")
        sides = [f"{n} {what}" for n, what in both if n]
        return f"{' and '.join(sides)}: {self.right} of {self.made} right"


@dataclass(frozen=True)
class OneRun:
    """Simultaneous lower bounds at confidence 1 − α, p-values of the claims, and their guesses."""

    epsilon: float
    by_epsilon: Guesses
    mu: float
    by_mu: Guesses
    p: float
    by_p: Guesses
    p_mu: float
    by_p_mu: Guesses
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
    """Bounds from the scores (m,) of m canaries, each in or out by a fair coin (``member``, (m,)).

    A score may depend on all that the mechanism released and on no coin. Guesses are the
    ``guesses``/2 highest in and as many lowest out (rounded up to the top); if ``guesses`` is None
    all of m, m/2, m/4, … with both sides, the top or the bottom alone are tried, and α is divided
    among them. Half of α is for ε, by :func:`one_run_p`, or by :func:`one_run_p_tradeoff` where m·δ
    is so large that the former's term for δ would hide everything (that depends on m, δ and α
    only); half is for μ, by the latter.

    Formal guarantee: P(ε bound above the true ε at ``delta``, or μ bound above the true μ, or p ≤ x
    under the claim for x ≤ α) ≤ α. Not claimed: tightness; one run shows less than the truth where
    canaries disturb each other.

    Raises:
        UsageError: fewer than 8 canaries, or ``guesses`` outside 1…m.
    """
    m = len(scores)
    if m < _FEWEST:
        raise UsageError(
            f"canaries={m}: a one-run audit needs at least {_FEWEST}; record more scores"
        )
    if guesses is not None and not 1 <= guesses <= m:
        raise UsageError(f"guesses={guesses}: must lie in 1…{m}, the number of canaries")
    # in file order, equal scores would be guessed by the order of the file, often that of the coins
    shuffled = ties.permutation(m)
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
    p_mu = [1.0 if mu is None else one_run_p_tradeoff(m, g, tradeoff_of_mu(mu)) for g in made]
    at, at_mu = int(np.argmin(p_values)), int(np.argmin(p_mu))
    spread = 2 * len(made)
    return OneRun(
        epsilon=eps,
        by_epsilon=by_eps,
        mu=best_mu,
        by_mu=by_mu,
        p=min(1.0, spread * p_values[at]),
        by_p=made[at],
        p_mu=min(1.0, spread * p_mu[at_mu]),
        by_p_mu=made[at_mu],
        tried=len(made),
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
    """An upper bound for P(so many right guesses) under (ε, δ)-DP.

    Steinke, Nasr and Jagielski 2023, Theorem 5.2, in the form for guesses with abstentions:
    f(v) + 2mδ·max_i (f(v − i) − f(v))/i with f(v) = P(Bin(r, q) ≥ v), q = e^ε/(1 + e^ε), r guesses
    of which v are right, and i = 1…v.

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
    """The least P₀(E) that μ-GDP allows, as a function of P₁(E) = y: Φ(Φ⁻¹(y) − μ)."""
    return lambda y: (
        0.0 if y <= 0 else float(scipy.special.ndtr(scipy.special.ndtri(min(1.0, y)) - mu))
    )


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
    v, r = guesses.right, guesses.made
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


def audit_scores(
    path: Path, *, claim: PrivacyClaim, alpha: float = 0.01, seed: str, guesses: int | None = None
) -> MechanismResult:
    """A one-run audit of recorded scores (columns ``score``, ``member``) against the claim.

    Formal guarantee: that of :func:`one_run`, if the coins were fair and independent and a score
    depends on them only through what the mechanism released. Where the number of members
    contradicts fair coins (exact two-sided binomial test, p ≤ 10^-3) nothing would hold: the
    verdict is *inconclusive*, without tests. Fair coins end so with probability at most 10^-3. Not
    claimed: that a bias too small to be seen costs nothing.
    """
    started = time.monotonic()
    scores, member = read_scores(path)
    members, canaries = int(member.sum()), len(member)
    ties = KeyedStream.from_seed(seed).child("mechanism", "ties").numpy()
    found = one_run(
        scores,
        member,
        epsilon=claim.epsilon,
        delta=claim.delta,
        mu=claim.mu,
        alpha=alpha,
        ties=ties,
        guesses=guesses,
    )
    coin = binomial_two_sided(members, canaries, 0.5)
    if coin <= ASSUMPTION_LEVEL:
        tests: tuple[TestResult, ...] = ()
        verdict: Verdict = "inconclusive"
        reason = (
            f"{members:,} of {canaries:,} canaries are members, which fair coins give with "
            f"probability {coin:.1g}: one run is judged only where each canary is in with "
            "probability 1/2; draw a fair coin for each"
        )
        found = replace(found, epsilon=0.0, mu=0.0)
    else:
        tests = _one_run_tests(found, claim, alpha)
        verdict, reason = verdict_of(tests, "")
    blind = one_run_blind_spots(canaries=canaries, claim=claim, alpha=alpha / (2 * found.tried))
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=f"{SCORES}{path}",
        method="one run",
        neighbours=(),
        claim_epsilon=claim.epsilon,
        claim_delta=claim.delta,
        claim_mu=claim.mu,
        alpha=alpha,
        epsilon=at_least(found.epsilon, alpha, "one run"),
        delta=None,
        mu=at_least(found.mu, alpha, "one run, trade-off curve"),
        curve=(),
        tests=tests,
        samples=canaries,
        samples_requested=canaries,
        seconds=time.monotonic() - started,
        advice=(),
        cannot_rule_out=blind if verdict == "no-finding" else (),
        details=claim.details,
        provenance=collect(seed=seed, plugins=()),
    )


def _one_run_tests(found: OneRun, claim: PrivacyClaim, alpha: float) -> tuple[TestResult, ...]:
    def row(
        unit: str, name: str, looks_at: str, *, p: float, by_p: Guesses, low: float, by: Guesses
    ) -> TestResult:
        of_p = "" if by_p == by else f"; p of {by_p}"
        return TestResult(
            name=name,
            p=p,
            p_adjusted=p,
            statistic=low,
            looks_at=looks_at,
            effect=f"{unit} ≥ {rounded_down(low)} by {by}{of_p}",
            finding=p <= alpha,
            parts={},
            interval=at_least(low, alpha, "one run"),
            unit=unit,
            details={
                **_numbers(by),
                "p": _numbers(by_p),
                "families_tried": found.tried,
            },
        )

    of_epsilon = row(
        "ε",
        "one run, ε at δ",
        "right guesses of which canaries were in",
        p=found.p,
        by_p=found.by_p,
        low=found.epsilon,
        by=found.by_epsilon,
    )
    if claim.mu is None:
        return (of_epsilon,)
    of_mu = row(
        "μ",
        "one run, μ",
        "right guesses against the Gaussian trade-off curve",
        p=found.p_mu,
        by_p=found.by_p_mu,
        low=found.mu,
        by=found.by_mu,
    )
    return (of_epsilon, of_mu)


def _numbers(guesses: Guesses) -> dict[str, int]:
    return {"top": guesses.top, "bottom": guesses.bottom, "right": guesses.right}


_HOW = "write a .csv with the header score,member, or an .npz with arrays score and member"
_COLUMNS = ("score", "member")
_ALWAYS = 1 << 20  # scores that a small .npz may unpack to

Columns = tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]


def read_scores(path: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Read scores (m,), higher meaning likelier in, and whether each canary was in (m,).

    Nothing is unpickled.

    An ``.npz`` may hold at most 2^20 scores and one more for each four bytes of the file. Memory:
    ten times the file and 64 MiB at most.

    Raises:
        UsageError: no such file, another ending, a missing column, a score that is not finite, a
            member other than 0 or 1, columns of different lengths, or more scores than that.
    """
    readers = {".csv": _csv, ".npz": _npz}
    if path.suffix.lower() not in readers:
        raise UsageError(f"scores={path}: ends in {path.suffix or 'nothing'}; {_HOW}")
    try:
        score, member = readers[path.suffix.lower()](path)
    except (RefusedError, OSError) as error:
        raise UsageError(f"scores={path}: {one_line(error)}; check the path") from None
    except KeyError as error:
        raise UsageError(f"scores={path}: has no column {error}; {_HOW}") from None
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"scores={path}: holds something else than numbers ({one_line(error)}); {_HOW}"
        ) from None
    if score.ndim != 1 or score.shape != member.shape:
        raise UsageError(
            f"scores={path}: score has shape {score.shape}, member {member.shape}; {_HOW}"
        )
    values = score.astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UsageError(
            f"scores={path}: score {values[bad[0]]} in row {bad[0] + 1} is not finite; "
            "fix or leave it out"
        )
    odd = np.flatnonzero((member != 0) & (member != 1))
    if odd.size:
        raise UsageError(
            f"scores={path}: member {member[odd[0]]} in row {odd[0] + 1} is neither 0 nor 1; fix it"
        )
    return values, member.astype(bool)


def _csv(path: Path) -> Columns:
    score, member = array.array("d"), array.array("d")
    with open_text(path, newline="") as file:
        rows = csv.reader(lines_of(file), skipinitialspace=True)
        header = next(rows, [])
        for name in _COLUMNS:
            if header.count(name) > 1:
                raise ValueError(f"two columns {name}")
            if name not in header:
                raise KeyError(name)
        at, other = map(header.index, _COLUMNS)
        for row in filter(None, rows):
            if len(row) <= max(at, other):
                raise ValueError(f"row {len(score) + 1} is too short")
            score.append(float(row[at]))
            member.append(float(row[other]))
    if not score:
        raise ValueError("no rows")
    return np.frombuffer(score), np.frombuffer(member)


def _npz(path: Path) -> Columns:
    with Archive(path) as archive:
        rows = _ALWAYS + archive.size // 4
        for name in _COLUMNS:
            header, stream = archive.open(name)
            stream.close()
            if header.count > rows:
                raise ValueError(
                    f"{header.count:,} scores in {archive.size:,} bytes, at most {rows:,}; "
                    "save it uncompressed"
                )
        score, member = (archive.read(name, most=16 * rows) for name in _COLUMNS)
        return score, member
