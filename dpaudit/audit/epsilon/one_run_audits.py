"""Audits in one run, from recorded scores of many canaries or from an attack's four counts."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.epsilon.canary_scores import read_scores
from dpaudit.audit.epsilon.one_run import FEWEST, Guesses, OneRun, Ranked, Trial, trials
from dpaudit.audit.epsilon.one_run_claims import Made, judged
from dpaudit.audit.epsilon.releases import ASSUMPTION_LEVEL
from dpaudit.audit.epsilon.verdict import one_run_blind_spots, verdict_of
from dpaudit.audit.result import MechanismResult, at_least
from dpaudit.errors import UsageError
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.results.text import one_line
from dpaudit.stats import binomial_two_sided, rounded_down
from dpaudit.types import TestResult, Verdict

__all__ = ["COUNTS", "SCORES", "Coins", "audit_counts", "audit_scores", "result_of"]

COUNTS = "counts:"
SCORES = "scores:"
_MOST_COUNTED = 10**7

Array = npt.NDArray[np.float64]


def audit_scores(
    path: Path | str,
    *,
    claim: PrivacyClaim,
    alpha: float = 0.01,
    seed: str,
    guesses: int | None = None,
) -> MechanismResult:
    """A one-run audit of recorded scores (columns ``score``, ``member``) against the claim.

    ``a.npz;b.npz``: several runs, each with coins of its own. Their canaries are judged together,
    each by its rank in its own run: a canary's coin changes its own run only, so all runs
    together are one mechanism as private for each canary as the run that it was in.

    Formal guarantee: that of :func:`~dpaudit.audit.epsilon.one_run.one_run`, if the coins were fair
    and independent and a score depends on them only through what the mechanism released. Where the
    number of members contradicts fair coins (exact two-sided binomial test, p ≤ 10^-3) nothing
    would hold: the verdict is *inconclusive*, without tests. Fair coins end so with probability at
    most 10^-3. Not claimed: that a bias too small to be seen costs nothing.
    """
    started = time.monotonic()
    runs = [read_scores(Path(part.strip())) for part in str(path).split(";")]
    scores = runs[0][0] if len(runs) == 1 else np.concatenate([_ranks(run[0]) for run in runs])
    member = np.concatenate([run[1] for run in runs])
    ties = KeyedStream.from_seed(seed).child("mechanism", "ties").numpy()
    ranked = Ranked.of(scores, member, ties)
    return result_of(
        lambda level, refutes: trials(ranked, guesses=guesses, level=level, refutes=refutes),
        name=f"{SCORES}{path}",
        coins=Coins(int(member.sum()), len(member)),
        claim=claim,
        alpha=alpha,
        seed=seed,
        started=started,
    )


def audit_counts(
    text: str, *, claim: PrivacyClaim, alpha: float = 0.01, seed: str
) -> MechanismResult:
    """A one-run audit of four counts ``TP,FN,FP,TN`` of an attack that guesses each canary's coin.

    TP: in, and guessed in; FN: in, guessed out; FP: out, guessed in; TN: out, guessed out. Every
    canary is guessed. Against pure ε-DP the guesses "in" alone and those "out" alone are judged
    too (30 % of α each): given all that was released each guess is right with probability at most
    e^ε/(1 + e^ε) whatever the others, so their number may depend on the release. For δ > 0 and for
    μ the proof needs a number fixed beforehand, and only all guesses together have one; record
    the scores instead, where few canaries leak clearly.

    Formal guarantee: that of :func:`audit_scores`, if the coins were fair and the attack, with its
    threshold, was fixed without them. Fairness is tested as in :func:`audit_scores`.

    Raises:
        UsageError: not four whole numbers ≥ 0, or fewer than 8 in all.
    """
    started = time.monotonic()
    tp, fn, fp, tn = _four(text)
    m = tp + fn + fp + tn
    every = Guesses(tp + fp, fn + tn, tp + tn)
    made = [Trial(m, every, 1.0)]
    pure = claim.delta == 0 and claim.mu is None and claim.stated is None
    if pure:
        sides = [g for g in (Guesses(tp + fp, 0, tp), Guesses(0, fn + tn, tn)) if g.made]
        made = [Trial(m, every, 0.4), *(Trial(m, side, 0.3) for side in sides)]
    return result_of(
        lambda _level, _refutes: made,
        name=f"{COUNTS}{text}",
        coins=Coins(tp + fn, m),
        claim=claim,
        alpha=alpha,
        seed=seed,
        started=started,
        with_mu=not pure,
    )


def _four(text: str) -> tuple[int, int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(
            f"counts={one_line(text)}: write TP,FN,FP,TN, four whole numbers, e.g. 430,70,60,440"
        )
    tp, fn, fp, tn = map(int, parts)
    if not FEWEST <= tp + fn + fp + tn <= _MOST_COUNTED:
        raise UsageError(
            f"counts={one_line(text)}: must be {FEWEST} to {_MOST_COUNTED:,} guesses in all"
        )
    return tp, fn, fp, tn


def _ranks(scores: Array) -> Array:
    """Mean ranks in 0…1, equal for equal scores."""
    return np.asarray((scipy.stats.rankdata(scores) - 0.5) / len(scores))


@dataclass(frozen=True, slots=True)
class Coins:
    """How many of the canaries are members by their coins, and whether dpaudit drew these."""

    members: int
    canaries: int
    own: bool = False


def result_of(
    made_at: Made,
    *,
    name: str,
    coins: Coins,
    claim: PrivacyClaim,
    alpha: float,
    seed: str,
    started: float,
    with_mu: bool = True,
) -> MechanismResult:
    """The result of the guesses made; *inconclusive* where the coins cannot have been fair.

    Without ``with_mu`` the guesses say nothing of μ.
    """
    found, of_claim, stated = judged(made_at, claim=claim, alpha=alpha)
    found = found if with_mu else replace(found, mu=0.0)
    members, canaries = coins.members, coins.canaries
    coin = 1.0 if coins.own else binomial_two_sided(members, canaries, 0.5)
    if coin <= ASSUMPTION_LEVEL:
        tests: tuple[TestResult, ...] = ()
        verdict: Verdict = "inconclusive"
        reason = (
            f"{members:,} of {canaries:,} canaries are members, which fair coins give with "
            f"probability {coin:.1g}: one run is judged only where each canary is in with "
            "probability 1/2; draw a fair coin for each"
        )
        found, stated = replace(found, epsilon=0.0, mu=0.0), claim.shown((), alpha)
    else:
        tests = (*of_claim, *_one_run_tests(found, claim, alpha))
        verdict, reason = verdict_of(tests, "")
    shown = [found.epsilon, *(test.statistic for test in tests if test.unit == "ε")]
    blind = one_run_blind_spots(canaries=canaries, claim=claim, ceiling=found.ceiling)
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=name,
        method="one run",
        neighbours=(),
        claim_epsilon=claim.epsilon,
        claim_delta=claim.delta,
        claim_mu=claim.mu,
        alpha=alpha,
        stated=stated,
        epsilon=at_least(max(shown), alpha, "one run"),
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
        unit: str, name: str, looks_at: str, *, p: float, by_p: Trial, low: float, by: Trial
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
                **by.numbers,
                "p": by_p.numbers,
                "families_tried": found.tried,
            },
            harm="epsilon",
            topic="one-run",
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
