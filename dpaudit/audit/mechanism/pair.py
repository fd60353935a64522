"""The ε audit of an opened mechanism, at one pair of neighbours or at all of a probing attack."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dpaudit.audit.betting.releases import MAIN_SHARE
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.attacks import (
    NamedAttack,
    count_right_guesses,
    origins,
    probe_pairs,
    support_statistic,
    view_releases,
)
from dpaudit.audit.mechanism.events import Statistic
from dpaudit.audit.mechanism.judge import Aim, Judgement, judge, learn
from dpaudit.audit.mechanism.releases import (
    Array,
    EncodedReleases,
    Releases,
    dependence,
    draw_releases,
)
from dpaudit.audit.mechanism.sequential import (
    METHOD,
    draw_and_bet,
    judgement_of,
    stopped_text,
)
from dpaudit.audit.mechanism.verdict import (
    low_bits_advice,
    misfit_advice,
    shape_advice,
    two_neighbour_blind_spots,
    verdict_of,
)
from dpaudit.audit.options import MechanismOptions, Progress
from dpaudit.audit.progress import TimeLimit
from dpaudit.audit.result import MechanismResult, StatedClaim, at_least
from dpaudit.errors import SamplerError, UsageError
from dpaudit.protocols import LearningAttack, Session, plays
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.types import Interval, TestResult

__all__ = ["PairAudit", "PairEvidence", "audit_pair", "run_probes"]

_LEARNING_SECONDS = 30.0
_CURVE = "trade-off curve, Clopper-Pearson"
_NO_EVENTS = Judgement((), 0.0, 0.0, 0.0, ())


def audit_pair(
    mechanism: Session,
    *,
    neighbours: tuple[Array, Array],
    claim: PrivacyClaim,
    options: MechanismOptions,
    attack: NamedAttack | None = None,
    reach: NamedAttack | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at ``neighbours``, two query results (m,).

    Events are learned, or come from an ``attack``. A support attack's events are fixed, so all
    releases are counted; a learning attack's are chosen in the first half. ``reach`` is a support
    attack whose view of a release is one more statistic that events may be learned from. With
    ``options.sequential`` releases are bet on before they come, and the audit may stop early.

    Where the time limit comes first, the releases counted until then are still judged: a finding
    stands, a pass is *inconclusive*. How much was drawn then depends on the mechanism's speed but
    not on its releases. Where releases of one call depend on each other
    (:func:`~dpaudit.audit.mechanism.releases.dependence`), or all are the same number, no bound
    holds or means anything: the verdict is *inconclusive*, without tests.

    Formal guarantee: see :class:`~dpaudit.audit.result.MechanismResult`.

    Raises:
        UsageError: options out of range, or an attack that cannot take such releases.
        SamplerError: the mechanism failed, or nothing could be counted in time.
        DpauditError: the attack failed.
    """
    limit = TimeLimit(options.time_limit)
    pair = PairAudit(mechanism, neighbours, claim, options, limit, attack, reach)
    if options.sequential:
        return pair.conclude(pair.bet(progress=progress))
    return pair.conclude(pair.judge(pair.draw(progress=progress)))


