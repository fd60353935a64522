"""Where findings and blind spots belong in NIST SP 800-226 (final, March 2025).

Its differential privacy pyramid has nine components, each in one of three sections. Their names and
sections are those of the publication. Which component a test belongs to is our judgement.
"""

from __future__ import annotations

from typing import NamedTuple

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.documents import ExperimentDocument
from dpaudit.report.format import NOTHING
from dpaudit.report.meaning import kind_of
from dpaudit.report.proofs import claimed_of_proof
from dpaudit.report.rows import arm_labels, attacks_of, exceeds_claim, keys_in
from dpaudit.report.sentences import listed
from dpaudit.report.tables import Column, sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import (
    AuditResult,
    BlindSpot,
    DeterminismResult,
    MechanismResult,
    ProofResult,
)

__all__ = [
    "hazards_of_attacks",
    "hazards_of_attribution",
    "hazards_of_audit",
    "hazards_of_census",
    "hazards_of_deployment",
    "hazards_of_determinism",
    "hazards_of_proof",
]

PARAMETERS = "Privacy parameters"
UNIT = "Unit of privacy"
ALGORITHMS = "Algorithms and correctness"
TRUST = "Trust models"
SIDE_CHANNELS = "Side channels"

COMPONENTS = (
    (PARAMETERS, 2),
    (UNIT, 2),
    (ALGORITHMS, 3),
    ("Utility", 3),
    ("Bias", 3),
    ("Access control", 4),
    (TRUST, 4),
    (SIDE_CHANNELS, 4),
    ("Data collection exposure", 4),
)
"""The components of the pyramid with their sections, from the top down."""

_OF_KIND = {"last-bits": SIDE_CHANNELS, "time": SIDE_CHANNELS, "values": SIDE_CHANNELS,
            "hidden": TRUST, "messages": TRUST}  # fmt: skip
_OF_FLAW = (
    (("pancake", "seed", "key", "messages", "behaves when"), TRUST),
    (("floating-point", "last bits", "low bits", "timing", "time of"), SIDE_CHANNELS),
    (("other neighbours",), UNIT),
    (("how large ε",), PARAMETERS),
)
"""Words in a flaw that no number of values shows, and where it belongs; else to the algorithms."""


class _Row(NamedTuple):
    found: list[str]
    open: list[str]


def hazards_of_audit(result: AuditResult | MechanismResult) -> list[Column]:
    """One row per component: the findings that belong to it, and what is not excluded."""
    rows = _rows()
    for test in sorted_tests(result.tests):
        if test.finding:
            component = _OF_KIND.get(kind_of(test.name), ALGORITHMS)
            rows[component].found.append(printable(test.name, limit=100))
    for spot in result.cannot_rule_out:
        rows[_component(spot)].open.append(printable(spot.flaw, limit=200))
    rows[PARAMETERS].open.append("whether the claimed ε is small enough")
    rows[UNIT].open.append("whether neighbours differ in all data of one person")
    rows[TRUST].open.append("whether the supplier of the noise can be trusted")
    if result.verdict != "no-finding":
        rows[ALGORITHMS].open.append("other flaws")
        rows[SIDE_CHANNELS].open.append("other side channels")
    return _table(rows)


def hazards_of_attacks(document: ExperimentDocument) -> list[Column]:
    """One row per component: the arms on which an attack shows more than the claimed ε."""
    rows, arms = _rows(), document.rows
    labels = arm_labels(arms)
    read = [label for label, row in zip(labels, arms, strict=True) if exceeds_claim(row)]
    if read:
        component = TRUST if keys_in(arms) else ALGORITHMS
        rows[component].found.append(
            f"more than the claimed ε is shown on {listed(read, word='and')}"
        )
    if any(attacks_of(row) for row in arms):
        rows[ALGORITHMS].open.append("attacks that were not tried")
    rows[PARAMETERS].open.append("whether the claimed ε is small enough")
    rows[UNIT].open.append("whether neighbours differ in all data of one person")
    rows[SIDE_CHANNELS].open.append("whatever is not in a release, such as time")
    return _table(rows)


