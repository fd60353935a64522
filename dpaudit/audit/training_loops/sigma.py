"""A DP-SGD claim against guesses: its whole curve, and the noise multiplier that is left."""

from __future__ import annotations

from collections.abc import Sequence

from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.epsilon.one_run import (
    Ranked,
    Trial,
    least_p,
    tradeoff_of_mu,
    tradeoff_of_profile,
    trials,
)
from dpaudit.audit.epsilon.verdict import at_least, rounded_down
from dpaudit.types import TestResult

__all__ = ["CURVE_SHARE", "against_dpsgd"]

CURVE_SHARE = 0.9
"""The share of α for the curve; the rest is for ε at δ alone."""
_REACH = 8.0
_NEAR = 1.02


def against_dpsgd(
    ranked: Ranked, claim: DpSgd, delta: float, *, alpha: float, guesses: int | None
) -> TestResult:
    """Whether the guesses contradict the claim's curve, and which noise multiplier they refute.

    With rate and steps as claimed, all noise multipliers from the one in ``details`` on are refuted
    at once: a larger one keeps a tighter curve. ``statistic`` is the ε at ``delta`` of the training
    with that noise multiplier, a lower bound if rate and steps are right.
    """
    level = alpha * CURVE_SHARE
    made = trials(
        ranked,
        guesses=guesses,
        level=level,
        refutes=lambda trial, at, mu: trial.refutes(at, tradeoff_of_mu(mu)),
    )
    inverse = tradeoff_of_profile(claim.profile)
    p, by = least_p(made, lambda trial: trial.p(inverse))
    p = min(1.0, p / CURVE_SHARE)
    sigma = _least_refuted(made, claim, level)
    shown = 0.0 if sigma is None else claim.with_sigma(sigma).epsilon(delta)
    said = (
        f"noise multiplier below {sigma:.3g}, {claim.sigma:.4g} claimed: ε ≥ {rounded_down(shown)}"
        if sigma is not None
        else "no noise multiplier is contradicted"
    )
    return TestResult(
        name="one run, DP-SGD",
        p=p,
        p_adjusted=p,
        statistic=shown,
        looks_at="right guesses against the whole curve of the claimed steps",
        effect=f"{said} by {by}",
        finding=p <= alpha,
        parts={},
        interval=at_least(shown, alpha, "one run, trade-off curve"),
        unit="ε",
        details={**by.numbers, "sigma": sigma, "claimed_sigma": claim.sigma},
    )


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