@dataclass(frozen=True)
class PairEvidence:
    """What was counted in ``releases``, the least and largest share of α of an event, and details.

    ``fault`` says why they cannot be judged; empty if they were.
    """

    releases: Releases
    fault: str = ""
    judgement: Judgement = _NO_EVENTS
    shares: tuple[float, float] = (0.0, 0.0)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PairAudit:
    """The audit of an opened mechanism at two neighbours, stage by stage; see :func:`audit_pair`.

    Raises:
        UsageError: an attack, which sees releases in its own way, and ``real_numbers``.
    """

    mechanism: Session
    neighbours: tuple[Array, Array]
    claim: PrivacyClaim
    options: MechanismOptions
    limit: TimeLimit
    attack: NamedAttack | None = None
    reach: NamedAttack | None = None

    def __post_init__(self) -> None:
        if self.attack is not None and self.options.real_numbers:
            raise UsageError(
                "real-numbers: does not apply to an attack, which sees releases in its own way; "
                "leave --real-numbers or --attack out"
            )

    @property
    def root(self) -> KeyedStream:
        """The auditor's own randomness."""
        return KeyedStream.from_seed(self.options.seed).child("mechanism")

    def draw(self, *, progress: Progress | None = None) -> Releases:
        """Draw releases at both neighbours, in the time that there is."""
        attack = self.attack
        releases = draw_releases(
            self.mechanism,
            self.neighbours,
            samples=self.options.samples,
            limit=self.limit,
            rng=self.root.child("turns").numpy(),
            learning=attack is None or not plays(attack.implementation, "support"),
            timed=_is_timed(attack),
            progress=progress,
        )
        if isinstance(self.mechanism, EncodedReleases):
            releases = self.mechanism.encoded(releases)
        return releases

    def bet(self, *, progress: Progress | None = None) -> PairEvidence:
        """Draw releases and bet on each before it comes, until it is certain."""
        drawn = draw_and_bet(self, progress=progress)
        releases, share = drawn.releases, MAIN_SHARE
        details: dict[str, Any] = {"sequential": drawn.details}
        if self.options.real_numbers:
            details["last_bits_excluded"] = True
        seen = releases
        if isinstance(self.mechanism, EncodedReleases):
            seen = self.mechanism.after_fit(releases)
        if fault := _fault_of(seen):
            return PairEvidence(releases, fault, details=details)
        return PairEvidence(releases, "", judgement_of(drawn, self), (share, share), details)

    def judge(self, releases: Releases) -> PairEvidence:
        """Count events in the releases, unless these cannot be judged."""
        if fault := _fault_of(releases):
            return PairEvidence(releases, fault)
        if self.attack is None:
            return self._judge_events(releases)
        return self._judge_attack(releases, self.attack)

    def _judge_events(self, releases: Releases) -> PairEvidence:
        """Learn events from the first half of the releases and count them in the second."""
        limit, options = self.limit, self.options
        learned = learn(
            *releases.learn,
            neighbours=self.neighbours,
            aim=Aim.of(self.claim, options.alpha, real_numbers=options.real_numbers),
            rng=self.root.child("statistics").numpy(),
            more=self.reached(*releases.learn),
            seconds=_LEARNING_SECONDS,
            deadline=time.monotonic() + 0.3 * (limit.ends - time.monotonic()),
        )
        judgement = judge(learned, *releases.count, claim=self.claim, alpha=options.alpha)
        details = {"last_bits_excluded": True} if options.real_numbers else {}
        return PairEvidence(releases, "", judgement, learned.shares, details)

    def reached(self, x0: Array, x1: Array) -> list[Statistic]:
        """The view of :attr:`reach`, learned from releases (n, k); none of other lengths."""
        if self.reach is None or x0.shape[1] != len(self.neighbours[0]):
            return []
        return [support_statistic(self.reach, self.neighbours, learn=(x0, x1))]

    def _judge_attack(self, releases: Releases, attack: NamedAttack) -> PairEvidence:
        """Count the attack's events, and its right guesses."""
        claim, alpha = self.claim, self.options.alpha
        view = view_releases(attack, releases, self.neighbours, delta=claim.delta, alpha=alpha)
        judgement = judge(view.events, *view.scores, claim=claim, alpha=alpha)
        success = count_right_guesses(view.guesses, rng=self.root.child("guesses").numpy())
        details = {**view.details, "success": success}
        return PairEvidence(releases, "", judgement, view.events.shares, details)

    def conclude(self, evidence: PairEvidence) -> MechanismResult:
        """The verdict with its bounds, advice, and what a pass does not exclude."""
        judgement, releases = evidence.judgement, evidence.releases
        alpha, claim, attack = self.options.alpha, self.claim, self.attack
        verdict, reason = verdict_of(judgement.tests, releases.late)
        if evidence.fault:
            verdict, reason = "inconclusive", evidence.fault
        count = sum(map(len, releases.count))
        least, most = evidence.shares
        blind = partial(
            two_neighbour_blind_spots,
            draws=count,
            drawn=count + sum(map(len, releases.learn)),
            claim=claim,
            alphas=(least * alpha, most * alpha),
            attack="" if attack is None else attack.text,
            real_numbers=self.options.real_numbers,
        )
        learned = attack is None or isinstance(attack.implementation, LearningAttack)
        by_curve = METHOD if self.options.sequential else _CURVE
        method = f"{'learned' if learned else 'fixed'} events and {_CURVE}"
        if self.options.sequential:
            method, reason = METHOD, reason + stopped_text(evidence.details)
        return MechanismResult(
            verdict=verdict,
            reason=reason,
            mechanism=self.mechanism.name,
            method="two neighbours",
            attack="" if attack is None else attack.text,
            neighbours=tuple(tuple(map(float, v)) for v in self.neighbours),
            claim_epsilon=claim.epsilon,
            claim_delta=claim.delta,
            claim_mu=claim.mu,
            stated=judgement.stated or claim.statement((), alpha),
            alpha=alpha,
            epsilon=at_least(judgement.epsilon, alpha, method),
            delta=at_least(judgement.delta, alpha, by_curve),
            mu=at_least(judgement.mu, alpha, by_curve),
            curve=judgement.curve,
            tests=judgement.tests,
            samples=count + sum(map(len, releases.learn)),
            samples_requested=2 * self.options.samples,
            seconds=time.monotonic() - self.limit.started,
            advice=self._advice(evidence),
            details={**evidence.details, **claim.details},
            cannot_rule_out=blind() if verdict == "no-finding" else (),
            provenance=collect(seed=self.options.seed, plugins=origins(attack, self.reach)),
        )

    def _advice(self, evidence: PairEvidence) -> tuple[str, ...]:
        count = evidence.releases.count
        first, second = (y[:, :-1] if _is_timed(self.attack) else y for y in count)
        advice = (
            "" if evidence.fault else shape_advice(first, second, *self.neighbours),
            low_bits_advice(evidence.judgement.tests),
            misfit_advice(evidence.details),
            self.mechanism.facts.advice,
        )
        return tuple(filter(None, advice))


