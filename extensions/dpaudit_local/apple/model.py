"""The types of Apple's files, and of what our audit reports about them; nothing computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dpaudit.findings import Finding

__all__ = [
    "Balance",
    "Budget",
    "Check",
    "Configuration",
    "Database",
    "Key",
    "Properties",
    "RecordCount",
    "Report",
    "ResolvedKey",
    "Segment",
]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the independence of bits: its p-value, and what was found."""

    name: str
    p: float
    says: str


@dataclass(frozen=True, slots=True)
class Key:
    """``keynames.plist``: a kind of data, such as new words in en_US, and its properties' name."""

    name: str
    properties: str


@dataclass(frozen=True, slots=True)
class Properties:
    """``keyproperties.plist``: how data of such keys is privatised, and which budget it uses."""

    name: str
    algorithm: str
    """PrivatizationAlgorithm, such as ``CountMedianSketch`` or ``OneBitHistogram``."""
    parameter: float
    """PrivacyParameter."""
    budget: str
    """BudgetKeyName."""
    data_algorithm: str | None = None
    server_algorithm: str | None = None
    transport: str | None = None
    priority: int | None = None
    """SubmissionPriority; None if the version has none (macOS 10.12.1)."""
    patterns_allowed: bool | None = None
    fragment_width: int | None = None
    fragment_count: int | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """``budgetproperties.plist``: ``session_amount`` records every ``session_seconds``."""

    name: str
    session_seconds: float
    session_amount: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """The four files of one version, each table by name; ``findings`` are their errors."""

    folder: Path
    keys: Mapping[str, Key]
    properties: Mapping[str, Properties]
    budgets: Mapping[str, Budget]
    parameters: Mapping[str, Mapping[str, Any]]
    """``algorithmparameters.plist``: by ServerAlgorithmString."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedKey:
    """A key, KeyName → PropertiesName → algorithm, ε, budget, and how the daemon runs it."""

    key: Key
    properties: Properties
    budget: Budget
    parameters: Mapping[str, Any]
    """The algorithm's parameters of ``algorithmparameters.plist``; empty if there are none."""
    epsilon: float
    """The PrivacyParameter in use: as configured, or 1 if that exceeds epsilonMax = 2."""
    priority: int
    """The SubmissionPriority in use; 99999 (never submitted) if the PrivacyParameter is refused."""
    records_per_report: int
    """min(SessionAmount, 40)."""


@dataclass(frozen=True, slots=True)
class Balance:
    """A row of ZPRIVACYBUDGETRECORD."""

    key: str
    balance: int
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True)
class RecordCount:
    """The number of rows of one table, key and state; a database may hold millions."""

    table: str
    """``ZOBHRECORD`` or ``ZCMSRECORD``."""
    key: str
    submitted: bool
    rows: int
    first: datetime | None
    """The earliest readable creation time; UTC."""
    last: datetime | None
    """The latest readable creation time; UTC."""
    plain: int
    """Rows that also hold the plain sequence or fragment (there must be none)."""


@dataclass(frozen=True, slots=True)
class Database:
    """The contents of the budget database, read without changing it."""

    path: Path
    balances: tuple[Balance, ...]
    counts: tuple[RecordCount, ...]
    """By table, key and state."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """The records of one key in one report, as text: ``818,165,+1`` or ``19802,0000C0…``."""

    key: str
    algorithm: str
    parameters: Mapping[str, Any]
    """Flat: only text, Booleans and finite numbers."""
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """One ``.dpsub`` or ``.json.anon`` file; no segments, and a finding, if it was unreadable."""

    path: Path
    version: int | None
    created: datetime | None
    """The time in the file name, taken as UTC; Apple's may be 7 hours ahead (§4.2.1)."""
    segments: tuple[Segment, ...]
    findings: tuple[Finding, ...] = ()
