"""The ε audit of an opened mechanism, at one pair of neighbours or at all of a probing attack."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.attacks import (
    NamedAttack,
    count_right_guesses,
    origins,
    probe_pairs,
    support_statistic,
    view_releases,
)
from dpaudit.audit.mechanism.judge import Aim, Judgement, judge, learn
from dpaudit.audit.mechanism.releases import (
    Array,
    EncodedReleases,
    Releases,
    dependence,
    draw_releases,
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
from dpaudit.protocols import LearningAttack, OpenMechanism, SupportAttack
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.types import Interval, TestResult

__all__ = ["audit_pair", "run_probes"]

_LEARNING_SECONDS = 30.0


def audit_pair(
    mechanism: OpenMechanism,
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
    attack whose view of a release is one more statistic that events may be learned from.

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
    if attack is not None and options.real_numbers:
        raise UsageError(
            "real-numbers: does not apply to an attack, which sees releases in its own way; "
            "leave --real-numbers or --attack out"
        )
    limit = TimeLimit(options.time_limit)
    root = KeyedStream.from_seed(options.seed).child("mechanism")
    drawn = draw_releases(
        mechanism,
        neighbours,
        samples=options.samples,
        limit=limit,
        rng=root.child("turns").numpy(),
        learning=attack is None or not isinstance(attack.implementation, SupportAttack),
        timed=_timed(attack),
        progress=progress,
    )
    if isinstance(mechanism, EncodedReleases):
        drawn = mechanism.encoded(drawn)
    pair = _Pair(mechanism, neighbours, claim, options, attack, reach, drawn, limit, root)
    unfit = _unfit(drawn)
    if unfit:
        return pair.described(_Seen(Judgement((), 0.0, 0.0, 0.0, ())), unfit=unfit)
    return pair.described(pair.by_events() if attack is None else pair.by_attack(attack))


@dataclass(frozen=True)
class _Seen:
    """What was counted, the least and the largest share of α of an event, and details for it."""

    judged: Judgement
    shares: tuple[float, float] = (0.0, 0.0)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Pair:
    """Releases of a mechanism that were drawn at two neighbours, to be judged and described."""

    mechanism: OpenMechanism
    neighbours: tuple[Array, Array]
    claim: PrivacyClaim
    options: MechanismOptions
    attack: NamedAttack | None
    reach: NamedAttack | None
    drawn: Releases
    limit: TimeLimit
    root: KeyedStream

    def by_events(self) -> _Seen:
        """Learn events from the first half of the releases and count them in the second."""
        drawn, alpha, real_numbers = self.drawn, self.options.alpha, self.options.real_numbers
        more = []
        if self.reach is not None and drawn.learn[0].shape[1] == len(self.neighbours[0]):
            more = [support_statistic(self.reach, self.neighbours, learn=drawn.learn)]
        learned = learn(
            *drawn.learn,
            neighbours=self.neighbours,
            aim=Aim.of(self.claim, alpha, real_numbers=real_numbers),
            rng=self.root.child("statistics").numpy(),
            more=more,
            seconds=_LEARNING_SECONDS,
            deadline=time.monotonic() + 0.3 * (self.limit.ends - time.monotonic()),
        )
        judged = judge(learned, *drawn.count, claim=self.claim, alpha=alpha)
        return _Seen(judged, learned.shares, {"last_bits_excluded": True} if real_numbers else {})

    def by_attack(self, attack: NamedAttack) -> _Seen:
        """Count the attack's events, and its right guesses."""
        claim, alpha = self.claim, self.options.alpha
        seen = view_releases(attack, self.drawn, self.neighbours, delta=claim.delta, alpha=alpha)
        judged = judge(seen.learned, *seen.counted, claim=claim, alpha=alpha)
        success = count_right_guesses(seen.guesses, rng=self.root.child("guesses").numpy())
        return _Seen(judged, seen.learned.shares, {**seen.details, "success": success})

    def described(self, seen: _Seen, *, unfit: str = "") -> MechanismResult:
        """The verdict with its bounds, advice, and what a pass does not exclude."""
        judged, alpha, claim, drawn = seen.judged, self.options.alpha, self.claim, self.drawn
        verdict, reason = verdict_of(judged.tests, drawn.late)
        if unfit:
            verdict, reason = "inconclusive", unfit
        counted = sum(map(len, drawn.count))
        first, second = (y[:, :-1] if _timed(self.attack) else y for y in drawn.count)
        advice = [
            "" if unfit else shape_advice(first, second, *self.neighbours),
            low_bits_advice(judged.tests),
            misfit_advice(seen.details),
            str(getattr(self.mechanism, "advice", "")),
        ]
        named = "" if self.attack is None else self.attack.text
        learned = self.attack is None or isinstance(self.attack.implementation, LearningAttack)
        curve = "trade-off curve, Clopper-Pearson"
        least, most = seen.shares
        blind = (
            two_neighbour_blind_spots(
                draws=counted,
                claim=claim,
                alphas=(least * alpha, most * alpha),
                attack=named,
                real_numbers=self.options.real_numbers,
            )
            if verdict == "no-finding"
            else ()
        )
        return MechanismResult(
            verdict=verdict,
            reason=reason,
            mechanism=self.mechanism.name,
            method="two neighbours",
            attack=named,
            neighbours=tuple(tuple(map(float, v)) for v in self.neighbours),
            claim_epsilon=claim.epsilon,
            claim_delta=claim.delta,
            claim_mu=claim.mu,
            stated=judged.stated or claim.shown((), alpha),
            alpha=alpha,
            epsilon=at_least(
                judged.epsilon, alpha, f"{'learned' if learned else 'fixed'} events and {curve}"
            ),
            delta=at_least(judged.delta, alpha, curve),
            mu=at_least(judged.mu, alpha, curve),
            curve=judged.curve,
            tests=judged.tests,
            samples=counted + sum(map(len, drawn.learn)),
            samples_requested=2 * self.options.samples,
            seconds=time.monotonic() - self.limit.started,
            advice=tuple(filter(None, advice)),
            details={**seen.details, **claim.details},
            cannot_rule_out=blind,
            provenance=collect(seed=self.options.seed, plugins=origins(self.attack, self.reach)),
        )


