"""The audit of recorded reports of ad measurement."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from dpaudit.audit.run import audit_values
from dpaudit.errors import UsageError
from dpaudit.findings import Finding
from dpaudit.provenance import collect
from dpaudit.randomness import KeyedStream
from dpaudit.stats import rounded_down
from dpaudit.types import Evidence, TestResult
from dpaudit_deployments.attribution.command import AttributionOptions
from dpaudit_deployments.attribution.evidence import (
    EventGroups,
    claim_of,
    noise_claim,
    noise_evidence,
)
from dpaudit_deployments.attribution.ledger import AggregateSpending, EventSpending
from dpaudit_deployments.attribution.records import (
    Batch,
    Source,
    read_aggregatable,
    read_batch,
    read_buckets,
    read_events,
    read_registrations,
    read_values,
)
from dpaudit_deployments.attribution.registration import (
    LARGEST_EVENT_EPSILON,
    SERVICE_EPSILON,
    Registration,
    summary_claim,
)
from dpaudit_deployments.attribution.result import AttributionResult, EventClaim, NoiseClaim
from dpaudit_deployments.family import judge_checks

__all__ = ["audit_attribution", "judge_attribution"]

LEAST_FOR_BATTERY = 1_000
_LOOKS_AT = {
    "flip": "event-level reports: how often the output is not the true one",
    "false": "event-level reports: which false output is drawn",
    "noise": "summary reports: the noise of buckets whose true value is known",
}


def audit_attribution(options: AttributionOptions) -> AttributionResult:
    """Read the files and judge them; without any, what the default registrations permit.

    Raises:
        UsageError: a file cannot be read or is not of its format, or an option is out of range.
    """
    summaries, unnoised = options.summary or (), options.unnoised or ()
    epsilon, event_epsilon = options.epsilon, options.event_epsilon
    if unnoised and len(unnoised) != len(summaries):
        raise UsageError(f"unnoised={len(unnoised)} files: give one per --summary, in its order")
    if not 0 <= event_epsilon <= LARGEST_EVENT_EPSILON:
        raise UsageError(f"event-epsilon={event_epsilon}: must lie in 0 … {LARGEST_EVENT_EPSILON}")
    summary_claim(epsilon)
    stated: tuple[Registration, ...] = ()
    if options.config is not None:
        stated = read_registrations(options.config, epsilon=event_epsilon)
    default = stated[0] if stated else Registration.default("navigation", epsilon=event_epsilon)
    if not (stated or options.events):
        stated = (default, Registration.default("event", epsilon=event_epsilon))
    sources = read_events(options.events, default=default) if options.events is not None else ()
    empty = frozenset[str | int]() if options.empty is None else read_buckets(options.empty)
    batches = [
        read_batch(path, values=None if plain is None else read_values(plain), empty=empty)
        for path, plain in zip_longest(summaries, unnoised)
    ]
    spending = AggregateSpending(epsilon=epsilon)
    if options.reports is not None:
        for report, info in read_aggregatable(options.reports):
            spending.add(report, info)
    judged = judge_attribution(
        sources, batches, stated=stated, epsilon=epsilon, alpha=options.alpha, seed=options.seed
    )
    if options.reports is None:
        return judged
    exceeded = spending.findings()
    return replace(
        judged,
        verdict="finding" if any(f.serious for f in exceeded) else judged.verdict,
        budget=spending.ledger(),
        findings=(*judged.findings, *exceeded),
    )


def judge_attribution(
    sources: Iterable[Source],
    batches: Sequence[Batch],
    *,
    stated: Sequence[Registration] = (),
    epsilon: float = SERVICE_EPSILON,
    alpha: float = 0.01,
    seed: str,
) -> AttributionResult:
    """Judge sources and summary reports that were read.

    α is split in equal parts between the tests of this package (Holm), the lower bounds on ε, and,
    from 1,000 values of noise on, the battery of audits.
    """
    started = time.monotonic()
    groups, spending = EventGroups(), EventSpending()
    for source in sources:
        groups.add(source)
        spending.add(source)
    stream = KeyedStream.from_seed(seed).child("attribution")
    values = sum(len(batch.noise) for batch in batches)
    parts = 3 if values >= LEAST_FOR_BATTERY else 2
    claims = groups.claims(alpha=alpha / parts / 2)
    noise = noise_claim(batches, epsilon=epsilon, alpha=alpha / parts / 2) if batches else None
    evidence = [*groups.evidence(stream.child("spread").numpy())]
    evidence += noise_evidence(batches, epsilon=epsilon) if values else ()
    tests = _own_tests(evidence, alpha=alpha, parts=parts)
    missing = list[str]()
    if parts == 3:
        together = np.concatenate([batch.noise for batch in batches])
        battery = stream.child("battery").entropy().hex()
        audited = audit_values(together, summary_claim(epsilon), alpha / parts, battery)
        tests += [replace(t, p_adjusted=min(1.0, parts * t.p_adjusted)) for t in audited.tests]
        missing += [spot.says for spot in audited.cannot_rule_out]
    elif batches:
        missing.append(
            f"{values:,} values of noise: below {LEAST_FOR_BATTERY:,} only scale, sign, zeros, "
            "grid and repeats are tested"
        )
    known = sum(claim.known for claim in claims)
    if claims and not known:
        missing.append("no source's true output is recorded, so no randomised response is tested")
    untested = bool(claims or batches) and not (known or values)
    findings = (*_bounds_above(claims, noise), *groups.findings(), *spending.findings())
    is_finding = any(t.finding for t in tests) or any(f.serious for f in findings)
    return AttributionResult(
        verdict="finding" if is_finding else "inconclusive" if untested else "no-finding",
        alpha=alpha,
        claims=(*claims, *_unrecorded(stated, claims)),
        noise=noise,
        parties=spending.lines(),
        budget=None,
        tests=tuple(tests),
        findings=findings,
        cannot_rule_out=tuple(missing),
        seconds=time.monotonic() - started,
        provenance=collect(seed=seed, plugins=()),
    )


def _own_tests(
    evidence: Sequence[tuple[str, Evidence]], *, alpha: float, parts: int
) -> list[TestResult]:
    """The tests of this package, with one of ``parts`` equal parts of α."""
    checks = [
        (name, _LOOKS_AT[name.partition("-")[0].removesuffix("s")], one) for name, one in evidence
    ]
    return sorted(judge_checks(checks, alpha=alpha, parts=parts), key=lambda test: test.p)


def _unrecorded(
    stated: Sequence[Registration], claims: Sequence[EventClaim]
) -> Iterator[EventClaim]:
    """The claims of registrations that no recorded source has."""
    names = {claim.name for claim in claims}
    yield from (claim for claim in map(claim_of, stated) if claim.name not in names)


def _bounds_above(claims: Sequence[EventClaim], noise: NoiseClaim | None) -> Iterator[Finding]:
    """Lower bounds on ε that exceed the claim."""
    bounds = [(claim.name, claim.shown, claim.epsilon) for claim in claims]
    bounds += [] if noise is None else [("summary reports", noise.shown, noise.epsilon)]
    for where, bound, claimed in bounds:
        if bound is not None and bound > claimed:
            message = f"shows ε ≥ {rounded_down(bound)}; {claimed:g} is claimed"
            yield Finding(where, message, serious=True)
