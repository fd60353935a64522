"""A family of tests of recorded files, each at its share of one α."""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit.stats import holm
from dpaudit.types import Evidence, TestResult

__all__ = ["Check", "judge_checks"]

Check = tuple[str, str, Evidence]
"""A test's name, what it looks at, and its evidence."""


def judge_checks(checks: Sequence[Check], *, alpha: float, parts: int = 1) -> list[TestResult]:
    """The results, in the order given; these tests have one of ``parts`` equal parts of α.

    Formal guarantee: if every p-value is valid, P(any finding) ≤ ``alpha``/``parts`` (Holm).
    """
    adjusted = holm([evidence.p for *_, evidence in checks])
    return [
        TestResult(
            name=name,
            p=evidence.p,
            p_adjusted=min(1.0, parts * p),
            statistic=evidence.statistic,
            looks_at=looks_at,
            effect=evidence.effect,
            finding=parts * p <= alpha,
            parts=evidence.parts,
            interval=evidence.interval,
        )
        for (name, looks_at, evidence), p in zip(checks, adjusted, strict=True)
    ]
