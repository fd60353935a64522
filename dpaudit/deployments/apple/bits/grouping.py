"""Which records belong together: of one key, one algorithm and one set of parameters."""

from __future__ import annotations

import math
from typing import NamedTuple

from dpaudit.deployments.apple.model import Segment

__all__ = ["MOST_GROUPS", "Group", "group_of", "reported_epsilon", "whole_parameter"]

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
    named = sorted((str(name)[:_LONGEST], repr(value)[:_LONGEST]) for name, value in segment.parameters.items())
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
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**32 else None
