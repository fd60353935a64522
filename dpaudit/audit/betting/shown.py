"""What bets show, for a result: the row of the claim, what is kept of the looks, stated claims."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from dpaudit.audit.betting.releases import MAIN_SHARE, ReleaseBets
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.result import StatedClaim, at_least
from dpaudit.stats import rounded_down
from dpaudit.types import TestResult

__all__ = ["Look", "look_at", "needed", "row_of", "sequential_details", "stated_by"]

Look = tuple[float, float, float]
"""Releases or units so far, log₁₀ of the capital, bound for ε."""
_LN10 = math.log(10)


def look_at(bets: ReleaseBets, n: float) -> Look:
    """What ``bets`` show after ``n`` releases or units."""
    return n, bets.log_capital / _LN10, bets.bounds["ε"]


def needed(bets: ReleaseBets) -> float:
    """log₁₀ of the capital that refutes the claim."""
    return bets.needed / _LN10


def row_of(bets: ReleaseBets, *, alpha: float, method: str, by: str, **how: Any) -> TestResult:
    """The test of the claim, which rests on ``by`` most; ``how`` are its other fields."""
    p, low = bets.p_value, bets.bounds["ε"]
    return TestResult(
        p=p,
        p_adjusted=min(1.0, p / MAIN_SHARE),
        statistic=low,
        finding=bets.contradicted,
        parts={},
        interval=at_least(low, alpha, method),
        unit="ε",
        details={"statistic": by},
        **how,
    )


def sequential_details(
    bets: ReleaseBets, looks: Sequence[Look], stopped: str, **more: Any
) -> dict[str, Any]:
    """What ``details["sequential"]`` of a result keeps."""
    kept = [list(look) for look in looks]
    return {"looks": kept, "needed": needed(bets), "stopped": stopped, **more}


def stated_by(
    bets: ReleaseBets, claim: PrivacyClaim, *, alpha: float, method: str
) -> StatedClaim | None:
    """A claim other than (ε, δ) and μ, with the bound for its parameter if it has one."""
    stated, bounds = claim.statement((), alpha), bets.bounds
    if stated is None or stated.unit == "ε" or stated.unit not in bounds:
        return stated
    low = bounds[stated.unit]
    says = f"{stated.unit} ≥ {rounded_down(low)}"
    return dataclasses.replace(stated, shown=at_least(low, alpha, method), says=says)