def _timed(attack: NamedAttack | None) -> bool:
    return attack is not None and bool(getattr(attack.implementation, "timed", False))


def _unfit(releases: Releases) -> str:
    """Why these releases cannot be judged; empty if they can."""
    rows = [x for half in (releases.learn, releases.count) for x in half if len(x)]
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
    mechanism: OpenMechanism,
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
    started = time.monotonic()
    alpha, pairs = options.alpha, probe_pairs(attack)
    done: list[tuple[str, MechanismResult]] = []
    refused: list[tuple[str, UsageError | SamplerError]] = []
    for i, (description, first, second) in enumerate(pairs):
        left = started + options.time_limit - time.monotonic()
        try:
            result = audit_pair(
                mechanism,
                neighbours=(first, second),
                claim=claim,
                options=replace(
                    options,
                    seed=f"{options.seed}/probe/{i}",
                    alpha=alpha / len(pairs),
                    time_limit=max(left, 1e-3) / (len(pairs) - i),
                ),
                reach=reach,
                progress=None if progress is None else _part(progress, i, len(pairs)),
            )
        except (UsageError, SamplerError) as error:
            refused.append((description, error))
        else:
            done.append((description, result))
    if not done:
        raise refused[0][1]
    found = (
        _of_probe(test, description, len(pairs))
        for description, result in done
        for test in result.tests
    )
    tests = tuple(sorted(found, key=lambda t: (t.advisory, t.p_adjusted, t.name)))
    late = [
        f"{description}: {result.reason}"
        for description, result in done
        if result.verdict == "inconclusive"
    ]
    late += [f"{description}: {error}" for description, error in refused]
    verdict, reason = verdict_of(tests, "; ".join(late))
    own = str(getattr(mechanism, "advice", ""))
    advice = [own] if own else []
    advice += [
        f"{description}: {a}" for description, result in done for a in result.advice if a != own
    ]
    advice += [f"{description}: not audited ({error})" for description, error in refused]
    _, best = max(done, key=lambda d: d[1].epsilon.low)
    stated = [result.stated for _, result in done if result.stated is not None]
    return replace(
        best,
        verdict=verdict,
        reason=reason,
        method=f"{len(pairs)} pairs of neighbours",
        attack=attack.text,
        alpha=alpha,
        epsilon=at_least(best.epsilon.low, alpha, best.epsilon.method),
        delta=_largest([result.delta for _, result in done], alpha),
        mu=_largest([result.mu for _, result in done], alpha),
        stated=_most(stated, alpha),
        tests=tests,
        samples=sum(result.samples for _, result in done),
        samples_requested=2 * options.samples * len(pairs),
        seconds=time.monotonic() - started,
        advice=tuple(advice),
        cannot_rule_out=best.cannot_rule_out if verdict == "no-finding" else (),
        provenance=collect(seed=options.seed, plugins=origins(attack, reach)),
    )


def _of_probe(test: TestResult, description: str, pairs: int) -> TestResult:
    return replace(
        test, name=f"{test.name} ({description})", p_adjusted=min(1.0, pairs * test.p_adjusted)
    )


def _largest(bounds: Sequence[Interval | None], alpha: float) -> Interval | None:
    present = [bound for bound in bounds if bound is not None]
    best = max(present, key=lambda bound: bound.low, default=None)
    return None if best is None else at_least(best.low, alpha, best.method)


def _most(stated: Sequence[StatedClaim], alpha: float) -> StatedClaim | None:
    """The largest bound; of tables, the first pair of neighbours that shows one."""
    if not stated:
        return None
    best = max(stated, key=lambda s: (s.says != "", 0.0 if s.shown is None else s.shown.low))
    bound = None if best.shown is None else at_least(best.shown.low, alpha, best.shown.method)
    return replace(best, shown=bound)


def _part(progress: Progress, i: int, of: int) -> Progress:
    """The progress of the whole audit, from that of the ``i``-th of equal parts."""
    return lambda done, total: progress(i * total + done, of * total)
