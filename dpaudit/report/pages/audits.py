"""The pages of audits: of a sampler, and of a mechanism."""

from __future__ import annotations

from typing import Any

from dpaudit.report import format as fmt
from dpaudit.report.mechanism import bounds_table, events_table, mechanism_facts, mechanism_sentence
from dpaudit.report.pages.found import found
from dpaudit.report.pages.parts import drawn
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
        ("Values", used if used == asked else f"{used} ({asked} asked for)"),
        ("Dimensions", ", ".join(fmt.count(d) for d in result.dims) or fmt.NOTHING),
        *(
            [("Dimensions refused", ", ".join(fmt.count(d) for d in result.dims_refused))]
            if result.dims_refused
            else []
        ),
        *([("Mode", "sequential: valid whenever it stopped")] if result.sequential else []),
        *([("Sandbox", level)] if (level := sandbox_level(result)) else []),
        ("α, for all tests together", fmt.quantity(result.alpha)),
        ("Time", fmt.seconds(result.seconds)),
    ]
    tests = tests_table(result.tests)
    return {
        "title": f"Audit of {printable(result.sampler, limit=300)}",
        "verdict": result.verdict,
        "sentence": audit_sentence(result),
        "reason": _reason(result),
        "facts": facts,
        "found": found(result.tests),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": drawn(p_value_ladder(result, prefix="ladder")),
        **_spots(result),
        "maps": drawn(power_map(result.power, prefix="power")),
        "provenance": facts_table(result.provenance),
    }


def _reason(result: AuditResult) -> str:
    """What the verdict rests on, where its sentence does not say it already."""
    tests = result.tests
    judged = [t for t in tests if not t.advisory]
    if result.verdict != "no-finding":
        return ""
    if not judged:
        return printable(result.reason)
    none = (
        "The one test does not contradict"
        if len(judged) == 1
        else f"None of {len(judged)} tests contradicts"
    )
    more = f" {len(tests) - len(judged)} more only advise." if len(tests) > len(judged) else ""
    return f"{none} the claim, at α = {fmt.quantity(result.alpha)} for all of them together.{more}"


def mechanism_page(result: MechanismResult) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.curve import shown_and_claimed
    from dpaudit.report.figures.power import power_map

    tests = bounds_table(result)
    return {
        "title": f"Audit of {printable(result.mechanism, limit=300)}",
        "verdict": result.verdict,
        "sentence": mechanism_sentence(result),
        "facts": mechanism_facts(result),
        "advice": [printable(a) for a in result.advice],
        "found": found(result.tests),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": drawn(shown_and_claimed(result, prefix="curve")) if result.tests else [],
        "events": events_table(result),
        **_spots(result),
        "maps": drawn(power_map(result.power, prefix="power")),
        "provenance": facts_table(result.provenance),
    }


def _spots(result: AuditResult | MechanismResult) -> dict[str, Any]:
    """What a pass leaves room for: flaws that no size shows in words, the others as a table by size."""
    sized = [s for s in result.cannot_rule_out if fmt.number(s.size) is not None]
    never = [s for s in result.cannot_rule_out if fmt.number(s.size) is None]
    return {
        "blind_spots": blind_spots_table(sized),
        "never": [(printable(s.flaw, limit=400), printable(s.says, limit=600)) for s in never],
    }