def hazards_of_deployment(document: AppleDocument) -> list[Column]:
    """One row per component: the budget, the findings, and what the files do not show."""
    rows = _rows()
    serious = sum(f.serious for f in document.findings)
    permitted = document.ledger.permitted
    rows[PARAMETERS].found.append(
        f"ε = {permitted.per_day:.4g} per day, {permitted.over_days:.4g} over "
        f"{document.ledger.days:,} days"
    )
    rows[UNIT].found.append("the budget is per day: a person’s loss is the sum over all days")
    if serious:
        rows[ALGORITHMS].found.append(f"{serious:,} under Findings")
    rows[ALGORITHMS].open.append("code that leaves no trace in the files")
    rows[TRUST].open.append("who receives the records, and what else is sent")
    return _table(rows)


def hazards_of_attribution(document: AttributionDocument) -> list[Column]:
    """One row per component: ε per source, the findings, and what reports do not show."""
    rows = _rows()
    claimed = sorted({claim.epsilon for claim in document.claims})
    if claimed:
        rows[PARAMETERS].found.append(f"ε up to {claimed[-1]:.4g} per event-level source")
    if document.noise is not None:
        rows[PARAMETERS].found.append(f"ε = {document.noise.epsilon:.4g} per summary report")
    rows[UNIT].found.append("one source: a person’s loss is the sum over all sources")
    found = sum(t.finding for t in document.tests) + sum(f.serious for f in document.findings)
    if found:
        rows[ALGORITHMS].found.append(f"{found:,} under What was found")
    rows[ALGORITHMS].open.append("reports whose true output is not recorded")
    rows[TRUST].open.append("noise that a key holder can tell from honest noise")
    rows[SIDE_CHANNELS].open.append("when reports are sent, and how many there are")
    return _table(rows)


def hazards_of_census(document: CensusDocument) -> list[Column]:
    """One row per component: the findings, and what noise in known cells does not show."""
    rows = _rows()
    serious = sum(test.finding for test in document.tests)
    if serious:
        rows[ALGORITHMS].found.append(f"{serious:,} under All tests")
    rows[ALGORITHMS].open.append("noise in cells whose true count is not known")
    rows[PARAMETERS].open.append("whether the stated variances are large enough")
    rows[UNIT].open.append("whether neighbours differ in all data of one person")
    rows[TRUST].open.append("whether someone holds a key to the noise")
    return _table(rows)


def hazards_of_proof(result: ProofResult) -> list[Column]:
    """One row per component: what was proved or refuted, and what the proof does not cover."""
    rows, claim = _rows(), claimed_of_proof(result)
    if result.verdict != "undecided":
        word = "proved" if result.verdict == "proved" else "refuted"
        rows[ALGORITHMS].found.append(f"{word}: {printable(claim, limit=200)}")
    else:
        rows[ALGORITHMS].open.append("the claim: not decided")
    rows[ALGORITHMS].open.append("other arguments, other versions of the files, Python itself")
    rows[PARAMETERS].open.append("whether the claimed ε is small enough")
    rows[UNIT].open.append("whether neighbours differ in all data of one person")
    rows[TRUST].open.append("the real source of the coins, and who knows them")
    rows[SIDE_CHANNELS].open.append("time, memory and power")
    count = result.coin_count
    if count is not None and count.constant is None:
        rows[SIDE_CHANNELS].found.append("the number of coins read varies")
    return _table(rows)


def hazards_of_determinism(result: DeterminismResult) -> list[Column]:
    """One row per component: values that are no function of their coins, and what is open."""
    rows = _rows()
    if result.findings:
        rows[TRUST].found.append("a value is not a function of coins of its own")
    rows[TRUST].open.append("branches that the coins tried never took")
    rows[ALGORITHMS].open.append("the law of the values")
    return _table(rows)


def _rows() -> dict[str, _Row]:
    return {name: _Row([], []) for name, _ in COMPONENTS}


def _component(spot: BlindSpot) -> str:
    flaw = spot.flaw.lower()
    if spot.size is None:
        for words, component in _OF_FLAW:
            if any(word in flaw for word in words):
                return component
    return _OF_KIND.get(kind_of(spot.test), ALGORITHMS) if spot.test else ALGORITHMS


def _table(rows: dict[str, _Row]) -> list[Column]:
    return [
        Column("Component", [name for name, _ in COMPONENTS]),
        Column("Section", [f"{section}" for _, section in COMPONENTS], True),
        Column("Found", ["; ".join(rows[name].found) or NOTHING for name, _ in COMPONENTS]),
        Column(
            "Not excluded",
            [_open(rows[name]) for name, _ in COMPONENTS],
        ),
    ]


def _open(row: _Row) -> str:
    return "; ".join(row.open) or (NOTHING if row.found else "not looked at")
