"""The exact laws of Attribution Reporting: randomised response, Laplace noise, null reports.

Each law takes ``growth`` = e^ε, so that with a fraction every probability is an exact fraction.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpaudit.claims import Claim
from dpaudit.errors import UsageError
from dpaudit_deployments.attribution.parameters import L1, NULL_RATE

__all__ = [
    "channel_capacity",
    "epsilon_of_flip",
    "epsilon_of_pick",
    "flip_probability",
    "laplace_mass",
    "null_report_law",
    "pick_rate",
    "response_law",
    "summary_claim",
]

_NULL_DAYS = 31  # day 0 to the largest source expiry, inclusive


def pick_rate(states: int, epsilon: float) -> float:
    """The probability that a source's output is drawn at random: k/(k − 1 + e^ε).

    "Obtaining a randomized source response". A draw may hit the true output.

    >>> pick_rate(2925, 14.0)
    0.0024263221679834087
    """
    return states / (states - 1 + math.exp(epsilon))


def flip_probability(states: int, epsilon: float) -> float:
    """The probability that the output is not the true one: (k − 1)/(k − 1 + e^ε)."""
    return (states - 1) / (states - 1 + math.exp(epsilon))


def epsilon_of_flip(states: int, flip: float) -> float:
    """The ε at which outputs are not the true one with probability ``flip``; at least 0."""
    if states == 1 or flip >= 1:
        return 0.0
    return max(0.0, math.log((states - 1) * (1 - flip) / flip)) if flip > 0 else math.inf


def epsilon_of_pick(states: int, rate: float) -> float:
    """The ε of a stated ``randomized_trigger_rate``; at least 0."""
    if rate <= 0:
        return math.inf
    return max(0.0, math.log(max(states / rate - states + 1, 1.0)))


def channel_capacity(states: int, epsilon: float) -> float:
    """Bits that one source's output can carry ("Computing channel capacity").

    >>> round(channel_capacity(2925, 14.0), 12), round(channel_capacity(3, 14.0), 12)
    (11.461727965385, 1.584926511508)
    """
    if states == 1:
        return 0.0
    p = flip_probability(states, epsilon)
    entropy = sum(-x * math.log2(x) for x in (p, 1 - p) if x > 0)
    return math.log2(states) - entropy - p * math.log2(states - 1)


def response_law(states: int, *, truth: int, growth: Fraction) -> list[Fraction]:
    """P(output) of each of ``states`` outputs if ``truth`` is the true one.

    Formal guarantee: two truths' probabilities of an output differ by a factor of at most
    ``growth`` = e^ε, and by exactly that at either truth: pure ε-DP, per source.
    """
    pick = Fraction(states) / (states - 1 + growth)
    law = [pick / states] * states
    law[truth] += 1 - pick
    return law


def laplace_mass(x: int, *, ratio: Fraction) -> Fraction:
    """P(noise = x) of the discrete Laplace law, ``ratio`` = e^(−ε/L1): (1 − r)/(1 + r) · r^|x|."""
    return (1 - ratio) / (1 + ratio) * ratio ** abs(x)


def summary_claim(epsilon: float) -> Claim:
    """The noise of one value of a summary report: discrete Laplace of scale L1/ε.

    AGGREGATION_SERVICE_TEE.md, "Added noise to summary reports": a discrete version of the Laplace
    distribution, by the L1 sensitivity of 2¹⁶ and ε.

    Raises:
        UsageError: ε outside 0 … 64, or so small that the scale is above 1e5.

    >>> summary_claim(10.0)
    Claim(family='discrete-laplace', scale=6553.6)
    """
    if not 0 < epsilon <= 64:
        raise UsageError(f"epsilon={epsilon}: the aggregation service allows 0 < ε ≤ 64")
    return Claim.parse(f"discrete-laplace:scale={L1 / epsilon!r}")


def null_report_law(*, with_source_time: bool, attributed: bool) -> list[Fraction]:
    """P(0), P(1), … null reports for one trigger ("Generating null attribution reports").

    Without the source registration time: one, at a rate of 0.05, if the trigger was not attributed.
    With it: one at a rate of 0.008 for each of 31 days, but not for the day of an attributed
    source.
    """
    rate = Fraction(str(NULL_RATE[with_source_time]))
    days = _NULL_DAYS - attributed if with_source_time else 1 - attributed
    return [math.comb(days, n) * rate**n * (1 - rate) ** (days - n) for n in range(days + 1)]
