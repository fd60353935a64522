"""The pages of audits: of a sampler, and of a mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpaudit.report import format as fmt
from dpaudit.report.mechanism import bounds_table, events_table, mechanism_facts, mechanism_sentence
from dpaudit.report.pages.found import found
from dpaudit.report.pages.parts import css_class, drawn
from dpaudit.report.sentences import audit_sentence, sandbox_level
from dpaudit.report.tables import blind_spots_table, facts_table, tests_table
from dpaudit.results.text import printable

__all__ = ["audit_page", "mechanism_page"]


def audit_page(result: Mapping[str, Any]) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.arms import p_value_ladder
    from dpaudit.report.figures.power import power_map

    dims, refused = result.get("dims") or (), result.get("dims_refused") or ()
    used, asked = fmt.count(result.get("samples")), fmt.count(result.get("samples_requested"))
    facts = [
        ("Claim", printable(result.get("claim", fmt.NOTHING), limit=400)),
        ("Values", used if used == asked else f"{used} ({asked} asked for)"),
        ("Dimensions", ", ".join(fmt.count(d) for d in dims) or fmt.NOTHING),
        *([("Dimensions refused", ", ".join(fmt.count(d) for d in refused))] if refused else []),
        *([("Mode", "sequential: valid whenever it stopped")] if result.get("sequential") else []),
        *([("Sandbox", level)] if (level := sandbox_level(result)) else []),
        ("α, for all tests together", fmt.quantity(result.get("alpha"))),
        ("Time", fmt.seconds(result.get("seconds"))),
    ]
    tests = tests_table(result)
    return {
        "title": f"Audit of {printable(result.get('sampler', 'a sampler'), limit=300)}",
        "verdict": css_class(result.get("verdict")),
        "sentence": audit_sentence(result),
        "reason": _reason(result),
        "facts": facts,
        "found": found(result),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": drawn(p_value_ladder(result, prefix="ladder")),
        **_spots(result),
        "maps": drawn(power_map(result.get("power") or (), prefix="power")),
        "provenance": facts_table(result.get("provenance")),
    }


def _reason(result: Mapping[str, Any]) -> str:
    """What the verdict rests on, where its sentence does not say it already."""
    reason, tests = printable(result.get("reason") or ""), result.get("tests") or ()
    judged = [t for t in tests if not t.get("advisory")]
    match result.get("verdict"):
        case "no-finding" if judged:
            alpha = fmt.quantity(result.get("alpha"))
            none = (
                "The one test does not contradict" if len(judged) == 1 else f"None of {len(judged)} tests contradicts"
            )
            more = f" {len(tests) - len(judged)} more only advise." if len(tests) > len(judged) else ""
            return f"{none} the claim, at α = {alpha} for all of them together.{more}"
        case "finding" | "inconclusive":
            return ""
    return reason


def mechanism_page(result: Mapping[str, Any]) -> dict[str, Any]:
    """The words, tables and figures of its template."""
    from dpaudit.report.figures.curve import shown_and_claimed
    from dpaudit.report.figures.power import power_map

    tests = bounds_table(result)
    return {
        "title": f"Audit of {printable(result.get('mechanism', 'a mechanism'), limit=300)}",
        "verdict": css_class(result.get("verdict")),
        "sentence": mechanism_sentence(result),
        "facts": mechanism_facts(result),
        "advice": [printable(a) for a in result.get("advice") or ()],
        "found": found(result),
        "tests": tests,
        "marked": [cell == "yes" for cell in tests[-1].cells],
        "figures": drawn(shown_and_claimed(result, prefix="curve")) if result.get("tests") else [],
        "events": events_table(result),
        **_spots(result),
        "maps": drawn(power_map(result.get("power") or (), prefix="power")),
        "provenance": facts_table(result.get("provenance")),
    }


def _spots(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a pass leaves room for: flaws that no size shows in words, the others as a table by size."""
    spots = result.get("cannot_rule_out") or ()
    sized = [s for s in spots if fmt.number(s.get("size")) is not None]
    never = [s for s in spots if fmt.number(s.get("size")) is None]
    return {
        "blind_spots": blind_spots_table({"cannot_rule_out": sized}),
        "never": [(printable(s.get("flaw", ""), limit=400), printable(s.get("says", ""), limit=600)) for s in never],
    }
