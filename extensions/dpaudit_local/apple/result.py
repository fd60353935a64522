"""The result of an audit of Apple's deployment, by ``dpaudit deployment apple``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dpaudit.findings import Finding
from dpaudit.report import Described
from dpaudit.types import Provenance, Verdict
from dpaudit_local.apple.bits.shown import Shown
from dpaudit_local.apple.differences import Difference
from dpaudit_local.apple.ledger import Ledger
from dpaudit_local.apple.model import Balance, RecordCount
from dpaudit_local.apple.observed import Observed

__all__ = ["AppleResult", "OlderConfiguration", "Sizes", "Stored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A configuration's folder, and the number of its entries."""

    folder: str
    keys: int
    properties: int
    budgets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderConfiguration(Sizes):
    """The configuration to compare with; ``effect`` is one sentence on what the changes do."""

    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the device's database holds."""

    balances: tuple[Balance, ...]
    counts: tuple[RecordCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppleResult(Described):
    """The configuration's ledger and, if given, an older one, the database and the reports.

    ``differences`` are from ``against``; ``shown`` is what the bits of ``observed`` records show,
    per key.
    """

    kind: ClassVar[str] = "deployment"

    system: Literal["apple"]
    verdict: Verdict
    configuration: Sizes
    ledger: Ledger
    against: OlderConfiguration | None
    differences: tuple[Difference, ...] | None
    database: Stored | None
    observed: Observed | None
    shown: tuple[Shown, ...]
    findings: tuple[Finding, ...]
    provenance: Provenance
