"""What a pass of an ε audit cannot exclude, in numbers."""

from __future__ import annotations

import math
from functools import lru_cache

import scipy

from dpaudit.audit.epsilon.event import epsilon_bounds
from dpaudit.audit.epsilon.judge import Claimed
from dpaudit.types import BlindSpot

__all__ = ["one_run_blind_spots", "two_neighbour_blind_spots"]

_NINE_TENTHS = float(scipy.special.ndtri(0.9))
_FARTHEST = 50.0
_TO_LEARN = 2
"""A leak must occur this many times as often as would do to prove it, so that it is chosen to be counted (simulated)."""


@lru_cache(maxsize=64)  # the same for every pair that is probed
def two_neighbour_blind_spots(*, draws: int, claimed: Claimed, alpha: float, attack: str = "") -> tuple[BlindSpot, ...]:
    """What ``draws`` counted releases leave open when the best event gets ``alpha`` (its share).

    By an ``attack``, whatever it does not look at is left open besides.

    Sizes are of a flaw found nine times in ten where the right event was learned; by normal and Poisson approximation.
    """

    def bound(inside: float, outside: float) -> float:
        return float(epsilon_bounds(inside, outside, draws=draws, delta=claimed.delta, alpha=alpha))

    always = (_not_seen_by(attack), *_ALWAYS[1:]) if attack else _ALWAYS
    ceiling = max(0.0, bound(draws / 2, 0))
    spots = [
        BlindSpot(
            test="events",
            flaw="how large ε really is",
            size=None,
            unit="",
            says=f"{draws:,} counted releases can show at most ε = {ceiling:.3g} (about ln n), however bad the mechanism",
        )
    ]
    if ceiling <= claimed.epsilon:
        return (
            *spots,
            BlindSpot(
                test="events",
                flaw="any violation of the claim",
                size=None,
                unit="",
                says=f"ε = {claimed.epsilon:g} is more than so few releases can show: raise --samples",
            ),
            *always,
        )

    def seen(epsilon: float) -> bool:
        inside, outside = draws / 4, draws / 4 * math.exp(-epsilon)
        spread = math.sqrt(1 / inside + 1 / max(outside, 1.0))
        return bound(inside, outside) - _NINE_TENTHS * spread > claimed.epsilon

    low, high = claimed.epsilon, claimed.epsilon + _FARTHEST
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    if seen(high):
        spots.append(
            BlindSpot(
                test="events",
                flaw="ε above the claim, on an event of probability 1/2",
                size=high - claimed.epsilon,
                unit="more ε than claimed",
                says=f"a mechanism with ε = {high:.3g} on half of its releases would have been found nine times in ten",
            )
        )
    few, many = 0, draws
    while many - few > 1:
        k = (few + many) // 2
        few, many = (few, k) if bound(k, 0) > claimed.epsilon else (k, many)
    leak = _TO_LEARN * float(scipy.special.gammaincinv(many, 0.9)) / (draws / 2)
    if leak < 1:
        spots.append(
            BlindSpot(
                test="events",
                flaw="rare releases that give one neighbour away",
                size=leak,
                unit="probability",
                says=f"a release impossible at one neighbour, with probability below {leak:.2g} at the other, may pass",
            )
        )
    return (*spots, *always)


def _not_seen_by(attack: str) -> BlindSpot:
    return BlindSpot(
        test="every audit by an attack",
        flaw="other neighbours, and all that this attack does not look at",
        size=None,
        unit="",
        says=f"only these two query results were compared, and only as {attack} sees releases; leave --attack out for "
        "learned events of simple statistics",
    )


_ALWAYS = (
    BlindSpot(
        test="every audit of releases",
        flaw="other neighbours, and other ways of looking at a release",
        size=None,
        unit="",
        says="only these two query results were compared, by learned events of simple statistics; a worse pair, a rare "
        "trigger, timing, or a porous set of floats that no statistic here sees would pass",
    ),
    BlindSpot(
        test="every audit of releases",
        flaw="noise that a secret key or seed takes away",
        size=None,
        unit="",
        says="releases without the key cannot show it (arXiv 2509.23834, Theorem 3.4)",
    ),
)


def one_run_blind_spots(*, canaries: int, claimed: Claimed, alpha: float) -> tuple[BlindSpot, ...]:
    """What ``canaries`` scores leave open when the best guesses get ``alpha`` (their share)."""
    wrong = -math.expm1(math.log(alpha) / canaries)  # all right: q^m = α
    ceiling = math.log1p(-wrong) - math.log(wrong) if wrong < 0.5 else 0.0
    return (
        BlindSpot(
            test="one run",
            flaw="how large ε really is",
            size=None,
            unit="",
            says=f"{canaries:,} canaries can show at most ε = {ceiling:.3g}, if every guess is right",
        ),
        BlindSpot(
            test="one run",
            flaw="what stronger scores or other canaries would show",
            size=None,
            unit="",
            says="the bound is about these scores; one run shows less than the truth where canaries disturb each other "
            f"or m·δ = {canaries * claimed.delta:.2g} is not small (Steinke, Nasr and Jagielski 2023, Section 7)",
        ),
    )
