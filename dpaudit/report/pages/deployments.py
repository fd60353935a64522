"""The pages of deployed systems."""

from __future__ import annotations

from typing import Any

from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.deployments.census.document import CensusDocument
from dpaudit.report.figures.svg import present
from dpaudit.report.hazards import hazards_of_attribution, hazards_of_census, hazards_of_deployment
from dpaudit.report.meaning import attribution_meaning, census_meaning, deployment_meaning
from dpaudit.report.pages.found import found
from dpaudit.report.tables import facts_table, tests_table
from dpaudit.results.text import printable

__all__ = ["attribution_page", "census_page", "deployment_page"]


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


def census_page(document: CensusDocument) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report import census as words
    from dpaudit.report.figures.census import noise_by_level, scales

    tests = tests_table(document.tests)
    return {
        "title": words.census_title(document),
        "verdict": document.verdict,
        "sentence": words.census_sentence(document),
        "meaning": census_meaning(document),
        "hazards": hazards_of_census(document),
        "facts": words.census_facts(document),
        "notes": [printable(note, limit=600) for note in document.notes],
        "levels": words.levels_table(document),
        "found": found(document.tests),
        "figures": present(
            scales(document, prefix="scales"), *noise_by_level(document, prefix="noise")
        ),
        "groups": words.groups_table(document),
        "groups_left_out": max(0, len(document.groups) - words.MOST_LINES),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "cannot_see": words.CANNOT_SEE,
        "provenance": facts_table(document.provenance),
    }


def attribution_page(document: AttributionDocument) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report import attribution as words
    from dpaudit.report.figures.attribution import claimed_and_shown

    tests, findings = tests_table(document.tests), words.attribution_findings_table(document)
    return {
        "title": words.attribution_title(document),
        "verdict": document.verdict,
        "sentence": words.attribution_sentence(document),
        "meaning": attribution_meaning(document),
        "hazards": hazards_of_attribution(document),
        "facts": words.attribution_facts(document),
        "found": found(document.tests),
        "findings": findings,
        "serious": [cell == "yes" for cell in findings[-1].cells],
        "pair_words": words.PAIR_WORDS,
        "figures": present(claimed_and_shown(document, prefix="shown")),
        "shown": words.shown_table(document),
        "claims": words.claims_table(document),
        "parties": words.parties_table(document),
        "budget": words.budget_table(document),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "not_excluded": words.not_excluded(document),
        "provenance": facts_table(document.provenance),
    }
