"""Audits in one run, from recorded scores of many canaries or from an attack's four counts."""

from __future__ import annotations

import array
import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.claims import DeltaCurve, PrivacyClaim, StatedClaim, Steps
from dpaudit.audit.mechanism.one_run import (
    FEWEST,
    Guesses,
    Inverse,
    OneRun,
    Ranked,
    Refutes,
    Trial,
    TrialsAt,
    bounds,
    largest_refuted,
    least_p,
    tradeoff_of_profile,
    trials,
)
from dpaudit.audit.mechanism.releases import ASSUMPTION_LEVEL
from dpaudit.audit.mechanism.verdict import one_run_blind_spots, verdict_of
from dpaudit.audit.result import MechanismResult, at_least
from dpaudit.audit.result import StatedClaim as Shown
from dpaudit.errors import UsageError
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.results.arrays import Archive
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line
from dpaudit.stats import binomial_two_sided, rounded_down
from dpaudit.targets.endpoints.file import lines_of, open_text
from dpaudit.types import BlindSpot, Interval, TestResult, Verdict

__all__ = [
    "COUNTS",
    "SCORES",
    "CanaryAudit",
    "CoinCount",
    "audit_counts",
    "audit_scores",
    "judge_trials",
    "one_run_result",
]

COUNTS = "counts:"
SCORES = "scores:"
STATED_SHARE = 0.9
"""The share of α for a claim other than ε and μ; the rest is for ε at δ alone."""
_MOST_COUNTED = 10**7
_TABLE = "write a .csv with the header score,member, or an .npz with arrays score and member"
_COLUMNS = ("score", "member")
_METHOD = "one run, trade-off curve"
_ALWAYS = 1 << 20  # scores that a small .npz may unpack to

