"""Guesses of one run against a claim of any kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dpaudit.accounting.dpsgd import DpSgd
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
from dpaudit.audit.epsilon.verdict import at_least
from dpaudit.audit.options import PrivacyClaim
from dpaudit.audit.stated_claims import DeltaCurve, StatedClaim, Steps
from dpaudit.stats import rounded_down
from dpaudit.types import StatedClaim as Shown
from dpaudit.types import TestResult

__all__ = ["STATED_SHARE", "Made", "judged"]

Made = Callable[[float, Refutes], Sequence[Trial]]
"""The guesses that are made at a level."""

STATED_SHARE = 0.9
"""The share of α for a claim other than ε and μ; the rest is for ε at δ alone."""
_REACH = 8.0
_NEAR = 1.02
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
        return bounds(
            made_at,
            epsilon=claim.epsilon,
            delta=claim.delta,
            mu=claim.mu,
            alpha=of,
            share=only_mu,
        )

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
    unit, statistic, details = "ε", found.epsilon, {}
    if isinstance(stated, Steps):
        name = "DP-SGD"
        statistic, told, details = _noise_left(stated.dpsgd, made, level, claim.delta)
        says = _noise_shown(details)
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
    )
    interval = None if low is None else at_least(low, alpha, _METHOD)
    return test, Shown(
        claim=stated.text, unit=stated.unit, value=stated.value, shown=interval, says=says
    )


_LOOKS_AT = {"DP-SGD": "the whole curve of the claimed steps"}


def _refuting(stated: StatedClaim) -> Refutes:
    """Whether a trial refutes the claim with another value; each one's curve is made once."""
    curves: dict[float, Inverse] = {}

    def refutes(trial: Trial, level: float, value: float) -> bool:
        if value not in curves:
            other = stated.with_value(value)
            curves[value] = tradeoff_of_profile((other or stated).profile)
        return trial.refutes(level, curves[value])

    return refutes


def _noise_left(
    claim: DpSgd, made: Sequence[Trial], level: float, delta: float
) -> tuple[float, str, dict[str, float | None]]:
    """The ε of the least noise multiplier that is refuted, in words too.

    With rate and steps as claimed, all noise multipliers from that one on are refuted at once: a
    larger one keeps a tighter curve.
    """
    sigma = _least_refuted(made, claim, level)
    shown = 0.0 if sigma is None else claim.with_sigma(sigma).epsilon(delta)
    said = (
        f"noise multiplier below {sigma:.3g}, {claim.sigma:.4g} claimed: ε ≥ {rounded_down(shown)}"
        if sigma is not None
        else "no noise multiplier is contradicted"
    )
    return shown, said, {"sigma": sigma, "claimed_sigma": claim.sigma}


def _noise_shown(details: Mapping[str, float | None]) -> str:
    sigma = details["sigma"]
    if sigma is None:
        return ""
    return f"a noise multiplier below {sigma:.3g} (claimed: {details['claimed_sigma']:.4g})"


def _least_refuted(made: Sequence[Trial], claim: DpSgd, level: float) -> float | None:
    """The least noise multiplier that some trial refutes, within 2 % from above, or None."""

    def refuted(sigma: float) -> bool:
        inverse = tradeoff_of_profile(claim.with_sigma(sigma).profile)
        return any(trial.refutes(level * trial.share, inverse) for trial in made)

    low = high = claim.sigma
    if refuted(high):
        while low > claim.sigma / _REACH and refuted(low / 2**0.5):
            low /= 2**0.5
        low, high = low / 2**0.5, low
        if high <= claim.sigma / _REACH:
            return high
    else:
        while not refuted(high):
            low, high = high, high * 2
            if high > claim.sigma * _REACH:
                return None
    while high / low > _NEAR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high
