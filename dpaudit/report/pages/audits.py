"""The pages of audits: of a sampler, and of a mechanism."""

from __future__ import annotations

from typing import Any

from dpaudit.report import format as fmt
from dpaudit.report.figures.svg import present
from dpaudit.report.hazards import hazards_of_audit
from dpaudit.report.identity import file_facts
from dpaudit.report.meaning import audit_meaning, mechanism_meaning
from dpaudit.report.mechanism import bounds_table, events_table, mechanism_facts, mechanism_sentence
from dpaudit.report.pages.found import found
from dpaudit.report.sentences import audit_sentence, sandbox_level
from dpaudit.report.tables import blind_spots_table, facts_table, tests_table
from dpaudit.results.text import printable
from dpaudit.types import AuditResult, MechanismResult

__all__ = ["audit_page", "mechanism_page"]


def audit_page(result: AuditResult) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.arms import p_value_ladder
    from dpaudit.report.figures.power import power_map

    used, asked = fmt.count(result.samples), fmt.count(result.samples_requested)
    facts = [
        ("Claim", printable(result.claim, limit=400)),
        ("Values", used if used == asked else f"{used} ({asked} requested)"),
        ("Dimensions", ", ".join(map(fmt.count, result.dims)) or fmt.NOTHING),
        ("Dimensions refused", ", ".join(map(fmt.count, result.dims_refused))),
        ("Mode", "sequential: valid at any stopping time" if result.sequential else ""),
        ("Sandbox", sandbox_level(result)),
        ("α for all tests together", fmt.quantity(result.alpha)),
        ("Time", fmt.seconds(result.seconds)),
    ]
    tests = tests_table(result.tests)
    return {
        "title": f"Audit of {printable(result.sampler, limit=300)}",
        "verdict": result.verdict,
        "sentence": audit_sentence(result),
        "meaning": audit_meaning(result),
        "files": file_facts(result.provenance),
        "reason": _reason(result),
        "facts": [(name, value) for name, value in facts if value],
        "found": found(result.tests),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": present(p_value_ladder(result, prefix="ladder")),
        **_spots(result),
        "maps": present(power_map(result.power, prefix="power")),
        "hazards": hazards_of_audit(result),
        "provenance": facts_table(result.provenance),
    }


def _reason(result: AuditResult) -> str:
    """The basis of a pass: how many tests, at what level."""
    judged = sum(not t.advisory for t in result.tests)
    if result.verdict != "no-finding":
        return ""
    if not judged:
        return printable(result.reason)
    tests = "The one test does not contradict"
    if judged > 1:
        tests = f"None of {judged} tests contradicts"
    said = f"{tests} the claim, at α = {fmt.quantity(result.alpha)} for all of them together."
    advisory = len(result.tests) - judged
    if advisory:
        said += f" {advisory} further {'check is' if advisory == 1 else 'checks are'} advisory."
    return said


def mechanism_page(result: MechanismResult) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.curve import shown_and_claimed
    from dpaudit.report.figures.power import power_map

    tests = bounds_table(result)
    return {
        "title": f"Audit of {printable(result.mechanism, limit=300)}",
        "verdict": result.verdict,
        "sentence": mechanism_sentence(result),
        "meaning": mechanism_meaning(result),
        "files": file_facts(result.provenance),
        "facts": mechanism_facts(result),
        "advice": [printable(a) for a in result.advice],
        "found": found(result.tests),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": present(shown_and_claimed(result, prefix="curve")) if result.tests else [],
        "events": events_table(result),
        **_spots(result),
        "maps": present(power_map(result.power, prefix="power")),
        "hazards": hazards_of_audit(result),
        "provenance": facts_table(result.provenance),
    }


def _spots(result: AuditResult | MechanismResult) -> dict[str, Any]:
    """What a pass cannot exclude: undetectable flaws in words, the others as a table by size."""
    sized = [s for s in result.cannot_rule_out if fmt.number(s.size) is not None]
    never = [s for s in result.cannot_rule_out if fmt.number(s.size) is None]
    return {
        "blind_spots": blind_spots_table(sized),
        "never": [(printable(s.flaw, limit=400), printable(s.says, limit=600)) for s in never],
    }
