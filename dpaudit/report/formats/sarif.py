"""SARIF 2.1.0 for code scanning and editors: one run, one rule per test, one result per finding.

A finding is of level ``error``, advice a ``note``. An inconclusive audit has
``executionSuccessful: false`` and the reason in a notification: it then has no results, which does
not mean no findings. What a pass cannot exclude is in the run's ``properties``. Fingerprints depend
on the target, the claim and the test, never on numbers, so that a finding keeps its identity.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dpaudit.report.formats.checks import Check, Checked, checked
from dpaudit.report.formats.locations import location_of
from dpaudit.report.formats.markdown import code_block, prose
from dpaudit.report.reading import Document

__all__ = ["sarif_json"]

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {"finding": "error", "advice": "note"}
_EXITS = {
    "no-finding": (0, "no finding"),
    "finding": (1, "a finding"),
    "inconclusive": (3, "inconclusive"),
}
_WITH_EXIT = (
    "audit", "mechanism", "deployment", "attribution", "census", "proof", "determinism",
)  # fmt: skip
_MOST_RESULTS = 1000

Json = dict[str, Any]


def sarif_json(document: Document) -> str:
    """The document as SARIF 2.1.0, indented JSON in ASCII; deterministic."""
    return json.dumps(_log(checked(document)), indent=2, allow_nan=False) + "\n"


def _log(told: Checked) -> Json:
    rules = _rules(told)
    places = {rule["id"]: i for i, rule in enumerate(rules)}
    shown = [check for check in told.checks if check.outcome in _LEVELS]
    run = {
        "tool": {"driver": _driver(told) | {"rules": rules}},
        "automationDetails": {"id": f"dpaudit/{told.kind}/{_slug(told.target)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(told)],
        "results": [_result(told, check, places) for check in shown[:_MOST_RESULTS]],
        "properties": _about(told)
        | ({"resultsLeftOut": left} if (left := len(shown) - _MOST_RESULTS) > 0 else {}),
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _driver(told: Checked) -> Json:
    return {"name": "dpaudit"} | ({"version": told.version} if told.version else {})


def _rules(told: Checked) -> list[Json]:
    """One rule for each test that was run, with or without a finding."""
    rules: dict[str, Json] = {}
    for check in told.checks:
        advisory = check.outcome == "advice" or bool(check.facts.get("advisory"))
        about = check.looks_at or _GROUPS[check.group]
        name, of = _rule(told, check), check.name if check.group == "tests" else check.group
        rule = {
            "id": name,
            "shortDescription": _message(f"{of}: {about}"),
            "fullDescription": _message(f"{about}. {_means(told, advisory=advisory)}"),
            "help": _message(_HELP[told.kind]),
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
    "finding": "A result means that the claim is contradicted, at a level that all tests share.",
    "advice": "A result is advice: it uses no error probability and is never a finding.",
}
_EXACT = "A result means that the claim is refuted, without any probability of error."
_CLEAN = (
    "No result does not mean honest noise: what a pass cannot exclude is in the run's properties."
)
_HELP = {
    "audit": "Run the command in the result to reproduce it. Do not ship noise from a sampler with "
    f"a finding. {_CLEAN}",
    "mechanism": "The lower bound for ε holds with the stated confidence; run the command in the "
    f"result to reproduce it. {_CLEAN}",
    "experiment": "A cell of an experiment.",
    "measurements": "A measured number that disagrees with the published one, at the experiment's "
    "level.",
    "deployment": "From the configuration, the database or the reports themselves.",
    "attribution": f"From recorded reports, at a level that all tests share. {_CLEAN}",
    "census": f"From noisy measurements, at a level that all tests share. {_CLEAN}",
    "proof": "A refutation has no error probability: Python itself returned the output in question "
    "on the coins of the counterexample. What a proof does not cover is in the run's properties.",
    "determinism": f"Two runs whose coins are the same where they should matter differ. {_CLEAN}",
}


def _means(told: Checked, *, advisory: bool) -> str:
    if told.kind in ("proof", "determinism"):
        return _EXACT
    return _MEANS["advice" if advisory else "finding"]


def _result(told: Checked, check: Check, places: Mapping[str, int]) -> Json:
    rule = _rule(told, check)
    said = f"{told.target}: {check.message or check.looks_at or check.name}"
    lines = [said, f"To see it again: {check.reproduce}" if check.reproduce else ""]
    markdown = [prose(said), code_block(check.reproduce) if check.reproduce else ""]
    return {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "level": _LEVELS[check.outcome],
        "message": _message(
            "\n".join(filter(None, lines)), markdown="\n\n".join(filter(None, markdown))
        ),
        "locations": [location_of(told.target)],
        "partialFingerprints": {"dpaudit/v1": _fingerprint(told, check)},
        "properties": {
            "test": check.name,
            "effect": check.message,
            "reproduce": check.reproduce,
            **{_camel(name): value for name, value in check.facts.items() if name != "advisory"},
            **({"epsilonBounds": _bounds(told)} if told.kind == "mechanism" else {}),
        },
    }


def _fingerprint(told: Checked, check: Check) -> str:
    """A hash of what was found, not of its size; of advice, whose names repeat, also its text."""
    parts = [told.kind, told.target, told.claim, check.group, check.name]
    parts += [check.message] if check.group in ("advice", "findings") else []
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _invocation(told: Checked) -> Json:
    went_wrong = [check for check in told.checks if check.outcome == "error"]
    invocation: Json = {"executionSuccessful": told.verdict != "inconclusive" and not went_wrong}
    if told.kind in _WITH_EXIT:
        code, meaning = _EXITS[told.verdict]
        invocation |= {"exitCode": code, "exitCodeDescription": meaning}
    if told.command:
        invocation["commandLine"] = told.command
    if started := _utc(told.provenance.get("started")):
        invocation["startTimeUtc"] = started
    if went_wrong:
        invocation["toolExecutionNotifications"] = [
            {
                "level": "error",
                "message": _message(f"{c.name}: {c.message}" if c.group == "cells" else c.message),
            }
            for c in went_wrong[:_MOST_RESULTS]
        ]
    return invocation


def _about(told: Checked) -> Json:
    about: Json = {
        "verdict": told.verdict,
        "sentence": told.sentence,
        "claim": told.claim,
        "blindSpots": list(told.blind_spots),
        **{_camel(name): value for name, value in told.facts.items()},
    }
    return {name: value for name, value in about.items() if value not in ("", None)}


def _bounds(told: Checked) -> Json:
    return {name: told.facts[name] for name in ("epsilon", "delta", "mu") if name in told.facts}


def _message(text: str, *, markdown: str = "") -> Json:
    """A message with braces doubled (§3.11.5) and brackets escaped, so it has no link (§3.11.6)."""
    plain = re.sub(r"([\[\]\\])", r"\\\1", _braced(text)) if _LINK.search(text) else _braced(text)
    return {"text": plain or "-"} | ({"markdown": _braced(markdown)} if markdown else {})


_LINK = re.compile(r"\]\s*\(")


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _rule(told: Checked, check: Check) -> str:
    named = f"/{_slug(check.name)}" if check.group == "tests" else ""
    return f"{told.kind}/{check.group}{named}"


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
