"""Submitted records and ε per budget and day, and violations of the limits."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import accumulate

from dpaudit.findings import Finding
from dpaudit_local.apple.bits.estimates import (
    MOST_GROUPS,
    Group,
    ShownEpsilon,
    group_of,
    reported_epsilon,
)
from dpaudit_local.apple.configuration import resolve
from dpaudit_local.apple.model import (
    Budget,
    Configuration,
    Database,
    Report,
    ResolvedKey,
)
from dpaudit_local.apple.quoting import quoted
from dpaudit_local.apple.rules import DAY, MOST_RECORDS, NEVER_SUBMITTED, sessions_within

__all__ = ["UNKNOWN", "Day", "Observed", "Spending", "Spent"]

_DAY = timedelta(days=1)
_MOST = 20
"""The most findings of one kind that are listed one by one."""


class ReportLimits:
    """Collects reports and the limits that they break."""

    def __init__(
        self,
        configuration: Configuration,
        resolved: Mapping[str, ResolvedKey],
        *,
        database: Database | None,
    ) -> None:
        """``resolved`` by key; the database's ZCREATIONDATE bounds the growth of a budget."""
        self._budgets, self._resolved = configuration.budgets, resolved
        self._patterns = any(r.properties.patterns_allowed for r in resolved.values())
        self._created: dict[str, datetime] = {}
        for row in database.balances if database else ():
            self._created[row.key] = min(row.created, self._created.get(row.key, row.created))
        self._submitted: dict[str, Counter[date]] = defaultdict(Counter)
        self._findings: dict[str, list[Finding]] = defaultdict(list)
        self._more: Counter[str] = Counter()
        self._reported: set[tuple[str, str]] = set()

    def add(self, report: Report) -> None:
        """Add one report."""
        records: Counter[str] = Counter()
        for segment in report.segments:
            records[segment.key] += len(segment.records)
            self._check_algorithm(segment.key, segment.algorithm)
        for name, count in records.items():
            key = self._resolved.get(name)
            if key is None:
                self._report_unknown(name)
                continue
            if count > key.records_per_report:
                message = (
                    f"{quoted(name)} has {count} records in one report, but "
                    f"min(SessionAmount, {MOST_RECORDS}) = {key.records_per_report} are allowed"
                )
                self._add_finding("key", Finding(report.path.name, message, serious=True))
            if key.priority >= NEVER_SUBMITTED and count:
                message = f"submitted despite its SubmissionPriority {key.priority}"
                self._report_once("priority", name, message, serious=True)
            if report.created is not None:
                self._submitted[key.budget.name][report.created.date()] += count

    def findings(self) -> tuple[Finding, ...]:
        """The findings, serious ones first."""
        for budget, days in sorted(self._submitted.items()):
            for finding in self._balance_findings(self._budgets[budget], days):
                self._add_finding(f"balance of {budget}", finding)
        every = [f for some in self._findings.values() for f in some]
        for kind, n in self._more.items():
            message = f"at least {n} more findings like those before ({kind})"
            every.append(Finding("reports", message, serious=self._findings[kind][0].serious))
        return tuple(sorted(every, key=lambda f: not f.serious))

    def _balance_findings(self, budget: Budget, days: Counter[date]) -> Iterator[Finding]:
        created = self._created.get(budget.name)
        if created is None:
            yield from _crowding_findings(budget, days)
            return
        # the time in a name may be of another time zone
        start = created.date() - _DAY if created.date() > date.min else date.min
        since = sorted(day for day in days if day >= start)
        for day, total in zip(since, accumulate(days[d] for d in since), strict=True):
            sessions = sessions_within((day - start).days * DAY + 2 * DAY, budget.session_seconds)
            most = sessions * budget.session_amount
            if total > most:
                message = (
                    f"{total} records were submitted from {created.date()}, when the budget was "
                    f"created, to {day}; it can have allowed {most}"
                )
                yield Finding(budget.name, message, serious=True)
                break
        before = sum(days.values()) - sum(days[d] for d in since)
        if before:
            older = f"{before} records are older than the budget ({created.date()})"
            yield Finding(budget.name, f"{older}: an earlier opt-in")

    def _check_algorithm(self, name: str, algorithm: str) -> None:
        properties = self._resolved[name].properties if name in self._resolved else None
        if properties and algorithm not in (properties.algorithm, properties.server_algorithm):
            stated = quoted(properties.algorithm)
            message = f"privatised with {quoted(algorithm)}, but the configuration says {stated}"
            self._report_once("algorithm", name, message)

    def _report_unknown(self, name: str) -> None:
        message = "submitted, but not in the configuration"
        if self._patterns:
            message = "not among the configuration's keys; a key pattern may stand for it"
        self._report_once("unknown", name, message, serious=not self._patterns)

    def _report_once(self, kind: str, name: str, message: str, *, serious: bool = False) -> None:
        if len(self._reported) < _MOST * 100 and (kind, name) not in self._reported:
            self._reported.add((kind, name))
            self._add_finding(kind, Finding(name, message, serious))

    def _add_finding(self, kind: str, finding: Finding) -> None:
        if len(self._findings[kind]) < _MOST:
            self._findings[kind].append(finding)
        else:
            self._more[kind] += 1


