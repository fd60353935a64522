"""Whether reports keep the daemon's own limits: records of a key and report, balances, and keys that are never submitted."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from itertools import accumulate

from dpaudit.deployments.apple.model import (
    Budget,
    Configuration,
    Database,
    Finding,
    Report,
    ResolvedKey,
)
from dpaudit.deployments.apple.quoting import quoted
from dpaudit.deployments.apple.rules import DAY, MOST_RECORDS, NEVER_SUBMITTED, sessions_within

__all__ = ["ReportLimits"]

_DAY = timedelta(days=1)
_MOST = 20
"""Findings of one kind that are told one by one."""


class ReportLimits:
    """Takes in reports and collects what they break."""

    def __init__(
        self,
        configuration: Configuration,
        resolved: Mapping[str, ResolvedKey],
        *,
        database: Database | None,
    ) -> None:
        """``resolved`` by key; the database's ZCREATIONDATE bounds what a budget can have grown to."""
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
        """Take in one report."""
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
                self._say(
                    "key",
                    Finding(
                        report.path.name,
                        f"{quoted(name)} has {count} records in one report, where min(SessionAmount, {MOST_RECORDS}) = "
                        f"{key.records_per_report} are allowed",
                        serious=True,
                    ),
                )
            if key.priority >= NEVER_SUBMITTED and count:
                self._once(
                    "priority",
                    name,
                    f"submitted, though its SubmissionPriority {key.priority} should keep it on the device",
                    serious=True,
                )
            if report.created is not None:
                self._submitted[key.budget.name][report.created.date()] += count

    def findings(self) -> tuple[Finding, ...]:
        """What was found, serious things first."""
        for budget, days in sorted(self._submitted.items()):
            for finding in self._balance(self._budgets[budget], days):
                self._say(f"balance of {budget}", finding)
        found = [f for findings in self._found.values() for f in findings]
        found += [
            Finding(
                "reports",
                f"at least {n} more findings like those before ({kind})",
                serious=self._found[kind][0].serious,
            )
            for kind, n in self._more.items()
        ]
        return tuple(sorted(found, key=lambda f: not f.serious))

    def _balance(self, budget: Budget, days: Counter[date]) -> Iterator[Finding]:
        created = self._created.get(budget.name)
        if created is None:
            yield from _crowded(budget, days)
            return
        # a name may be of another time zone
        start = created.date() - _DAY if created.date() > date.min else date.min
        since = sorted(day for day in days if day >= start)
        for day, total in zip(since, accumulate(days[d] for d in since), strict=True):
            most = (
                sessions_within((day - start).days * DAY + 2 * DAY, budget.session_seconds)
                * budget.session_amount
            )
            if total > most:
                yield Finding(
                    budget.name,
                    f"{total} records were submitted from {created.date()}, when the budget was created, to {day}: it can "
                    f"have allowed {most}",
                    serious=True,
                )
                break
        before = sum(days.values()) - sum(days[d] for d in since)
        if before:
            yield Finding(
                budget.name,
                f"{before} records are older than the budget ({created.date()}): an earlier opt-in",
            )

    def _algorithm(self, name: str, algorithm: str) -> None:
        key = self._resolved.get(name)
        if key is not None and algorithm not in (
            key.properties.algorithm,
            key.properties.server_algorithm,
        ):
            self._once(
                "algorithm",
                name,
                f"privatised with {quoted(algorithm)}, where the configuration says {quoted(key.properties.algorithm)}",
            )

    def _unknown(self, name: str) -> None:
        if self._patterns:
            self._once(
                "unknown",
                name,
                "not among the configuration's keys; a key pattern may stand for it",
            )
        else:
            self._once(
                "unknown", name, "submitted, but the configuration does not have it", serious=True
            )

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
    """That more was submitted within SessionSeconds than two grants, and when most of all.

    Two may fall together in honest use: a report before the day's grant spends the one before, the
    next report the new one.
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
        again = f" (and {times - 1} such times more)" if times > 1 else ""
        when = f"on {last}" if first == last else f"from {first} to {last}"
        yield Finding(
            budget.name,
            f"{most} records {when}{again}, where SessionAmount = {budget.session_amount}: that takes unused budget of "
            "earlier days",
        )
