"""From tests to a verdict, bounds and advice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpaudit.types import Interval, TestResult, Verdict

__all__ = ["at_least", "low_bits_advice", "misfit_advice", "verdict_of"]

_CLEARLY_MORE = 0.5


def at_least(low: float, alpha: float, method: str) -> Interval:
    """What is shown with confidence 1 − ``alpha``."""
    return Interval(low=low, high=math.inf, confidence=1 - alpha, method=method)


def verdict_of(tests: tuple[TestResult, ...], late: str) -> tuple[Verdict, str]:
    """The verdict and its reason; ``late`` says why less was drawn than asked for, if so."""
    found = [t.name for t in tests if t.finding]
    if found:
        return "finding", f"{'; '.join(found)}: contradict{'s' if len(found) == 1 else ''} the claim"
    if late:
        return "inconclusive", f"{late}; what was counted until then shows nothing"
    return "no-finding", "nothing that was looked at contradicts the claim"


def low_bits_advice(tests: tuple[TestResult, ...]) -> str:
    """What to do where only the last bits tell the neighbours apart; else nothing."""
    bits = [t for t in tests if t.name.startswith("low bits")]
    others = max((t.statistic for t in tests if t not in bits and t.unit == "ε"), default=0.0)
    shown = max((t.statistic for t in bits if t.finding or (t.advisory and t.p <= 1e-6)), default=0.0)
    if shown <= others + _CLEARLY_MORE:
        return ""
    return (
        f"The last bits of a release tell the neighbours apart (ε ≥ {shown:.3g}), as they do where noise is added by "
        "plain floating-point arithmetic: that is not differentially private whatever the noise (Mironov 2012). Round "
        "to a grid or snap; to judge releases as real numbers, use --real-numbers."
    )


def misfit_advice(details: Mapping[str, Any]) -> str:
    """One sentence where a support attack finds releases impossible that their own value led to; else nothing."""
    truth = details.get("feasible_at_truth", {})
    wrong = sum(of - feasible for feasible, of in truth.values())
    if not wrong:
        return ""
    return (
        f"The attack takes {wrong:,} of {sum(of for _, of in truth.values()):,} releases for impossible at the very value "
        "that they were made from: it was not made for this mechanism. What it shows is true all the same; a pass by it "
        "says little."
    )