def _crowding_findings(budget: Budget, days: Counter[date]) -> Iterator[Finding]:
    """A finding if more than two grants were submitted within SessionSeconds, and when most.

    Two may coincide in honest use: one report spends the previous grant, the next the new one.
    """
    period, recent, within = max(1.0, budget.session_seconds / DAY), deque[date](), 0
    most, first, last, times = 2 * budget.session_amount, date.min, date.min, 0
    for day in sorted(days):
        recent.append(day)
        within += days[day]
        while (day - recent[0]).days >= period:
            within -= days[recent.popleft()]
        times += within > 2 * budget.session_amount
        if within > most:
            most, first, last = within, recent[0], day
    if times:
        again = f" (and {times - 1} more such times)" if times > 1 else ""
        when = f"on {last}" if first == last else f"from {first} to {last}"
        message = f"{most} records {when}{again} at SessionAmount = {budget.session_amount}"
        yield Finding(budget.name, f"{message}: that takes unused budget from earlier days")


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
    """The contents of the reports that still exist.

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

    def summary(self, shown: Mapping[Group, ShownEpsilon] | None = None) -> Observed:
        """The sums of ε; ``shown`` has the estimate of each group of records."""
        each = {group: self._epsilon(group, (shown or {}).get(group)) for group in self._claims}
        by_day: dict[date, list[Spent]] = {}
        everything = []
        for (day, budget, group), records in self._records.items():
            amount = Spent(budget, records, *(records * e if records else 0.0 for e in each[group]))
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
            findings=(*self._uncounted_findings(unclaimed), *self._limits.findings()),
        )

    def _epsilon(self, group: Group, shown: ShownEpsilon | None) -> tuple[float, float, float]:
        """The ε of one record: claimed, and the least and most by its bits."""
        claimed = self._claims[group]
        if claimed is None:
            if shown is None or shown.record is None:
                return 0.0, 0.0, math.inf
            return 0.0, shown.record.low, shown.record.high
        if shown is None or shown.record is None or shown.verdict == "not identified":
            return claimed, claimed, claimed
        return claimed, shown.record.low, shown.record.high

    def _uncounted_findings(self, unclaimed: int) -> Iterator[Finding]:
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


def _sum(budget: str, amounts: Sequence[Spent]) -> Spent:
    return Spent(
        budget,
        sum(a.records for a in amounts),
        math.fsum(a.claimed for a in amounts),
        math.fsum(a.shown_low for a in amounts),
        math.fsum(a.shown_high for a in amounts),
    )


def _by_budget(amounts: Iterable[Spent]) -> tuple[Spent, ...]:
    of: dict[str, list[Spent]] = {}
    for amount in amounts:
        of.setdefault(amount.budget, []).append(amount)
    return tuple(_sum(budget, of[budget]) for budget in sorted(of))
