"""SARIF 2.1.0 for code scanning and editors: one run, one rule per test, one result per finding.

A finding is of level ``error``, advice a ``note``. An inconclusive audit has
``executionSuccessful: false`` and the reason in a notification: it then has no results, which does
not mean no findings. What a pass cannot exclude is in the run's ``properties``. Fingerprints depend
on the target, the claim and the test, never on numbers, so that a finding keeps its identity.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dpaudit.codec import to_dict
from dpaudit.harms import HARMS, page_of
from dpaudit.render.parts import headline, safe, spot_text
from dpaudit.report import Check, Report
from dpaudit.results.text import one_line, printable

__all__ = ["code_block", "location_of", "prose", "sarif_json"]

_FILE = re.compile(r"(file):(.+)|(library):(.+):[^:]*|(python):(.+\.py):[^:]*", re.S)


def location_of(target: str) -> dict[str, Any]:
    """The SARIF location of a sampler or mechanism: a logical one, and a physical one if in a file.

    ``file:PATH``, ``library:PATH:SYMBOL`` and ``python:PATH.py:FUNCTION`` are in a file. Its URI is
    relative to ``%SRCROOT%``, the folder that dpaudit was started in. An absolute path is a
    ``file:`` URI; one that leads out of the folder (``../``) is a name only, as SARIF permits no
    such URI.
    """
    location: dict[str, Any] = {
        "logicalLocations": [{"fullyQualifiedName": target, "kind": "module"}]
    }
    match = _FILE.fullmatch(target)
    if match is None:
        return location
    path = posixpath.normpath(next(filter(None, match.groups()[1::2])))
    if path == ".." or path.startswith("../"):
        return location
    if path.startswith("/"):
        artifact = {"uri": "file://" + quote("/" + path.lstrip("/"))}
    else:
        artifact = {"uri": quote(path), "uriBaseId": "%SRCROOT%"}
    region = {"region": {"startLine": 1}} if path.endswith(".py") else {}
    return {"physicalLocation": {"artifactLocation": artifact, **region}, **location}


_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {"finding": "error", "advice": "note"}
_EXITS = {
    "no-finding": (0, "no finding"),
    "finding": (1, "a finding"),
    "inconclusive": (3, "inconclusive"),
}
_MOST_RESULTS = 1000
_NO_VERDICT = {"cells", "published"}
"""Groups of checks of a run, whose command exits with 0 or 3, whatever was measured."""

Json = dict[str, Any]


def sarif_json(report: Report) -> str:
    """The report as SARIF 2.1.0, indented JSON in ASCII; deterministic."""
    return json.dumps(_log(safe(report)), indent=2, allow_nan=False) + "\n"


def _log(report: Report) -> Json:
    rules = _rules(report)
    places = {rule["id"]: i for i, rule in enumerate(rules)}
    listed = [check for check in report.checks if check.outcome in _LEVELS]
    version = {"version": report.version} if report.version else {}
    run = {
        "tool": {"driver": {"name": "dpaudit", **version, "rules": rules}},
        "automationDetails": {"id": f"dpaudit/{report.kind}/{_slug(report.subject)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [_result(report, check, places) for check in listed[:_MOST_RESULTS]],
        "properties": _about(report)
        | ({"resultsLeftOut": omitted} if (omitted := len(listed) - _MOST_RESULTS) > 0 else {}),
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rules(report: Report) -> list[Json]:
    """One rule for each test that was run, with or without a finding."""
    rules: dict[str, Json] = {}
    for check in report.checks:
        advisory = check.outcome == "advice" or bool(check.facts.get("advisory"))
        about = check.looks_at or _GROUPS.get(check.group, check.group)
        name, of = _rule(report, check), check.name if check.group == "tests" else check.group
        rule = {
            "id": name,
            "shortDescription": _message(f"{of}: {about}"),
            "fullDescription": _message(f"{about}. {_means(check, advisory=advisory)}"),
            "help": _help(check),
            "defaultConfiguration": {"level": "note" if advisory else "error"},
        }
        rules.setdefault(name, rule)
    return list(rules.values())


_GROUPS = {
    "tests": "a test of the battery",
    "verdict": "the audit as a whole",
    "advice": "what the auditor should know",
    "cells": "a cell of the experiment",
    "published": "our number compared with the published one",
    "findings": "the deployment's own files",
    "proof": "the exact law of the program's text",
    "coins": "values as a function of chosen coins",
}
_MEANS = {
    "tests": "A result means that the claim is contradicted, at a level that all tests share.",
    "advice": "A result is advice: it uses no error probability and is never a finding.",
    "exact": "A result means that the claim is refuted, without any probability of error.",
}
_HELP = (
    "Run the command in the result to reproduce it. No result does not mean honest noise: what a "
    "pass cannot exclude is in the run's properties."
)


def _help(check: Check) -> Json:
    """What a finding means and what to do: the test's page, or the harm that it declares."""
    page, harm = page_of(check.topic), HARMS.get(check.harm)
    parts: list[str] = []
    if page is not None:
        about = dict(page.sections)
        parts = [page.summary, *filter(None, (about.get(name) for name in _IN_HELP))]
        parts.append(f"More: `dpaudit explain {page.name}`.")
    elif harm is not None and harm.harm:
        parts = [f"{harm.heading}: {harm.harm}.", harm.todo]
    text = "\n\n".join([*parts, _HELP])
    return _message(printable(text, limit=10_000), markdown=text if parts else "")


_IN_HELP = ("What a finding means", "Typical causes", "What to do")


