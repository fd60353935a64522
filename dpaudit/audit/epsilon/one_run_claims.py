"""Guesses of one run against a claim of any kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dpaudit.audit.claims import DeltaCurve, PrivacyClaim, StatedClaim, Steps
from dpaudit.audit.epsilon.one_run import (
    Inverse,
    OneRun,
    Refutes,
    Trial,
    bounds,
    largest,
    least_p,
    tradeoff_of_mu,
    tradeoff_of_profile,
)
from dpaudit.audit.result import StatedClaim as Shown
from dpaudit.audit.result import at_least
from dpaudit.stats import rounded_down
from dpaudit.types import TestResult

__all__ = ["STATED_SHARE", "Made", "judged"]

Made = Callable[[float, Refutes], Sequence[Trial]]
"""The guesses that are made at a level."""

STATED_SHARE = 0.9
"""The share of α for a claim other than ε and μ; the rest is for ε at δ alone."""
_METHOD = "one run, trade-off curve"


def judged(
    made_at: Made, *, claim: PrivacyClaim, alpha: float
) -> tuple[OneRun, tuple[TestResult, ...], Shown | None]:
    """Bounds for ε and μ, and for another claim its own test and what is shown of it.

    Such a claim is compared by the recursion for trade-off curves, with all pairs (ε, δ) that it
    implies at once (its ``profile``), at 90 % of α.
    """
    only_mu = 0.1 if claim.only_mu else None

    def pair(of: float) -> OneRun:
        return bounds(made_at, claim=claim, alpha=of, share=only_mu)

    if claim.stated is None:
        return pair(alpha), (), None
    found = pair(alpha * (1 - STATED_SHARE))
    found = dataclasses.replace(found, p=min(1.0, found.p / (1 - STATED_SHARE)))
    test, shown = _against(claim.stated, made_at, found, claim=claim, alpha=alpha)
    return found, (test,), shown


def _against(
    stated: StatedClaim, made_at: Made, found: OneRun, *, claim: PrivacyClaim, alpha: float
) -> tuple[TestResult, Shown]:
    level = alpha * STATED_SHARE
    made = made_at(level, lambda trial, at, mu: trial.refutes(at, tradeoff_of_mu(mu)))
    inverse = tradeoff_of_profile(stated.profile)
    p, by = least_p(made, lambda trial: trial.p(inverse))
    p = min(1.0, p / STATED_SHARE)
    low: float | None = None
    unit, statistic = "ε", found.epsilon
    details: dict[str, float | None] = {}
    if isinstance(stated, Steps):
        name = "DP-SGD"
        sigma = stated.noise_left(
            lambda profile: _any_refutes(made, level, tradeoff_of_profile(profile))
        )
        statistic, says = low, _ = stated.with_noise(sigma)
        told = f"{says}: ε ≥ {rounded_down(low)}" if says else "no noise multiplier is contradicted"
        details = {"sigma": sigma, "claimed_sigma": stated.dpsgd.sigma}
    elif stated.value is not None:
        low, by_low = largest(made, level, _refuting(stated))
        name = unit = stated.unit
        statistic, by = low, by_low if low else by
        told = says = f"{unit} ≥ {rounded_down(low)}"
    else:
        name = "δ(ε) curve" if isinstance(stated, DeltaCurve) else "f"
        what = "claimed" if isinstance(stated, DeltaCurve) else "implied"
        says = (
            f"ε ≥ {rounded_down(statistic)} at δ = {claim.delta:.6g} ({what}: {claim.epsilon:.6g})"
        )
        told = "the whole table"
    test = TestResult(
        name=f"one run, {name}",
        p=p,
        p_adjusted=p,
        statistic=statistic,
        looks_at=f"right guesses against {_LOOKS_AT.get(name, 'all that the claim implies')}",
        effect=f"{told} by {by}",
        finding=p <= alpha,
        parts={},
        interval=at_least(statistic, alpha, _METHOD),
        unit=unit,
        details={**by.numbers, **details},
        harm="epsilon",
        topic="one-run",
    )
    interval = None if low is None else at_least(low, alpha, _METHOD)
    return test, Shown(
        claim=stated.text, unit=stated.unit, value=stated.value, shown=interval, says=says
    )


_LOOKS_AT = {"DP-SGD": "the whole curve of the claimed steps"}


def _any_refutes(made: Sequence[Trial], level: float, inverse: Inverse) -> bool:
    return any(trial.refutes(level * trial.share, inverse) for trial in made)


def _refuting(stated: StatedClaim) -> Refutes:
    """Whether a trial refutes the claim with another value; each one's curve is made once."""
    curves: dict[float, Inverse] = {}

    def refutes(trial: Trial, level: float, value: float) -> bool:
        if value not in curves:
            other = stated.with_value(value)
            curves[value] = tradeoff_of_profile((other or stated).profile)
        return trial.refutes(level, curves[value])

    return refutes
