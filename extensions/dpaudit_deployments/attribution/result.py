"""The result of an audit of ad measurement, by ``dpaudit deployment attribution``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpaudit.findings import Finding
from dpaudit.report import Described
from dpaudit.types import (
    Amount,
    Count,
    Interval,
    Level,
    Provenance,
    Share,
    TestResult,
    Verdict,
)
from dpaudit_deployments.attribution.ledger import AggregateLedger, EventLine

__all__ = ["AttributionResult", "EventClaim", "NoiseClaim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventClaim:
    """One registration: what the specification makes of it, and what recorded reports show.

    ``flips`` of ``known`` sources, whose true output is recorded, reported another one. ``shown``
    is a lower bound on ε without assumptions on the mechanism; ``by_flips`` an interval of ε if it
    is a randomised response. Both are None without sources to compute them from.
    """

    source_type: str
    states: Count
    epsilon: Amount
    pick_rate: Share
    flip_probability: Share
    capacity: Amount
    capacity_limit: Amount
    allowed: bool
    """Whether a browser with Chromium's limits accepts it."""
    sources: Count = 0
    known: Count = 0
    flips: Count = 0
    shown: Amount | None = None
    by_flips: Interval | None = None

    @property
    def name(self) -> str:
        """The group in a few words."""
        return f"{self.source_type}, {self.states:,} states, ε = {self.epsilon:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseClaim:
    """Summary reports: the noise claimed, and what the recorded one shows.

    ``shown`` is a lower bound on ε without assumptions on the noise, from how often it is at least
    0 and at least L1. ``by_scale`` is an interval of ε if the noise is discrete Laplace.
    """

    epsilon: Amount
    scale: Amount
    batches: Count
    rows: Count
    values: Count
    """Rows whose noise is known."""
    shown: Amount | None = None
    by_scale: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionResult(Described):
    """What registrations permit, and what recorded reports show, spent and exceeded.

    ``tests`` are of event-level reports and of the noise in summary reports; ``findings`` are lower
    bounds on ε above the claim, and facts about budgets, limits and registrations.

    Formal guarantee: if the reports come from the claimed laws, independently for each source and
    value, a test is a finding, or a lower bound on ε exceeds the claim, with probability at most
    ``alpha``. Findings about budgets and limits are facts about files, without chance.
    """

    kind: ClassVar[str] = "attribution"

    verdict: Verdict
    alpha: Level
    claims: tuple[EventClaim, ...]
    noise: NoiseClaim | None
    parties: tuple[EventLine, ...]
    budget: AggregateLedger | None
    tests: tuple[TestResult, ...]
    findings: tuple[Finding, ...]
    cannot_rule_out: tuple[str, ...]
    seconds: Amount
    provenance: Provenance