def _means(check: Check, *, advisory: bool) -> str:
    exact = check.p is None and check.group in ("proof", "coins")
    return _MEANS["advice" if advisory else "exact" if exact else "tests"]


def _result(report: Report, check: Check, places: Mapping[str, int]) -> Json:
    rule = _rule(report, check)
    message = f"{report.subject}: {check.effect or check.looks_at or check.name}"
    cause = f"Likely cause: {check.cause}." if check.cause else ""
    lines = [message, cause, f"To see it again: {check.reproduce}" if check.reproduce else ""]
    markdown = [
        prose(message),
        prose(cause),
        code_block(check.reproduce) if check.reproduce else "",
    ]
    bounds = {n: report.facts[n] for n in ("epsilon", "delta", "mu") if n in report.facts}
    return {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "level": _LEVELS[check.outcome],
        "message": _message(
            "\n".join(filter(None, lines)), markdown="\n\n".join(filter(None, markdown))
        ),
        "locations": [location_of(report.subject)],
        "partialFingerprints": {"dpaudit/v1": _fingerprint(report, check)},
        "properties": {
            "test": check.name,
            "effect": check.effect,
            "reproduce": check.reproduce,
            **_numbers(check),
            **({"epsilonBounds": bounds} if "epsilon" in bounds else {}),
        },
    }


def _numbers(check: Check) -> Json:
    """What the check measured, by name; what it does not have is left out."""
    names = ("p", "p_adjusted", "statistic", "interval", "unit", "cause")
    numbers = {name: to_dict(getattr(check, name)) for name in names} | dict(check.facts)
    left_out = ("advisory", "traceback")
    return {
        _camel(name): value
        for name, value in numbers.items()
        if value not in (None, "") and name not in left_out
    }


def _fingerprint(report: Report, check: Check) -> str:
    """A hash of what was found, not of its size; of advice, whose names repeat, also its text."""
    parts = [report.kind, report.subject, report.claim, check.group, check.name]
    parts += [check.effect] if check.group in ("advice", "findings") else []
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _invocation(report: Report) -> Json:
    went_wrong = [check for check in report.checks if check.outcome == "error"]
    invocation: Json = {"executionSuccessful": report.verdict != "inconclusive" and not went_wrong}
    if not any(check.group in _NO_VERDICT for check in report.checks):
        code, meaning = _EXITS[report.verdict]
        invocation |= {"exitCode": code, "exitCodeDescription": meaning}
    if report.command:
        invocation["commandLine"] = report.command
    if started := _utc(report.provenance.get("started")):
        invocation["startTimeUtc"] = started
    if went_wrong:
        invocation["toolExecutionNotifications"] = [
            {
                "level": "error",
                "message": _message(f"{c.name}: {c.effect}" if c.group == "cells" else c.effect),
            }
            for c in went_wrong[:_MOST_RESULTS]
        ]
    return invocation


def _about(report: Report) -> Json:
    about: Json = {
        "verdict": report.verdict,
        "sentence": headline(report, where="below"),
        "claim": report.claim,
        "blindSpots": [spot_text(spot) for spot in report.blind_spots],
        **{_camel(name): value for name, value in report.facts.items()},
    }
    return {name: value for name, value in about.items() if value not in ("", None)}


def _message(text: str, *, markdown: str = "") -> Json:
    """A message with braces doubled (§3.11.5) and brackets escaped, so it has no link (§3.11.6)."""
    plain = re.sub(r"([\[\]\\])", r"\\\1", _braced(text)) if _LINK.search(text) else _braced(text)
    return {"text": plain or "-"} | ({"markdown": _braced(markdown)} if markdown else {})


_LINK = re.compile(r"\]\s*\(")

_WORD_JOINER = "\u2060"
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~$@&]|:(?=//|[\w+-]+:)|^[-+=]")


def prose(text: object, *, limit: int = 400) -> str:
    """Text as a line of Markdown that renders as exactly that text.

    Text from a sampler stays text: its punctuation becomes entities, so that it is no markup,
    HTML, table or link, and names and numbers after ``@`` and ``#`` are no mentions.

    >>> prose("a|b <i>*c*</i>")
    'a&#124;b &#60;i&#62;&#42;c&#42;&#60;/i&#62;'
    """
    line = one_line(text, limit=limit)
    line = re.sub(r"(?<=[@#])(?=\w)|(?<=://)|(?<=\bwww\.)", _WORD_JOINER, line, flags=re.I)
    line = _MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", line)
    return re.sub(r"^(\d{1,9})([.)])(?=\s|$)", lambda start: f"{start[1]}&#{ord(start[2])};", line)


def code_block(text: str) -> str:
    """Text as a fenced block; the fence is longer than any run of backticks in it."""
    code = printable(text, limit=14_000)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", code)), default=0))
    return f"{fence}sh\n{code}\n{fence}"


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _rule(report: Report, check: Check) -> str:
    named = f"/{_slug(check.name)}" if check.group == "tests" else ""
    return f"{report.kind}/{check.group}{named}"


def _slug(text: str) -> str:
    """Lower-case letters, digits and hyphens; a hash is added if other characters were dropped."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
    if re.fullmatch(r"[a-z0-9]+([-, ]+[a-z0-9]+)*", text.lower()) and len(text) <= 60:
        return slug
    return f"{slug or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _utc(value: object) -> str | None:
    """The time in UTC as SARIF writes it; None if it is not a time with a zone."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    if moment.tzinfo is None or len(str(value)) < len("2026-01-01T00:00"):
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
