"""One canary in many runs: releases at two neighbouring data sets, without and with it."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.epsilon.judge import Aim, judge, learn
from dpaudit.audit.epsilon.verdict import two_neighbour_blind_spots, verdict_of
from dpaudit.audit.result import MechanismResult, at_least
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream

__all__ = ["FEWEST_RUNS", "result_of_runs"]

FEWEST_RUNS = 400
"""Below so many runs the guesses of :mod:`~dpaudit.audit.epsilon.one_run` show more."""
_METHOD = "one canary in many runs"


def result_of_runs(
    scores: npt.NDArray[np.float64],
    member: npt.NDArray[np.bool_],
    *,
    name: str,
    claim: PrivacyClaim,
    alpha: float,
    seed: str,
    started: float,
) -> MechanismResult:
    """The result of independent runs: one score each (n,), and whether the canary was in (n,).

    Events of the score are learned from the first half of the runs and counted in the second, as
    for the releases of any mechanism.

    Formal guarantee: that of :func:`~dpaudit.audit.epsilon.judge.judge`, if the coins were fair and
    no run depends on another. Nothing is lost to other canaries: the bounds approach the truth of
    this score, as the number of runs grows. Not claimed: that the last bits of a score say nothing.
    """
    half = len(scores) // 2
    parts = slice(0, half), slice(half, None)
    learning, counting = (
        (scores[part][~member[part], None], scores[part][member[part], None]) for part in parts
    )
    learned = learn(
        *learning,
        neighbours=(np.zeros(1), np.ones(1)),
        aim=Aim.of(claim, alpha, real_numbers=True),
        rng=KeyedStream.from_seed(seed).child("training", "statistics").numpy(),
    )
    judged = judge(learned, *counting, claim=claim, alpha=alpha)
    tests = tuple(test for test in judged.tests if not test.advisory)
    verdict, reason = verdict_of(tests, "")
    shown, stated = judged.epsilon, judged.stated
    if stated is not None and stated.unit == "ε" and stated.shown is not None:
        shown = max(shown, stated.shown.low)
    least, most = learned.shares
    blind = two_neighbour_blind_spots(
        draws=len(scores) - half, claim=claim, alphas=(least * alpha, most * alpha)
    )
    return MechanismResult(
        verdict=verdict,
        reason=reason,
        mechanism=name,
        method=_METHOD,
        neighbours=(),
        claim_epsilon=claim.epsilon,
        claim_delta=claim.delta,
        claim_mu=claim.mu,
        stated=stated,
        alpha=alpha,
        epsilon=at_least(shown, alpha, _METHOD),
        delta=at_least(judged.delta, alpha, _METHOD),
        mu=at_least(judged.mu, alpha, _METHOD),
        curve=judged.curve,
        tests=tests,
        samples=len(scores),
        samples_requested=len(scores),
        seconds=time.monotonic() - started,
        advice=(),
        cannot_rule_out=blind if verdict == "no-finding" else (),
        details=claim.details,
        provenance=collect(seed=seed, plugins=()),
    )
