"""The document of an audit of ad measurement, written by ``dpaudit deployment attribution``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpaudit.deployments.apple.model import Finding
from dpaudit.deployments.attribution.events import EventClaim
from dpaudit.deployments.attribution.ledger import AggregateLedger, EventLine
from dpaudit.deployments.attribution.noise import NoiseClaim
from dpaudit.documents import SCHEMA, Schema
from dpaudit.types import Amount, Level, Provenance, TestResult, Verdict

__all__ = ["AttributionDocument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionDocument:
    """What registrations permit, and what recorded reports show, spent and exceeded.

    ``tests`` are of event-level reports and of the noise in summary reports; ``findings`` are lower
    bounds on ε above the claim, and facts about budgets, limits and registrations.

    Formal guarantee: if the reports come from the claimed laws, independently for each source and
    value, a test is a finding, or a lower bound on ε exceeds the claim, with probability at most
    ``alpha``. Findings about budgets and limits are facts about files, without chance.
    """

    schema: Schema = SCHEMA
    kind: Literal["attribution"] = "attribution"
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
