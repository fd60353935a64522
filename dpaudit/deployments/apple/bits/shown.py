"""Which records belong together, and what the bits of one such group show of their ε compared with what is claimed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dpaudit.deployments.apple.model import Check, Finding, Segment
from dpaudit.types import Interval

__all__ = [
    "MOST_GROUPS",
    "Group",
    "Shown",
    "ShownVerdict",
    "StatedEpsilon",
    "group_of",
    "judge",
    "reported_epsilon",
    "whole_parameter",
]

_LONGEST = 200
MOST_GROUPS = 1000
"""Groups that one audit takes in, the first to come; Apple's configuration has 160 keys."""


class Group(NamedTuple):
    """What tells records apart that may have coins of another bias."""

    key: str
    algorithm: str
    parameters: tuple[tuple[str, str], ...]
    """Sorted; values as ``repr`` gives them, cut after 200 characters."""


def group_of(segment: Segment) -> Group:
    """The group that a segment's records belong to."""
    named = sorted(
        (str(name)[:_LONGEST], repr(value)[:_LONGEST]) for name, value in segment.parameters.items()
    )
    return Group(segment.key, segment.algorithm, tuple(named))


def reported_epsilon(segment: Segment) -> float | None:
    """The ``epsilon`` among a segment's parameters, if that is a finite number above 0."""
    value = segment.parameters.get("epsilon")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < 1e300 and math.isfinite(value) else None


def whole_parameter(segment: Segment, name: str) -> int | None:
    """A parameter that is a whole number above 0 and below 2^32, else None."""
    value = segment.parameters.get(name)
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**32
        else None
    )


ShownVerdict = Literal["agrees", "shows more", "shows less", "not identified"]


@dataclass(frozen=True, slots=True)
class StatedEpsilon:
    """An ε that a record is said to have, by the ``configuration`` (the PrivacyParameter in use) or the ``report`` itself."""

    by: str
    epsilon: float


@dataclass(frozen=True, slots=True)
class Shown:
    """One key's records of one algorithm with one set of parameters: claims, estimate and verdict.

    Formal guarantee: the intervals of all keys of one audit hold together with probability ≥ 1 − α
    (Bonferroni), under the assumption that ``method`` names: independent coins of one bias, laid
    out as the announced algorithm lays them out. Not claimed: that a record does hold its object,
    nor anything about an algorithm of another form.
    """

    key: str
    algorithm: str
    claims: tuple[StatedEpsilon, ...]
    coin: float | None
    """ε of a record in this form by the code's coin at the configured PrivacyParameter; None where there is none."""
    records: int
    """Records seen, whether they could be read or not."""
    used: int
    """Records that the estimate rests on."""
    method: str
    """How the interval was made; empty where there is none."""
    flip: Interval | None
    """The probability with which a bit or sign is turned over."""
    sketch: Interval | None
    """ε of one sketch; None where records hold none, or where checks fail."""
    record: Interval | None
    """ε of one record: of all its sketches, or of its sign."""
    verdict: ShownVerdict
    reason: str
    """Why nothing is identified, or what the verdict rests on."""
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()

    in_documents = ("claimed",)

    @property
    def claimed(self) -> float | None:
        """The strictest claim: what the user is promised at the least."""
        return min((c.epsilon for c in self.claims), default=None)


def judge(claims: tuple[StatedEpsilon, ...], record: Interval | None) -> ShownVerdict:
    """The verdict on the strictest of the ``claims``.

    An interval that reaches up to infinity can contradict a claim but not confirm it.
    """
    if record is None or not claims:
        return "not identified"
    claimed = min(c.epsilon for c in claims)
    if record.low > claimed:
        return "shows more"
    if record.high < claimed:
        return "shows less"
    return "agrees" if record.high < float("inf") else "not identified"
