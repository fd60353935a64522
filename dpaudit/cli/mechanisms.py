"""``dpaudit mechanism``."""

from __future__ import annotations

import math

from dpaudit.api import document_of
from dpaudit.audit.epsilon.run import audit_named
from dpaudit.audit.options import MechanismOptions, PrivacyClaim
from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.options import AuditCommand
from dpaudit.cli.verdicts import audited, leave, write_page
from dpaudit.samplers.sandbox.policy import asking
from dpaudit.types import Interval, MechanismResult

__all__ = ["mechanism"]


def mechanism(
    name: str,
    *,
    claim: PrivacyClaim,
    neighbours: str | None,
    attack: str | None,
    options: MechanismOptions,
    guesses: int | None,
    common: AuditCommand,
) -> None:
    """Audit, print, write, and leave with the verdict's exit code."""
    count, out, formats = options.samples, common.out, formats_of(common.also, out=common.out)
    formats = without_earlier(formats, out)
    shown = Interval(low=0.0, high=math.inf, confidence=1 - options.alpha, method="none: nothing was counted")
    with asking(common.sandbox, visible=common.visible or (), passed=common.pass_env or ()) as held:
        result = audited(
            lambda progress: audit_named(
                name,
                claim=claim,
                neighbours=neighbours,
                attack=attack,
                options=options,
                guesses=guesses,
                progress=progress,
            ),
            drawing="releases drawn",
            then="learning and counting",
            total=2 * count,
            kind="mechanism",
            nothing=lambda reason, seconds, provenance: MechanismResult(
                verdict="inconclusive",
                reason=reason,
                mechanism=name,
                method="none: nothing was counted",
                attack=attack or "",
                neighbours=(),
                claim_epsilon=claim.epsilon,
                claim_delta=claim.delta,
                claim_mu=claim.mu,
                alpha=options.alpha,
                epsilon=shown,
                delta=None,
                mu=None,
                curve=(),
                tests=(),
                samples=0,
                samples_requested=count,
                sandbox=held.reached,
                seconds=seconds,
                advice=(),
                cannot_rule_out=(),
                provenance=provenance,
            ),
            out=out,
            also=formats,
            output=common.output,
            seed=common.seed,
            held=held,
        )
    page = document_of(result)
    if out is not None:
        write_page(page, out, also=formats)
    from dpaudit.report import mechanism_table

    leave(page["result"], mechanism_table, out=out, output=common.output)
