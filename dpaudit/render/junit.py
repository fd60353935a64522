"""JUnit XML for Jenkins, GitLab and most CI systems: one suite per document, one case per check.

A finding is a ``failure``, a failed sampler or cell an ``error``, an advisory test ``skipped`` with
its message; in an inconclusive audit no case passes. XML 1.0 only: a character that it lacks
becomes ``�``.
"""

from __future__ import annotations

import math
from collections import Counter
from xml.etree import ElementTree

from dpaudit import wording
from dpaudit.render.parts import headline, safe, spot_text
from dpaudit.report import Check, Report
from dpaudit.results.text import printable

__all__ = ["junit_xml"]

_UNDECIDED = "the audit is inconclusive: no finding here means nothing"


def junit_xml(report: Report) -> str:
    """The report as JUnit XML with one ``testsuite``; deterministic."""
    report = safe(report)
    outcomes = Counter(check.outcome for check in report.checks)
    counts = {
        "tests": str(len(report.checks)),
        "failures": str(outcomes["finding"]),
        "errors": str(outcomes["error"]),
        "time": _time(report.seconds),
    }
    suites = ElementTree.Element("testsuites", {"name": "dpaudit", **counts})
    skipped = str(outcomes["advice"] + outcomes["undecided"])
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        {"name": report.title, "skipped": skipped, **counts, **_started(report)},
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    names: Counter[tuple[str, str]] = Counter()
    for check in report.checks:
        names[check.group, check.name] += 1
        _case(suite, report, check, number=names[check.group, check.name])
    ElementTree.SubElement(suite, "system-out").text = "\n".join(
        [
            headline(report, where="below"),
            *(f"Not excluded: {spot_text(spot)}" for spot in report.blind_spots),
        ]
    )
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _case(suite: ElementTree.Element, report: Report, check: Check, *, number: int) -> None:
    name = check.name if number == 1 else f"{check.name} ({number})"
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=name,
        classname=f"dpaudit.{report.kind}.{check.group}",
        time=_time(check.seconds),
    )
    message = check.effect or check.looks_at or check.name
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
        case _ if check.effect:
            ElementTree.SubElement(case, "system-out").text = _details(check)


def _details(check: Check) -> str:
    """The check's details, one per line."""
    lines = [check.effect, f"looks at: {check.looks_at}" if check.looks_at else ""]
    if check.interval is not None:
        low, high = (
            wording.quantity(x, digits=6) for x in (check.interval.low, check.interval.high)
        )
        sure = f"{wording.percent(check.interval.confidence)} confidence, {check.interval.method}"
        lines.append(f"interval: [{low}, {high}] {check.unit} ({sure})")
    if check.p is not None:
        p, adjusted = wording.p_value(check.p), wording.p_value(check.p_adjusted)
        lines.append(f"p: {p}, adjusted: {adjusted}")
    lines.append(f"cause: {check.cause}" if check.cause else "")
    lines.append(f"reproduce: {check.reproduce}" if check.reproduce else "")
    lines.append(str(check.facts.get("traceback", "")))
    return "\n".join(filter(None, lines))


def _properties(report: Report) -> dict[str, str]:
    plain = {
        "verdict": report.verdict,
        "target": report.subject,
        "claim": report.claim,
        "dpaudit": report.version,
        "seed": report.provenance.get("seed"),
        "hardware": report.provenance.get("hardware"),
        "command": report.command,
    }
    plain |= {k: v for k, v in report.facts.items() if isinstance(v, (str, int, float))}
    return {k: printable(v, limit=1000) for k, v in plain.items() if v not in (None, "")}


def _started(report: Report) -> dict[str, str]:
    started = printable(report.provenance.get("started") or "", limit=40)
    return {"timestamp": started.removesuffix("+00:00")} if started else {}


def _time(seconds: float | None) -> str:
    valid = seconds is not None and math.isfinite(seconds) and seconds >= 0
    return f"{seconds:.3f}" if valid else "0.000"
