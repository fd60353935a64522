"""``dpaudit mechanism``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpaudit.audit.epsilon import audit_mechanism
from dpaudit.cli.verdicts import audited, count_of, leave, write_page
from dpaudit.types import to_dict

__all__ = ["mechanism"]


def mechanism(
    name: str,
    *,
    samples: float,
    out: Path | None,
    output: str,
    claim_epsilon: float,
    claim_delta: float,
    attack: str | None,
    alpha: float,
    seed: str | None,
    **options: Any,
) -> None:
    """Audit, print, write, and leave with the verdict's exit code."""
    count = count_of(samples, what="releases", example="2e5")
    result = audited(
        lambda progress: audit_mechanism(
            name,
            claim_epsilon=claim_epsilon,
            claim_delta=claim_delta,
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
        output=output,
        about={
            "mechanism": name,
            "attack": attack or "",
            "claim_epsilon": claim_epsilon,
            "claim_delta": claim_delta,
            "alpha": alpha,
        },
        seed=seed,
    )
    document = to_dict(result)
    if out is not None:
        write_page({"kind": "mechanism", "result": document}, out)
    from dpaudit.report import mechanism_table

    leave(document, mechanism_table, out=out, output=output)
