"""What Apple's framework has hard-coded, whatever the configuration says (Tang et al. 2017, sections 4.2, 5.2, A.1.3)."""

from __future__ import annotations

__all__ = [
    "DAY",
    "EPSILON_MAX",
    "FALLBACK_EPSILON",
    "MOST_RECORDS",
    "NEVER_SUBMITTED",
    "REPORT_SECONDS",
    "SEEN_SESSION_SECONDS",
    "reports_within",
    "sessions_within",
]

DAY = 86_400
"""Seconds (``_kSecondsInOneDay``)."""
REPORT_SECONDS = 18 * 3600
"""ReportGenerator runs every 18 hours."""
MOST_RECORDS = 40
"""Records of one KeyName in one report, whatever SessionAmount says (Figure 13: ``0x28``)."""
EPSILON_MAX = 2.0
"""A greater PrivacyParameter is refused (Figure 14) …"""
FALLBACK_EPSILON = 1.0
"""… and 1 is used instead, …"""
NEVER_SUBMITTED = 99_999
"""… at this SubmissionPriority, so that the record is not submitted (section 5.2)."""
SEEN_SESSION_SECONDS = (DAY, 7 * DAY)
"""The only periods that Apple's files have and that were seen to work; others had no effect (section 5.2)."""


def reports_within(seconds: float) -> int:
    """The most reports that ReportGenerator makes in a half-open span of so many seconds.

    >>> reports_within(18 * 3600), reports_within(86_400), reports_within(3 * 86_400)
    (1, 2, 4)
    """
    return _starts(seconds, REPORT_SECONDS)


def sessions_within(seconds: float, session_seconds: float) -> int:
    """How often a budget has grown in so many seconds from the opt-in on, which itself counts as the first time.

    >>> sessions_within(86_400, 86_400), sessions_within(8 * 86_400, 7 * 86_400)
    (1, 2)
    """
    return _starts(seconds, session_seconds)


def _starts(seconds: float, period: float) -> int:
    return max(0, -int(-seconds // period))
