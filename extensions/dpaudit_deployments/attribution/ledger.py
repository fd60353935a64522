"""What was spent: ε per reporting party, contribution budgets, and the limits on both."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpaudit.findings import Finding
from dpaudit.types import Amount, Count
from dpaudit_deployments.attribution.records import AggregatableReport, Source
from dpaudit_deployments.attribution.registration import (
    DAY,
    L1,
    MOST_AGGREGATABLE_REPORTS,
    MOST_ATTRIBUTIONS,
    MOST_CONTRIBUTIONS,
    MOST_ORIGINS,
    RATE_LIMIT_DAYS,
)

__all__ = ["AggregateLedger", "AggregateSpending", "EventLine", "EventSpending", "SourceLoss"]

_MOST_FINDINGS = 20
_MOST_LINES = 400
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class EventLine:
    """Event-level sources of one source site, destination and reporting origin."""

    source_site: str
    destination: str
    reporting_origin: str
    sources: Count
    attributions: Count
    """Sources that reported something false count once, as in the rate limit; others by report."""
    epsilon: Amount
    """By basic composition over all sources: a bound for one person with all of them."""
    busiest: Count | None
    """The most attributions within a rate-limit window of 30 days; None without times."""


class EventSpending:
    """Collects sources and their limits."""

    def __init__(self) -> None:
        self._sources: Counter[tuple[str, str, str]] = Counter()
        self._epsilon: dict[tuple[str, str, str], float] = defaultdict(float)
        self._times: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._untimed: Counter[tuple[str, str, str]] = Counter()

    def add(self, source: Source) -> None:
        """Add one source."""
        record = source.record
        key = (record.source_site, record.destination, record.reporting_origin)
        self._sources[key] += 1
        self._epsilon[key] += source.registration.epsilon
        false = source.true is None or source.true != source.reported
        attributions = min(1, len(record.reported)) if false else len(record.reported)
        if record.time is None:
            self._untimed[key] += attributions
        else:
            self._times[key] += [record.time] * attributions

    def lines(self) -> tuple[EventLine, ...]:
        """One per party, by ε."""
        lines = []
        for key, sources in self._sources.items():
            times, untimed = self._times[key], self._untimed[key]
            busiest = None if untimed else _busiest(times)
            attributions = len(times) + untimed
            lines.append(EventLine(*key, sources, attributions, self._epsilon[key], busiest))
        return tuple(sorted(lines, key=lambda line: -line.epsilon)[:_MOST_LINES])

    def findings(self) -> Iterator[Finding]:
        """Attributions above the rate limit, and too many reporting origins."""
        for line in self.lines():
            if line.busiest is not None and line.busiest > MOST_ATTRIBUTIONS:
                message = (
                    f"{line.busiest:,} attributions within {RATE_LIMIT_DAYS} days; at most "
                    f"{MOST_ATTRIBUTIONS} per source site, destination and reporting site"
                )
                yield Finding(_party(line), message, serious=True)
        origins: dict[tuple[str, str], set[str]] = defaultdict(set)
        for site, destination, origin in self._times:
            if self._times[site, destination, origin]:
                origins[site, destination].add(origin)
        for (site, destination), named in origins.items():
            times = [t for o in named for t in self._times[site, destination, o]]
            if len(named) > MOST_ORIGINS and max(times) - min(times) <= RATE_LIMIT_DAYS * DAY:
                message = (
                    f"{len(named)} reporting origins within {RATE_LIMIT_DAYS} days; at most "
                    f"{MOST_ORIGINS}"
                )
                yield Finding(f"{site} → {destination}", message, serious=True)


def _busiest(times: Iterable[float]) -> int:
    recent, most = deque[float](), 0
    for time in sorted(times):
        recent.append(time)
        while time - recent[0] > RATE_LIMIT_DAYS * DAY:
            recent.popleft()
        most = max(most, len(recent))
    return most


def _party(line: EventLine) -> str:
    return f"{line.source_site} → {line.destination}, {line.reporting_origin}"


@dataclass(frozen=True, slots=True)
class SourceLoss:
    """One source's part in summary reports."""

    source: str
    reports: Count
    value: Count
    """The sum of its contributions, each report once."""
    epsilon: Amount
    """Σ over batches of ε · contributions / L1: its loss by basic composition."""


@dataclass(frozen=True, slots=True)
class AggregateLedger:
    """Contribution budgets over all recorded aggregatable reports.

    Formal guarantee: if each batch adds discrete Laplace noise of scale L1/ε, a source whose
    contributions sum to v over all batches in which they were aggregated loses at most ε·v/L1 (the
    law's tails, composed). Not claimed: a person's loss, which is the sum over that person's
    sources.
    """

    reports: Count
    sources: Count
    batches: Count
    shared_ids: Count
    epsilon: Amount
    """Of one batch, as claimed."""
    largest: SourceLoss | None
    lines: tuple[SourceLoss, ...]
    """The largest losses."""


