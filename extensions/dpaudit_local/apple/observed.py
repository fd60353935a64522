"""What was submitted: records and ε per budget and day, and whether the limits were kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from dpaudit.findings import Finding
from dpaudit_local.apple.bits.estimates import (
    MOST_GROUPS,
    Group,
    Shown,
    group_of,
    reported_epsilon,
)
from dpaudit_local.apple.configuration import resolve
from dpaudit_local.apple.model import Configuration, Database, Report
from dpaudit_local.apple.report_limits import ReportLimits

__all__ = ["UNKNOWN", "Day", "Observed", "Spending", "Spent"]

UNKNOWN = "(not in the configuration)"
"""The budget of keys that the configuration does not have."""
MOST_SUMS = 500_000
"""The most sums that are kept, one per day and group of records."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Records of one budget (or of all, ``budget`` empty) and their total ε (basic composition)."""

    budget: str
    records: int
    claimed: float
    """By the PrivacyParameters in use; by the report's own if the configuration lacks the key."""
    shown_low: float
    """The least by the bits of each record; by the claim (0 without one) if not identified."""
    shown_high: float
    """The most by the bits; infinite without a claim if not identified."""


@dataclass(frozen=True, slots=True)
class Day:
    """A UTC day, by the names of report files."""

    date: str
    """As in ISO 8601."""
    budgets: tuple[Spent, ...]
    total: Spent


@dataclass(frozen=True, slots=True)
class Observed:
    """What the reports that still exist hold.

    Not claimed: that there were no others (the daemon deletes them after a month, iOS after a
    week), or that a renamed file is of the day in its name. ε is pure and added up record by
    record; that bounds the loss whatever the records are about, and needs only each record's own ε.
    """

    reports: int
    """Reports with records."""
    unread: int
    """Files without readable records, or copies of other reports; findings say which."""
    undated: int
    """Reports without a time in their name; they count in the totals, not in the days."""
    days: tuple[Day, ...]
    """Days with reports, in order."""
    busiest: Day | None
    """The first day with the most claimed ε."""
    span: int
    """Days from the first to the last, both included; 0 without any."""
    budgets: tuple[Spent, ...]
    total: Spent
    per_day: float
    """Claimed ε of dated reports over the days of ``span``."""
    shown_per_day: tuple[float, float]
    says: str
    """The rate in words, with its limits."""
    unclaimed: int
    """Records without a stated ε; they count as 0 in the claimed ε."""
    findings: tuple[Finding, ...] = ()


class Spending:
    """Collects reports one by one and adds up what they spent."""

    def __init__(self, configuration: Configuration, *, database: Database | None = None) -> None:
        """``database`` has the days on which budgets were created and began to grow."""
        self._resolved = {r.key.name: r for r in resolve(configuration)}
        self._limits = ReportLimits(configuration, self._resolved, database=database)
        self._records: Counter[tuple[date | None, str, Group]] = Counter()
        self._claims: dict[Group, float | None] = {}
        self._reports = self._unread = self._undated = self._beyond = 0

    def add(self, report: Report) -> None:
        """Add one report."""
        self._reports += bool(report.segments)
        self._unread += not report.segments
        self._undated += bool(report.segments) and report.created is None
        day = report.created.date() if report.created else None
        for segment in report.segments:
            key, group = self._resolved.get(segment.key), group_of(segment)
            where = (day, UNKNOWN if key is None else key.budget.name, group)
            full = len(self._claims) == MOST_GROUPS and group not in self._claims
            if full or (len(self._records) == MOST_SUMS and where not in self._records):
                self._beyond += len(segment.records)
                continue
            if group not in self._claims:
                self._claims[group] = reported_epsilon(segment) if key is None else key.epsilon
            self._records[where] += len(segment.records)
        self._limits.add(report)

    def observed(self, shown: Mapping[Group, Shown] | None = None) -> Observed:
        """What was spent; ``shown`` is what the bits of each group of records show."""
        each = {group: self._epsilon(group, (shown or {}).get(group)) for group in self._claims}
        by_day: dict[date, list[_Amount]] = {}
        everything = []
        for (day, budget, group), records in self._records.items():
            amount = _Amount(budget, records, *each[group])
            everything.append(amount)
            if day is not None:
                by_day.setdefault(day, []).append(amount)
        dates = sorted(by_day)
        days = tuple(
            Day(day.isoformat(), _by_budget(by_day[day]), _sum("", by_day[day])) for day in dates
        )
        span = (dates[-1] - dates[0]).days + 1 if dates else 0
        unclaimed = sum(
            n for (_, _, group), n in self._records.items() if self._claims[group] is None
        )
        rate = _sum("", [a for amounts in by_day.values() for a in amounts])
        return Observed(
            reports=self._reports,
            unread=self._unread,
            undated=self._undated,
            days=days,
            busiest=max(days, key=lambda day: (day.total.claimed, day.total.records), default=None),
            span=span,
            budgets=_by_budget(everything),
            total=_sum("", everything),
            per_day=rate.claimed / max(1, span),
            shown_per_day=(rate.shown_low / max(1, span), rate.shown_high / max(1, span)),
            says=_rate(rate.claimed, span),
            unclaimed=unclaimed,
            findings=(*self._not_counted(unclaimed), *self._limits.findings()),
        )

    def _epsilon(self, group: Group, shown: Shown | None) -> tuple[float, float, float]:
        """The ε of one record: claimed, and the least and most by its bits."""
        claimed = self._claims[group]
        if claimed is None:
            if shown is None or shown.record is None:
                return 0.0, 0.0, math.inf
            return 0.0, shown.record.low, shown.record.high
        if shown is None or shown.record is None or shown.verdict == "not identified":
            return claimed, claimed, claimed
        return claimed, shown.record.low, shown.record.high

    def _not_counted(self, unclaimed: int) -> Iterator[Finding]:
        if unclaimed:
            message = f"{unclaimed} records have no stated ε; they count as 0 in the claimed ε"
            yield Finding("reports", message, serious=True)
        if self._beyond:
            yield Finding(
                "reports",
                f"{self._beyond} records are in no sum: there are more than {MOST_GROUPS} kinds of "
                f"records, or {MOST_SUMS} days and kinds; audit the reports in parts",
                serious=True,
            )


def _rate(claimed: float, span: int) -> str:
    if not span:
        return "No report has a date, so no rate is known."
    if span == 1:
        return "All reports are from one day, so no rate is known."
    per_day = claimed / span
    return (
        f"{per_day:.3g} per day as claimed over the {span} days seen; a year of such days would be "
        f"{365 * per_day:,.0f} (arithmetic, no forecast)."
    )


@dataclass(frozen=True, slots=True)
class _Amount:
    budget: str
    records: int
    claimed: float
    low: float
    high: float


def _sum(budget: str, amounts: Iterable[_Amount]) -> Spent:
    amounts = [a for a in amounts if a.records]
    return Spent(
        budget,
        sum(a.records for a in amounts),
        math.fsum(a.records * a.claimed for a in amounts),
        math.fsum(a.records * a.low for a in amounts),
        math.fsum(a.records * a.high for a in amounts),
    )


def _by_budget(amounts: Iterable[_Amount]) -> tuple[Spent, ...]:
    of: dict[str, list[_Amount]] = {}
    for amount in amounts:
        of.setdefault(amount.budget, []).append(amount)
    return tuple(_sum(budget, of[budget]) for budget in sorted(of))
