"""``dpaudit mechanism``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpaudit.audit.epsilon import audit_mechanism
from dpaudit.cli.formats import formats_of, without_earlier
from dpaudit.cli.verdicts import audited, count_of, leave, write_page
from dpaudit.documents import of_result
from dpaudit.samplers.sandbox.policy import asking
from dpaudit.types import Interval, MechanismResult

__all__ = ["mechanism"]


def mechanism(
    name: str,
    *,
    samples: float,
    out: Path | None,
    also: str | None,
    output: str,
    claim_epsilon: float,
    claim_delta: float,
    claim_mu: float | None,
    attack: str | None,
    alpha: float,
    seed: str | None,
    sandbox: str | None,
    visible: Sequence[str],
    pass_env: Sequence[str],
    **options: Any,
) -> None:
    """Audit, print, write, and leave with the verdict's exit code."""
    count, formats = count_of(samples, what="releases", example="2e5"), formats_of(also, out=out)
    formats = without_earlier(formats, out)
    with asking(sandbox, visible=visible, passed=pass_env) as held:
        result = audited(
            lambda progress: audit_mechanism(
                name,
                claim_epsilon=claim_epsilon,
                claim_delta=claim_delta,
                claim_mu=claim_mu,
                attack=attack,
                samples=count,
                alpha=alpha,
                seed=seed,
                progress=progress,
                **options,
            ),
            drawing="releases drawn",
            then="learning and counting",
            total=2 * count,
            nothing=lambda reason, seconds, provenance: MechanismResult(
                verdict="inconclusive",
                reason=reason,
                mechanism=name,
                method="none: nothing was counted",
                attack=attack or "",
                neighbours=(),
                claim_epsilon=claim_epsilon,
                claim_delta=claim_delta,
                claim_mu=claim_mu,
                alpha=alpha,
                epsilon=Interval(low=0.0, high=math.inf, confidence=1 - alpha, method="none: nothing was counted"),
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
            output=output,
            seed=seed,
            held=held,
        )
    document = of_result(result)
    if out is not None:
        write_page(document, out, also=formats)
    from dpaudit.report import mechanism_table

    leave(document, lambda: mechanism_table(result), out=out, output=output)