class AggregateSpending:
    """Collects aggregatable reports: the budget of each source, and the rule of no duplicates."""

    def __init__(self, *, epsilon: float) -> None:
        self._epsilon = epsilon
        self._reports: Counter[str] = Counter()
        self._value: Counter[str] = Counter()
        self._aggregated: Counter[str] = Counter()
        self._batches_of: dict[bytes, set[str]] = defaultdict(set)
        self._report_ids: set[tuple[str, str]] = set()
        self._batches: set[str] = set()
        self._findings: list[Finding] = []

    def add(self, report: AggregatableReport, info: Mapping[str, Any]) -> None:
        """Add one report and its ``shared_info``."""
        source = str(report.source)
        value = sum(c.value for c in report.contributions)
        names = report.batch if isinstance(report.batch, list) else [report.batch]
        batches = [str(batch) for batch in names]
        self._reports[source] += 1
        self._value[source] += value
        self._aggregated[source] += value * len(batches)
        if len(report.contributions) > MOST_CONTRIBUTIONS:
            many = f"{len(report.contributions)} contributions in a report"
            self._add_finding(f"source {source}", f"{many}; at most {MOST_CONTRIBUTIONS}")
        for batch in batches:
            self._batches.add(batch)
            name = str(info.get("report_id", ""))
            if name and (batch, name) in self._report_ids:
                self._add_finding(f"batch {batch}", f"report {name} was aggregated more than once")
            self._report_ids.add((batch, name))
            if info:
                self._batches_of[_shared_id(info, report.filtering_id)].add(batch)

    def ledger(self) -> AggregateLedger:
        """The sums."""
        loss = {source: self._epsilon * value / L1 for source, value in self._aggregated.items()}
        values = self._value
        spent = [SourceLoss(s, n, values[s], loss[s]) for s, n in self._reports.items()]
        spent.sort(key=lambda s: -s.epsilon)
        return AggregateLedger(
            reports=self._reports.total(),
            sources=len(spent),
            batches=len(self._batches),
            shared_ids=len(self._batches_of),
            epsilon=self._epsilon,
            largest=spent[0] if spent else None,
            lines=tuple(spent[:_MOST_LINES]),
        )

    def findings(self) -> tuple[Finding, ...]:
        """Budgets and limits that were exceeded, and shared IDs in more than one batch."""
        every = [*self._findings, *self._of_sources(), *self._of_shared_ids()]
        if (more := len(every) - _MOST_FINDINGS) > 0:
            message = f"{more:,} more findings about budgets and batches"
            every[_MOST_FINDINGS:] = [Finding("aggregatable reports", message, serious=True)]
        return tuple(every)

    def _of_sources(self) -> Iterator[Finding]:
        for source, value in self._value.items():
            where, loss = f"source {source}", self._epsilon * self._aggregated[source] / L1
            if value > L1:
                yield Finding(where, f"contributions of {value:,}; at most {L1:,}", serious=True)
            elif self._aggregated[source] > L1:
                message = (
                    f"contributions of {value:,} were aggregated several times: a loss of "
                    f"ε = {loss:.4g} instead of at most {self._epsilon:g}"
                )
                yield Finding(where, message, serious=True)
            if (reports := self._reports[source]) > MOST_AGGREGATABLE_REPORTS:
                message = f"{reports} aggregatable reports; at most {MOST_AGGREGATABLE_REPORTS}"
                yield Finding(where, message, serious=True)

    def _of_shared_ids(self) -> Iterator[Finding]:
        for batches in self._batches_of.values():
            if len(batches) > 1:
                message = (
                    f"in {len(batches)} batches ({', '.join(sorted(batches)[:3])}): all reports of "
                    "a shared ID belong in one"
                )
                yield Finding("shared ID", message, serious=True)

    def _add_finding(self, where: str, message: str) -> None:
        self._findings.append(Finding(where, message, serious=True))


def _shared_id(info: Mapping[str, Any], filtering_id: int) -> bytes:
    """AGGREGATION_SERVICE_TEE.md, "Disjoint batches"; the report time is truncated to the hour."""
    fields = ["api", "version", "reporting_origin", "attribution_destination"]
    parts: list[object] = [str(info.get(name, "")) for name in fields]
    parts += [str(info.get("source_registration_time", "")), _hour(info), filtering_id]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def _hour(info: Mapping[str, Any]) -> int:
    try:
        return int(info.get("scheduled_report_time", 0)) // _HOUR
    except (TypeError, ValueError):
        return 0
