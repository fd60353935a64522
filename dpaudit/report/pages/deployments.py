"""The page of a deployed system."""

from __future__ import annotations

from typing import Any

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.report.figures.svg import present
from dpaudit.report.hazards import hazards_of_deployment
from dpaudit.report.meaning import deployment_meaning
from dpaudit.report.tables import facts_table
from dpaudit.results.text import printable

__all__ = ["deployment_page"]


def deployment_page(document: AppleDocument) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report import deployment as words
    from dpaudit.report.figures.deployment import claimed_and_shown, spent_by_day

    findings, shown = words.deployment_findings_table(document), words.shown_table(document)
    ledger, observed, against = document.ledger, document.observed, document.against
    lengths = {
        "findings": document.findings,
        "shown": document.shown,
        "differences": document.differences or (),
        "days": observed.days if observed else (),
    }
    return {
        "title": words.deployment_title(document),
        "verdict": document.verdict,
        "sentence": words.deployment_sentence(document),
        "meaning": deployment_meaning(document),
        "hazards": hazards_of_deployment(document),
        "facts": words.deployment_facts(document),
        "findings": findings,
        "marked": words.serious_rows(findings),
        "ledger": words.ledger_table(ledger),
        "sums": words.sums_table(ledger),
        "bursts": words.bursts_table(ledger),
        "bursts_title": words.bursts_title(ledger),
        "shown_words": words.SHOWN_WORDS,
        "balances": words.balances_table(document),
        "shown": shown,
        "coins": words.coins_table(document),
        "more": [cell == "shows more" for cell in shown[1].cells],
        "claimed": present(claimed_and_shown(document, prefix="claimed")),
        "rate": printable(observed.says if observed else "", limit=600),
        "spent": words.spent_table(observed),
        "day_by_day": words.days_table(observed),
        "days": present(spent_by_day(document, prefix="days")),
        "effect": printable(against.effect if against else "", limit=600),
        "differences": words.differences_table(document),
        "provenance": facts_table(document.provenance),
        **{f"{name}_left_out": max(0, len(r) - words.MOST_LINES) for name, r in lengths.items()},
    }