def _is_timed(attack: NamedAttack | None) -> bool:
    return attack is not None and bool(getattr(attack.implementation, "timed", False))


def _fault_of(releases: Releases) -> str:
    """Why these releases cannot be judged; empty if they can."""
    rows = [x for half in (releases.learn, releases.count) for x in half if len(x)]
    if not rows:
        return ""
    first = rows[0][0]
    if all((x == first).all() and (np.signbit(x) == np.signbit(first)).all() for x in rows):
        number = ", ".join(f"{x:.6g}" for x in first[:3]) + (", …" if len(first) > 3 else "")
        return (
            f"every release at both neighbours is {number}: there is nothing to compare; "
            "choose neighbours whose releases vary, and for --attack sensitivity the mechanism's "
            "own bounds"
        )
    how = dependence(releases.calls)
    if not how:
        return ""
    return (
        f"{how}: an audit needs independent releases, otherwise bounds mean nothing; draw noise "
        "for each of the n releases of a call, from a generator that continues from call to call"
    )


def run_probes(
    mechanism: Session,
    *,
    attack: NamedAttack,
    claim: PrivacyClaim,
    options: MechanismOptions,
    reach: NamedAttack | None = None,
    progress: Progress | None = None,
) -> MechanismResult:
    """Audit an opened mechanism at each pair of a probing ``attack``.

    ``samples`` releases are drawn at each value. Every pair gets an equal share of α and of what is
    left of the time limit. The neighbours and the curve are those of the pair with the largest ε;
    the bounds are the largest, and the tests are those of all pairs, each with its probe in
    brackets. A pair that the mechanism refuses is reported as advice, and a pass is then
    *inconclusive*.

    Formal guarantee: see :class:`~dpaudit.audit.result.MechanismResult`; over all pairs together.

    Raises:
        UsageError: options out of range, or the mechanism refuses all pairs.
        SamplerError: the mechanism failed at all pairs.
        DpauditError: the attack failed.
    """
    started, pairs = time.monotonic(), probe_pairs(attack)
    results: list[tuple[str, MechanismResult]] = []
    refused: list[tuple[str, UsageError | SamplerError]] = []
    for i, (description, first, second) in enumerate(pairs):
        seconds = started + options.time_limit - time.monotonic()
        shared = replace(
            options,
            seed=f"{options.seed}/probe/{i}",
            alpha=options.alpha / len(pairs),
            time_limit=max(seconds, 1e-3) / (len(pairs) - i),
        )
        try:
            result = audit_pair(
                mechanism,
                neighbours=(first, second),
                claim=claim,
                options=shared,
                reach=reach,
                progress=None if progress is None else _partial_progress(progress, i, len(pairs)),
            )
        except (UsageError, SamplerError) as error:
            refused.append((description, error))
        else:
            results.append((description, result))
    if not results:
        raise refused[0][1]
    own = mechanism.facts.advice
    return replace(
        _merge_probes(results, refused, alpha=options.alpha, advice=own),
        attack=attack.text,
        samples_requested=2 * options.samples * len(pairs),
        seconds=time.monotonic() - started,
        provenance=collect(seed=options.seed, plugins=origins(attack, reach)),
    )


