"""Results of audits in which nothing was drawn: inconclusive, with the reason."""

from __future__ import annotations

import math

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.options import AuditOptions, MechanismOptions
from dpaudit.audit.result import AuditResult, MechanismResult
from dpaudit.provenance import collect, identified
from dpaudit.samplers.identity import NOTHING, Identity
from dpaudit.types import Interval

__all__ = ["nothing_counted", "nothing_drawn"]


def nothing_drawn(
    sampler: str,
    reason: str,
    *,
    claim: str,
    options: AuditOptions,
    sandbox: str = "",
    what: Identity = NOTHING,
    seconds: float = 0.0,
) -> AuditResult:
    """The result of an audit whose sampler gave no value."""
    return AuditResult(
        verdict="inconclusive",
        reason=reason,
        sampler=sampler,
        claim=claim,
        alpha=options.alpha,
        tests=(),
        samples=0,
        samples_requested=options.samples,
        dims=(),
        sandbox=sandbox,
        seconds=seconds,
        cannot_rule_out=(),
        provenance=identified(
            collect(seed=options.seed or "none", plugins=()),
            by=options.by,
            files=what.files,
            versions=what.versions,
        ),
    )


def nothing_counted(
    mechanism: str,
    reason: str,
    *,
    claim: PrivacyClaim,
    attack: str,
    options: MechanismOptions,
    sandbox: str = "",
    what: Identity = NOTHING,
    seconds: float = 0.0,
) -> MechanismResult:
    """The result of an audit whose mechanism gave no release."""
    method, claim = "none: nothing was counted", claim.repeated(options.calls)
    return MechanismResult(
        verdict="inconclusive",
        reason=reason,
        mechanism=mechanism,
        method=method,
        attack=attack,
        details=claim.details,
        neighbours=(),
        claim_epsilon=claim.epsilon,
        claim_delta=claim.delta,
        claim_mu=claim.mu,
        stated=claim.shown((), options.alpha),
        alpha=options.alpha,
        epsilon=Interval(low=0.0, high=math.inf, confidence=1 - options.alpha, method=method),
        delta=None,
        mu=None,
        curve=(),
        tests=(),
        samples=0,
        samples_requested=options.samples,
        sandbox=sandbox,
        seconds=seconds,
        advice=(),
        cannot_rule_out=(),
        provenance=identified(
            collect(seed=options.seed or "none", plugins=()),
            by=options.by,
            files=what.files,
            versions=what.versions,
        ),
    )
