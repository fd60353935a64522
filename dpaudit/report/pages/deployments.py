"""The page of a deployed system."""

from __future__ import annotations

from typing import Any

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.report.pages.parts import drawn
from dpaudit.report.tables import facts_table
from dpaudit.results.text import printable

__all__ = ["deployment_page"]


def deployment_page(document: AppleDocument) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report import deployment as told
    from dpaudit.report.figures.deployment import claimed_and_shown, spent_by_day

    findings, shown, ledger = (
        told.deployment_findings_table(document),
        told.shown_table(document),
        document.ledger,
    )
    observed, against = document.observed, document.against
    lengths = {
        "findings": document.findings,
        "shown": document.shown,
        "differences": document.differences or (),
        "days": observed.days if observed else (),
    }
    return {
        "title": told.deployment_title(document),
        "verdict": document.verdict,
        "sentence": told.deployment_sentence(document),
        "facts": told.deployment_facts(document),
        "findings": findings,
        "marked": told.serious_rows(findings),
        "ledger": told.ledger_table(ledger),
        "sums": told.sums_table(ledger),
        "bursts": told.bursts_table(ledger),
        "bursts_title": told.bursts_title(ledger),
        "shown_words": told.SHOWN_WORDS,
        "balances": told.balances_table(document),
        "shown": shown,
        "coins": told.coins_table(document),
        "more": [cell == "shows more" for cell in shown[1].cells],
        "claimed": drawn(claimed_and_shown(document, prefix="claimed")),
        "rate": printable(observed.says if observed else "", limit=600),
        "spent": told.spent_table(observed),
        "day_by_day": told.days_table(observed),
        "days": drawn(spent_by_day(document, prefix="days")),
        "effect": printable(against.effect if against else "", limit=600),
        "differences": told.differences_table(document),
        "provenance": facts_table(document.provenance),
        **{
            f"{name}_left_out": max(0, len(rows) - told.MOST_LINES)
            for name, rows in lengths.items()
        },
    }