def _merge_probes(
    probes: Sequence[tuple[str, MechanismResult]],
    refused: Sequence[tuple[str, Exception]],
    *,
    alpha: float,
    advice: str,
) -> MechanismResult:
    """The results at all pairs as one at ``alpha``; ``advice`` is the mechanism's own."""
    results, pairs = [result for _, result in probes], len(probes) + len(refused)
    all_tests = (_of_probe(test, name, pairs) for name, result in probes for test in result.tests)
    tests = tuple(sorted(all_tests, key=lambda t: (t.advisory, t.p_adjusted, t.name)))
    late = [f"{name}: {r.reason}" for name, r in probes if r.verdict == "inconclusive"]
    late += [f"{name}: {error}" for name, error in refused]
    verdict, reason = verdict_of(tests, "; ".join(late))
    texts = [advice] if advice else []
    texts += [f"{name}: {text}" for name, r in probes for text in r.advice if text != advice]
    texts += [f"{name}: not audited ({error})" for name, error in refused]
    best = max(results, key=lambda result: result.epsilon.low)
    return replace(
        best,
        verdict=verdict,
        reason=reason,
        method=f"{pairs} pairs of neighbours",
        alpha=alpha,
        epsilon=at_least(best.epsilon.low, alpha, best.epsilon.method),
        delta=_largest([result.delta for result in results], alpha),
        mu=_largest([result.mu for result in results], alpha),
        stated=_strongest([r.stated for r in results if r.stated is not None], alpha),
        tests=tests,
        samples=sum(result.samples for result in results),
        advice=tuple(texts),
        cannot_rule_out=best.cannot_rule_out if verdict == "no-finding" else (),
    )


def _of_probe(test: TestResult, description: str, pairs: int) -> TestResult:
    return replace(
        test, name=f"{test.name} ({description})", p_adjusted=min(1.0, pairs * test.p_adjusted)
    )


def _largest(bounds: Sequence[Interval | None], alpha: float) -> Interval | None:
    present = [bound for bound in bounds if bound is not None]
    best = max(present, key=lambda bound: bound.low, default=None)
    return None if best is None else at_least(best.low, alpha, best.method)


def _strongest(stated: Sequence[StatedClaim], alpha: float) -> StatedClaim | None:
    """The largest bound; of tables, the first pair of neighbours that shows one."""
    if not stated:
        return None
    best = max(stated, key=lambda s: (s.says != "", 0.0 if s.shown is None else s.shown.low))
    bound = None if best.shown is None else at_least(best.shown.low, alpha, best.shown.method)
    return replace(best, shown=bound)


def _partial_progress(progress: Progress, i: int, of: int) -> Progress:
    """The progress of the whole audit, from that of the ``i``-th of equal parts."""
    return lambda done, total: progress(i * total + done, of * total)
