"""Core Data's timestamps: seconds since 2001-01-01 00:00 UTC, as a REAL."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

__all__ = ["EPOCH", "LATEST", "from_coredata", "to_coredata"]

EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
LATEST = 3_124_137_600
"""2100-01-01 in Core Data's seconds: later ones, and negative ones, are refused as out of range."""


def from_coredata(seconds: float) -> datetime | None:
    """The time, rounded to the microsecond; None where it is no number of seconds of 2001 … 2099.

    >>> from_coredata(518421187.24894).isoformat()
    '2017-06-06T05:53:07.248940+00:00'
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not math.isfinite(seconds) or not 0 <= seconds < LATEST:
        return None
    return EPOCH + timedelta(seconds=seconds)


def to_coredata(when: datetime) -> float:
    """Seconds since 2001, the double nearest to them; ``from_coredata`` gives the same microsecond back."""
    return (when - EPOCH) / timedelta(seconds=1)
