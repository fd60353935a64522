"""JUnit XML for Jenkins, GitLab and most CI systems: one suite per document, one case per check.

A finding is a ``failure``, a failed sampler or cell an ``error``, an advisory test ``skipped`` with
its message; in an inconclusive audit no case passes. XML 1.0 only: a character that it lacks
becomes ``�``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree

from dpaudit.report import format as fmt
from dpaudit.report.formats.checks import Check, Checked, checked
from dpaudit.report.reading import Document
from dpaudit.results.text import printable

__all__ = ["junit_xml"]

_UNDECIDED = "the audit is inconclusive: no finding here means nothing"


def junit_xml(document: Document) -> str:
    """The document as JUnit XML with one ``testsuite``; deterministic."""
    told = checked(document)
    outcomes = Counter(check.outcome for check in told.checks)
    counts = {
        "tests": str(len(told.checks)),
        "failures": str(outcomes["finding"]),
        "errors": str(outcomes["error"]),
        "time": _time(told.seconds),
    }
    suites = ElementTree.Element("testsuites", {"name": "dpaudit", **counts})
    skipped = str(outcomes["advice"] + outcomes["undecided"])
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": told.title, "skipped": skipped, **counts, **_started(told)}
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(told).items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    seen: Counter[tuple[str, str]] = Counter()
    for check in told.checks:
        seen[check.group, check.name] += 1
        _case(suite, told, check, number=seen[check.group, check.name])
    ElementTree.SubElement(suite, "system-out").text = "\n".join(
        [told.sentence, *(f"Not excluded: {spot}" for spot in told.blind_spots)]
    )
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _case(suite: ElementTree.Element, told: Checked, check: Check, *, number: int) -> None:
    name = check.name if number == 1 else f"{check.name} ({number})"
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=name,
        classname=f"dpaudit.{told.kind}.{check.group}",
        time=_time(check.seconds),
    )
    message = check.message or check.looks_at or check.name
    match check.outcome:
        case "finding":
            failure = ElementTree.SubElement(case, "failure", type="finding", message=message)
            failure.text = _details(check)
        case "error":
            kind = "inconclusive" if check.group == "verdict" else "failed"
            ElementTree.SubElement(case, "error", type=kind, message=message).text = _details(check)
        case "advice":
            ElementTree.SubElement(case, "skipped", message=f"advice: {message}")
            ElementTree.SubElement(case, "system-out").text = _details(check)
        case "undecided":
            ElementTree.SubElement(case, "skipped", message=_UNDECIDED)
        case _ if check.message:
            ElementTree.SubElement(case, "system-out").text = _details(check)


def _details(check: Check) -> str:
    """The check's details, one per line."""
    facts, interval = check.facts, check.facts.get("interval")
    lines = [check.message, f"looks at: {check.looks_at}" if check.looks_at else ""]
    if isinstance(interval, Mapping):
        low, high = (fmt.quantity(interval.get(end), digits=6) for end in ("low", "high"))
        sure = f"{fmt.percent(interval.get('confidence'))} confidence, {interval.get('method')}"
        lines.append(f"interval: [{low}, {high}] {facts.get('unit', '')} ({sure})")
    if "p" in facts:
        p, adjusted = fmt.p_value(facts["p"]), fmt.p_value(facts.get("p_adjusted"))
        lines.append(f"p: {p}, adjusted: {adjusted}")
    lines.append(f"reproduce: {check.reproduce}" if check.reproduce else "")
    lines.append(str(facts.get("traceback", "")))
    return "\n".join(filter(None, lines))


def _properties(told: Checked) -> dict[str, str]:
    plain = {
        "verdict": told.verdict,
        "target": told.target,
        "claim": told.claim,
        "dpaudit": told.version,
        "seed": told.provenance.get("seed"),
        "hardware": told.provenance.get("hardware"),
        "command": told.command,
    }
    plain |= {k: v for k, v in told.facts.items() if isinstance(v, (str, int, float))}
    return {k: printable(v, limit=1000) for k, v in plain.items() if v not in (None, "")}


def _started(told: Checked) -> dict[str, str]:
    started = printable(told.provenance.get("started") or "", limit=40)
    return {"timestamp": started.removesuffix("+00:00")} if started else {}


def _time(seconds: float | None) -> str:
    known = seconds is not None and math.isfinite(seconds) and seconds >= 0
    return f"{seconds:.3f}" if known else "0.000"
