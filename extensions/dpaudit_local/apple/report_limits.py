"""Whether reports keep the daemon's limits: records per key, balances, unsubmitted keys."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from itertools import accumulate

from dpaudit.findings import Finding
from dpaudit_local.apple.model import (
    Budget,
    Configuration,
    Database,
    Report,
    ResolvedKey,
)
from dpaudit_local.apple.quoting import quoted
from dpaudit_local.apple.rules import DAY, MOST_RECORDS, NEVER_SUBMITTED, sessions_within

__all__ = ["ReportLimits"]

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
        self._found: dict[str, list[Finding]] = defaultdict(list)
        self._more: Counter[str] = Counter()
        self._told: set[tuple[str, str]] = set()

    def add(self, report: Report) -> None:
        """Add one report."""
        records: Counter[str] = Counter()
        for segment in report.segments:
            records[segment.key] += len(segment.records)
            self._algorithm(segment.key, segment.algorithm)
        for name, count in records.items():
            key = self._resolved.get(name)
            if key is None:
                self._unknown(name)
                continue
            if count > key.records_per_report:
                message = (
                    f"{quoted(name)} has {count} records in one report, but "
                    f"min(SessionAmount, {MOST_RECORDS}) = {key.records_per_report} are allowed"
                )
                self._say("key", Finding(report.path.name, message, serious=True))
            if key.priority >= NEVER_SUBMITTED and count:
                message = f"submitted despite its SubmissionPriority {key.priority}"
                self._once("priority", name, message, serious=True)
            if report.created is not None:
                self._submitted[key.budget.name][report.created.date()] += count

    def findings(self) -> tuple[Finding, ...]:
        """The findings, serious ones first."""
        for budget, days in sorted(self._submitted.items()):
            for finding in self._balance(self._budgets[budget], days):
                self._say(f"balance of {budget}", finding)
        found = [f for findings in self._found.values() for f in findings]
        for kind, n in self._more.items():
            message = f"at least {n} more findings like those before ({kind})"
            found.append(Finding("reports", message, serious=self._found[kind][0].serious))
        return tuple(sorted(found, key=lambda f: not f.serious))

    def _balance(self, budget: Budget, days: Counter[date]) -> Iterator[Finding]:
        created = self._created.get(budget.name)
        if created is None:
            yield from _crowded(budget, days)
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

    def _algorithm(self, name: str, algorithm: str) -> None:
        properties = self._resolved[name].properties if name in self._resolved else None
        if properties and algorithm not in (properties.algorithm, properties.server_algorithm):
            stated = quoted(properties.algorithm)
            message = f"privatised with {quoted(algorithm)}, but the configuration says {stated}"
            self._once("algorithm", name, message)

    def _unknown(self, name: str) -> None:
        message = "submitted, but not in the configuration"
        if self._patterns:
            message = "not among the configuration's keys; a key pattern may stand for it"
        self._once("unknown", name, message, serious=not self._patterns)

    def _once(self, kind: str, name: str, message: str, *, serious: bool = False) -> None:
        if len(self._told) < _MOST * 100 and (kind, name) not in self._told:
            self._told.add((kind, name))
            self._say(kind, Finding(name, message, serious))

    def _say(self, kind: str, finding: Finding) -> None:
        if len(self._found[kind]) < _MOST:
            self._found[kind].append(finding)
        else:
            self._more[kind] += 1


def _crowded(budget: Budget, days: Counter[date]) -> Iterator[Finding]:
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
