"""The page of a deployed system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpaudit.report.pages.parts import drawn
from dpaudit.report.tables import facts_table
from dpaudit.results.text import printable

__all__ = ["deployment_page"]


def deployment_page(document: Mapping[str, Any]) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report import deployment as told
    from dpaudit.report.figures.deployment import claimed_and_shown, spent_by_day

    findings, shown = told.deployment_findings_table(document), told.shown_table(document)
    marked, listed = told.serious_rows(findings), told.listed
    observed = told.part(document, "observed")
    lengths = {
        "findings": listed(document.get("findings")),
        "shown": listed(document.get("shown")),
        "differences": listed(document.get("differences")),
        "days": listed(observed.get("days")),
    }
    return {
        "title": told.deployment_title(document),
        "verdict": told.deployment_verdict(document),
        "sentence": told.deployment_sentence(document),
        "facts": told.deployment_facts(document),
        "findings": findings,
        "marked": marked,
        "ledger": told.ledger_table(document),
        "sums": told.sums_table(document),
        "bursts": told.bursts_table(document),
        "bursts_title": told.bursts_title(document),
        "shown_words": told.SHOWN_WORDS,
        "balances": told.balances_table(document),
        "shown": shown,
        "coins": told.coins_table(document),
        "more": [cell == "shows more" for cell in shown[1].cells],
        "claimed": drawn(claimed_and_shown(document, prefix="claimed")),
        "rate": printable(observed.get("says") or "", limit=600),
        "spent": told.spent_table(document),
        "day_by_day": told.days_table(document),
        "days": drawn(spent_by_day(document, prefix="days")),
        "effect": printable(told.part(document, "against").get("effect") or "", limit=600),
        "differences": told.differences_table(document),
        "provenance": facts_table(told.part(document, "provenance")),
        **{f"{name}_left_out": max(0, len(rows) - told.MOST_LINES) for name, rows in lengths.items()},
    }