Array = npt.NDArray[np.float64]
Columns = tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]


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

    Formal guarantee: that of :func:`~dpaudit.audit.mechanism.one_run.one_run`, if the coins were
    fair and independent and a score depends on them only through what the mechanism released. Where
    the number of members contradicts fair coins (exact two-sided binomial test, p ≤ 10^-3) nothing
    would hold: the verdict is *inconclusive*, without tests. Fair coins end so with probability at
    most 10^-3. Not claimed: that a bias too small to be seen costs nothing.
    """
    started = time.monotonic()
    runs = [read_scores(Path(part.strip())) for part in str(path).split(";")]
    scores = runs[0][0] if len(runs) == 1 else np.concatenate([_ranks(run[0]) for run in runs])
    member = np.concatenate([run[1] for run in runs])
    ties = KeyedStream.from_seed(seed).child("mechanism", "ties").numpy()
    ranked = Ranked.of(scores, member, ties)
    return one_run_result(
        CanaryAudit(name=f"{SCORES}{path}", claim=claim, alpha=alpha, seed=seed, started=started),
        lambda level: trials(ranked, guesses=guesses, level=level),
        coins=CoinCount(int(member.sum()), len(member)),
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
    tp, fn, fp, tn = _parse_counts(text)
    m = tp + fn + fp + tn
    every = Guesses(tp + fp, fn + tn, tp + tn)
    candidates = [Trial(m, every, 1.0)]
    pure = claim.delta == 0 and claim.mu is None and claim.stated is None
    if pure:
        sides = [g for g in (Guesses(tp + fp, 0, tp), Guesses(0, fn + tn, tn)) if g.count]
        candidates = [Trial(m, every, 0.4), *(Trial(m, side, 0.3) for side in sides)]
    return one_run_result(
        CanaryAudit(name=f"{COUNTS}{text}", claim=claim, alpha=alpha, seed=seed, started=started),
        lambda _level: candidates,
        coins=CoinCount(tp + fn, m),
        with_mu=not pure,
    )


def _parse_counts(text: str) -> tuple[int, int, int, int]:
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
    """Normal quantiles of mean ranks, equal for equal scores."""
    return np.asarray(scipy.special.ndtri((scipy.stats.rankdata(scores) - 0.5) / len(scores)))


@dataclass(frozen=True, slots=True)
class CoinCount:
    """How many of the canaries are members by their coins, and whether dpaudit drew these."""

    members: int
    canaries: int
    own: bool = False


@dataclass(frozen=True, kw_only=True)
class CanaryAudit:
    """An audit of canaries' scores: of what, against which claim, and since when.

    ``started`` is of ``time.monotonic``.
    """

    name: str
    claim: PrivacyClaim
    alpha: float
    seed: str
    started: float

    def result(
        self,
        verdict: Verdict,
        reason: str,
        *,
        method: str,
        stated: Shown | None,
        epsilon: float,
        delta: Interval | None,
        mu: Interval,
        curve: tuple[tuple[float, float], ...],
        tests: tuple[TestResult, ...],
        samples: int,
        blind: tuple[BlindSpot, ...],
    ) -> MechanismResult:
        """The result with its bounds and, for a pass, what it leaves ``blind``."""
        return MechanismResult(
            verdict=verdict,
            reason=reason,
            mechanism=self.name,
            method=method,
            neighbours=(),
            claim_epsilon=self.claim.epsilon,
            claim_delta=self.claim.delta,
            claim_mu=self.claim.mu,
            stated=stated,
            alpha=self.alpha,
            epsilon=at_least(epsilon, self.alpha, method),
            delta=delta,
            mu=mu,
            curve=curve,
            tests=tests,
            samples=samples,
            samples_requested=samples,
            seconds=time.monotonic() - self.started,
            advice=(),
            cannot_rule_out=blind if verdict == "no-finding" else (),
            details=self.claim.details,
            provenance=collect(seed=self.seed, plugins=()),
        )


def one_run_result(
    audit: CanaryAudit, trials_at: TrialsAt, *, coins: CoinCount, with_mu: bool = True
) -> MechanismResult:
    """The result of the guesses made; *inconclusive* where the coins cannot have been fair.

    Without ``with_mu`` the guesses say nothing of μ.
    """
    claim, alpha, canaries = audit.claim, audit.alpha, coins.canaries
    run, of_claim, stated = judge_trials(trials_at, claim=claim, alpha=alpha)
    run = run if with_mu else replace(run, mu=0.0)
    p = 1.0 if coins.own else binomial_two_sided(coins.members, canaries, 0.5)
    if p <= ASSUMPTION_LEVEL:
        tests: tuple[TestResult, ...] = ()
        verdict: Verdict = "inconclusive"
        reason = (
            f"{coins.members:,} of {canaries:,} canaries are members, which fair coins give with "
            f"probability {p:.1g}: one run is judged only where each canary is in with "
            "probability 1/2; draw a fair coin for each"
        )
        run, stated = replace(run, epsilon=0.0, mu=0.0), claim.statement((), alpha)
    else:
        tests = (*of_claim, *_one_run_tests(run, claim, alpha))
        verdict, reason = verdict_of(tests, "")
    return audit.result(
        verdict,
        reason,
        method="one run",
        stated=stated,
        epsilon=max([run.epsilon, *(test.statistic for test in tests if test.unit == "ε")]),
        delta=None,
        mu=at_least(run.mu, alpha, _METHOD),
        curve=(),
        tests=tests,
        samples=canaries,
        blind=one_run_blind_spots(canaries=canaries, claim=claim, ceiling=run.ceiling),
    )


def _one_run_tests(run: OneRun, claim: PrivacyClaim, alpha: float) -> tuple[TestResult, ...]:
    def row(
        unit: str, at: str, looks_at: str, *, p: float, by_p: Trial, low: float, by: Trial
    ) -> TestResult:
        of_p = "" if by_p == by else f"; p of {by_p}"
        return _test(
            f"{unit}{at}",
            looks_at,
            p=p,
            low=low,
            unit=unit,
            alpha=alpha,
            effect=f"{unit} ≥ {rounded_down(low)} by {by}{of_p}",
            details={**by.numbers, "p": by_p.numbers, "families_tried": run.tried},
        )

    members, curve = "of which canaries were in", "against the Gaussian trade-off curve"
    by = run.by_epsilon
    tests = [row("ε", " at δ", members, p=run.p, by_p=run.by_p, low=run.epsilon, by=by)]
    if claim.mu is not None:
        by = run.by_mu
        tests += [row("μ", "", curve, p=run.p_mu, by_p=run.by_p_mu, low=run.mu, by=by)]
    return tuple(tests)


def _test(
    name: str,
    looks_at: str,
    *,
    p: float,
    low: float,
    unit: str,
    alpha: float,
    effect: str,
    details: Mapping[str, Any],
    method: str = "one run",
) -> TestResult:
    """A test of right guesses, whose p-value already accounts for its share of α."""
    return TestResult(
        name=f"one run, {name}",
        p=p,
        p_adjusted=p,
        statistic=low,
        looks_at=f"right guesses {looks_at}",
        effect=effect,
        finding=p <= alpha,
        parts={},
        interval=at_least(low, alpha, method),
        unit=unit,
        details=details,
        harm="epsilon",
        topic="one-run",
    )


def judge_trials(
    trials_at: TrialsAt, *, claim: PrivacyClaim, alpha: float
) -> tuple[OneRun, tuple[TestResult, ...], Shown | None]:
    """Bounds for ε and μ, and for another claim its own test and what is shown of it.

    Such a claim is compared by the recursion for trade-off curves, with all pairs (ε, δ) that it
    implies at once (its ``profile``), at 90 % of α.
    """
    only_mu = 0.1 if claim.only_mu else None

    def pair(of: float) -> OneRun:
        return bounds(trials_at, claim=claim, alpha=of, share=only_mu)

    if claim.stated is None:
        return pair(alpha), (), None
    run = pair(alpha * (1 - STATED_SHARE))
    run = replace(run, p=min(1.0, run.p / (1 - STATED_SHARE)))
    test, statement = _judge_stated(claim.stated, trials_at, run, claim=claim, alpha=alpha)
    return run, (test,), statement


def _judge_stated(
    stated: StatedClaim, trials_at: TrialsAt, run: OneRun, *, claim: PrivacyClaim, alpha: float
) -> tuple[TestResult, Shown]:
    level = alpha * STATED_SHARE
    guesses = trials_at(None)
    inverse = tradeoff_of_profile(stated.profile)
    p, by = least_p(guesses, lambda trial: trial.p(inverse))
    p = min(1.0, p / STATED_SHARE)
    low: float | None = None
    unit, statistic = "ε", run.epsilon
    details: dict[str, float | None] = {}
    if isinstance(stated, Steps):
        name = "DP-SGD"
        sigma = stated.noise_left(
            lambda profile: _any_refutes(guesses, level, tradeoff_of_profile(profile))
        )
        statistic, bound_text = low, _ = stated.with_noise(sigma)
        statement = "no noise multiplier is contradicted"
        if bound_text:
            statement = f"{bound_text}: ε ≥ {rounded_down(low)}"
        details = {"sigma": sigma, "claimed_sigma": stated.dpsgd.sigma}
    elif stated.value is not None:
        low, by_low = largest_refuted(guesses, level, _value_refuter(stated))
        name = unit = stated.unit
        statistic, by = low, by_low if low else by
        statement = bound_text = f"{unit} ≥ {rounded_down(low)}"
    else:
        name = "δ(ε) curve" if isinstance(stated, DeltaCurve) else "f"
        source = "claimed" if isinstance(stated, DeltaCurve) else "implied"
        at_delta = f"at δ = {claim.delta:.6g} ({source}: {claim.epsilon:.6g})"
        bound_text = f"ε ≥ {rounded_down(statistic)} {at_delta}"
        statement = "the whole table"
    whole = "the whole curve of the claimed steps"
    test = _test(
        name,
        f"against {whole if isinstance(stated, Steps) else 'all that the claim implies'}",
        p=p,
        low=statistic,
        unit=unit,
        alpha=alpha,
        effect=f"{statement} by {by}",
        details={**by.numbers, **details},
        method=_METHOD,
    )
    interval = None if low is None else at_least(low, alpha, _METHOD)
    return test, Shown(
        claim=stated.text, unit=stated.unit, value=stated.value, shown=interval, says=bound_text
    )


def _any_refutes(candidates: Sequence[Trial], level: float, inverse: Inverse) -> bool:
    return any(trial.refutes(level * trial.share, inverse) for trial in candidates)


def _value_refuter(stated: StatedClaim) -> Refutes:
    """Whether a trial refutes the claim with another value; each one's curve is made once."""
    curves: dict[float, Inverse] = {}

    def refutes(trial: Trial, level: float, value: float) -> bool:
        if value not in curves:
            other = stated.with_value(value)
            curves[value] = tradeoff_of_profile((other or stated).profile)
        return trial.refutes(level, curves[value])

    return refutes


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
        raise UsageError(f"scores={path}: ends in {path.suffix or 'nothing'}; {_TABLE}")
    try:
        score, member = readers[path.suffix.lower()](path)
    except (RefusedError, OSError) as error:
        raise UsageError(f"scores={path}: {one_line(error)}; check the path") from None
    except KeyError as error:
        raise UsageError(f"scores={path}: has no column {error}; {_TABLE}") from None
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"scores={path}: holds something other than numbers ({one_line(error)}); {_TABLE}"
        ) from None
    if score.ndim != 1 or score.shape != member.shape:
        raise UsageError(
            f"scores={path}: score has shape {score.shape}, member {member.shape}; {_TABLE}"
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
