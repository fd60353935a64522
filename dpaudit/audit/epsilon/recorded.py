"""``dpaudit mechanism scores:FILE``: a one-run audit of recorded scores."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from dpaudit.audit.epsilon.blind import one_run_blind_spots
from dpaudit.audit.epsilon.independence import ASSUMPTION_LEVEL
from dpaudit.audit.epsilon.judge import Claimed
from dpaudit.audit.epsilon.one_run import Guesses, OneRun, one_run
from dpaudit.audit.epsilon.scores import read_scores
from dpaudit.audit.epsilon.verdict import at_least, verdict_of
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.stats import binomial_two_sided
from dpaudit.types import MechanismResult, TestResult, Verdict

__all__ = ["SCORES", "audit_scores"]

SCORES = "scores:"


def audit_scores(
    path: Path, *, claimed: Claimed, alpha: float = 0.01, seed: str, guesses: int | None = None
) -> MechanismResult:
    """A one-run audit of recorded scores (columns ``score``, ``member``) against the claim.

    Formal guarantee: that of :func:`~dpaudit.audit.epsilon.one_run.one_run`, if the coins were fair and independent and
    a score depends on them only through what the mechanism released. Where the number of members contradicts fair coins
    (exact two-sided binomial test, p ≤ 10^-3) nothing would hold: the verdict is *inconclusive*, without tests. Fair coins
    end so with probability at most 10^-3. Not claimed: that a coin too little biased to be seen so costs nothing.
    """
    started = time.monotonic()
    scores, member = read_scores(path)
    members, canaries = int(member.sum()), len(member)
    ties = KeyedStream.from_seed(seed).child("mechanism", "ties").numpy()
    found = one_run(
        scores,
        member,
        epsilon=claimed.epsilon,
        delta=claimed.delta,
        mu=claimed.mu,
        alpha=alpha,
        ties=ties,
        guesses=guesses,
    )
    coin = binomial_two_sided(members, canaries, 0.5)
    if coin <= ASSUMPTION_LEVEL:
        tests: tuple[TestResult, ...] = ()
        verdict: Verdict = "inconclusive"
        reason = (
            f"{members:,} of {canaries:,} canaries are members, which fair coins give with probability {coin:.1g}: one run "
            "is judged only where each canary is in with probability 1/2; draw a fair coin for each"
        )
        found = replace(found, epsilon=0.0, mu=0.0)
    else:
        tests = _one_run_tests(found, claimed, alpha)
        verdict, reason = verdict_of(tests, "")
    name = f"{SCORES}{path}"
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=name,
        method="one run",
        neighbours=(),
        claim_epsilon=claimed.epsilon,
        claim_delta=claimed.delta,
        claim_mu=claimed.mu,
        alpha=alpha,
        epsilon=at_least(found.epsilon, alpha, "one run"),
        delta=None,
        mu=at_least(found.mu, alpha, "one run, trade-off curve"),
        curve=(),
        tests=tests,
        samples=len(scores),
        samples_requested=len(scores),
        seconds=time.monotonic() - started,
        advice=(),
        cannot_rule_out=one_run_blind_spots(canaries=len(scores), claimed=claimed, alpha=alpha / (2 * found.tried))
        if verdict == "no-finding"
        else (),
        provenance=collect(seed=seed, plugins=()),
    )


def _one_run_tests(found: OneRun, claimed: Claimed, alpha: float) -> tuple[TestResult, ...]:
    def line(name: str, p: float, low: float, unit: str, by: Guesses, looks_at: str, finding: bool) -> TestResult:
        return TestResult(
            name=name,
            p=p,
            p_adjusted=p,
            statistic=low,
            looks_at=looks_at,
            effect=f"{unit} ≥ {low:.3g}; {by}",
            finding=finding,
            parts={},
            interval=at_least(low, alpha, "one run"),
            unit=unit,
            details={"top": by.top, "bottom": by.bottom, "right": by.right, "families_tried": found.tried},
        )

    tests = [
        line(
            "one run, ε at δ", found.p, found.epsilon, "ε", found.by_epsilon,
            "right guesses of which canaries were in", found.p <= alpha,
        )
    ]  # fmt: skip
    if claimed.mu is not None:
        tests.append(
            line(
                "one run, μ", found.p_mu, found.mu, "μ", found.by_mu,
                "right guesses against the Gaussian trade-off curve", found.p_mu <= alpha,
            )
        )  # fmt: skip
    return tuple(tests)
