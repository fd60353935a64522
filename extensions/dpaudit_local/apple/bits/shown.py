"""Groups of records, and the ε that the bits of one group show compared with its claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dpaudit.findings import Finding
from dpaudit.types import Interval
from dpaudit_local.apple.model import Check, Segment

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
"""The most groups of one audit, the first to come; Apple's configuration has 160 keys."""


class Group(NamedTuple):
    """What distinguishes records whose flip probabilities may differ."""

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
    """The ``epsilon`` among a segment's parameters, if it is a finite number above 0."""
    value = segment.parameters.get("epsilon")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < 1e300 and math.isfinite(value) else None


def whole_parameter(segment: Segment, name: str) -> int | None:
    """A parameter that is a whole number above 0 and below 2^32, else None."""
    value = segment.parameters.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < 2**32 else None


ShownVerdict = Literal["agrees", "shows more", "shows less", "not identified"]


@dataclass(frozen=True, slots=True)
class StatedEpsilon:
    """A claimed ε of a record, by the ``configuration`` (PrivacyParameter in use) or ``report``."""

    by: str
    epsilon: float


@dataclass(frozen=True, slots=True)
class Shown:
    """One key's records of one algorithm with one set of parameters: claims, estimate and verdict.

    Formal guarantee: the intervals of all keys of one audit hold together with probability ≥ 1 − α
    (Bonferroni), under the assumption that ``method`` names: independent bits of one bias, laid out
    as in the announced algorithm. Not claimed: that a record holds its object, nor anything about
    an algorithm of another form.
    """

    key: str
    algorithm: str
    claims: tuple[StatedEpsilon, ...]
    coin: float | None
    """ε of such a record by the code at the configured PrivacyParameter; None without one."""
    records: int
    """Records seen, readable or not."""
    used: int
    """Records that the estimate rests on."""
    method: str
    """How the interval was made; empty without one."""
    flip: Interval | None
    """The probability with which a bit or sign is flipped."""
    sketch: Interval | None
    """ε of one sketch; None if records hold none or checks fail."""
    record: Interval | None
    """ε of one record: of all its sketches, or of its sign."""
    verdict: ShownVerdict
    reason: str
    """Why nothing is identified, or the basis of the verdict."""
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()

    in_documents = ("claimed",)

    @property
    def claimed(self) -> float | None:
        """The strictest claim."""
        return min((c.epsilon for c in self.claims), default=None)


def judge(claims: tuple[StatedEpsilon, ...], record: Interval | None) -> ShownVerdict:
    """The verdict on the strictest of the ``claims``.

    An interval without an upper bound can contradict a claim but not confirm it.
    """
    if record is None or not claims:
        return "not identified"
    claimed = min(c.epsilon for c in claims)
    if record.low > claimed:
        return "shows more"
    if record.high < claimed:
        return "shows less"
    return "agrees" if record.high < float("inf") else "not identified"
