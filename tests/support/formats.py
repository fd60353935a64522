"""Documents for the tests of the formats: small ones of every kind, random ones from the dataclasses, and two validators."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dpaudit.report.formats.schema_of import closed
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dpaudit.report.formats import schema_text
from dpaudit.types import AuditResult, MechanismResult, to_dict
from support import documents, measured

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "tests" / "data" / "schemas"


HOSTILE = (
    documents.HOSTILE
    + " | `` ``` @everyone #12 [x](http://evil.test) www.evil.test <!-- \x00\x07 ]]> {0} \ufffe\nline :smile:"
)


def deployment() -> dict[str, Any]:
    return {
        "kind": "deployment",
        "system": "apple",
        "verdict": "finding",
        "configuration": {"folder": "f", "keys": 1, "properties": 1, "budgets": 1},
        "ledger": {"permitted": {"per_day": 16, "over_days": 480}},
        "against": None,
        "differences": None,
        "database": None,
        "observed": None,
        "shown": [],
        "findings": [
            {"where": "Search", "message": "ε is negative", "serious": True},
            {"where": "Search", "message": "an odd key", "serious": False},
        ],
        "provenance": documents.provenance(),
    }


def mechanism(verdict: str = "finding") -> dict[str, Any]:
    found = verdict == "finding"
    bound = {"low": 6.7 if found else 0.2, "high": "inf", "confidence": 0.99, "method": "Clopper-Pearson"}
    tests = [
        {
            "name": f"low bits, {which} neighbour",
            "p": 1e-9 if found else 0.4,
            "p_adjusted": 1e-8 if found else 0.8,
            "statistic": 6.7,
            "looks_at": "the last bits of releases",
            "effect": "5,827 of 9,985 against 0 of 10,015",
            "finding": found,
            "parts": {},
            "advisory": False,
            "interval": bound,
            "unit": "ε",
            "details": {},
            "seen_after": None,
            "reproduce": "dpaudit mechanism numpy:laplace:scale=0.5 --neighbours 0,1 --claim-epsilon 1"
            if found
            else "",
        }
        for which in ("first", "second")
        if verdict != "inconclusive"
    ]
    return {
        "kind": "mechanism",
        "result": {
            "verdict": verdict,
            "reason": "",
            "mechanism": "python:./noise.py:release",
            "method": "two neighbours",
            "attack": "",
            "neighbours": [[0.0], [1.0]],
            "claim_epsilon": 1.0,
            "claim_delta": 0.0,
            "claim_mu": None,
            "alpha": 0.01,
            "epsilon": bound,
            "delta": None,
            "mu": None,
            "curve": [[0.0, 1.8]],
            "tests": tests,
            "samples": 1000,
            "samples_requested": 1000,
            "seconds": 0.5,
            "advice": ["ask for more releases"],
            "cannot_rule_out": [],
            "power": [],
            "details": {},
            "provenance": documents.provenance(),
        },
    }


def failed_experiment() -> dict[str, Any]:
    failure = {
        "cell": "b-2", "kind": "attack", "settings": {"source": {"label": "pancake"}}, "error": "ValueError: no",
        "traceback": "Traceback …\nValueError: no", "seconds": 0.1, "provenance": {},
    }  # fmt: skip
    return with_cells(documents.experiment()) | {"failures": [failure]}


def with_cells(document: dict[str, Any]) -> dict[str, Any]:
    """Its cells as a store gives them, with provenance of their own."""
    return document | {"cells": [{"provenance": {}} | cell for cell in document["cells"]]}


EVERY_KIND = (
    "experiment", "failed", "measurements", "deployment",
    *(f"{kind} {verdict}" for kind in ("audit", "mechanism") for verdict in ("no-finding", "finding", "inconclusive")),
)  # fmt: skip


def of_kind(name: str) -> dict[str, Any]:
    kind, _, verdict = name.partition(" ")
    makers = {
        "experiment": lambda: with_cells(documents.experiment()),
        "failed": failed_experiment,
        "measurements": lambda: with_cells(measured.grid()),
        "deployment": deployment,
        "audit": lambda: documents.audit(verdict),
        "mechanism": lambda: mechanism(verdict),
    }
    return makers[kind]()


def every_kind() -> dict[str, dict[str, Any]]:
    return {name: of_kind(name) for name in EVERY_KIND}


def made_hostile(value: Any, *, text: str = HOSTILE) -> Any:
    """Every text that dpaudit does not itself choose is hostile."""
    chosen = {"kind", "verdict", "format", "key", "x", "y", "series", "published", "panels", "schema"}
    if isinstance(value, dict):
        return {k: v if k in chosen else made_hostile(v, text=text) for k, v in value.items()}
    if isinstance(value, list):
        return [made_hostile(v, text=text) for v in value]
    return text if isinstance(value, str) and value not in ("inf", "-inf", "nan") else value


@functools.cache
def validator(name: str | None = None, *, exactly: bool = False) -> Draft202012Validator:
    """Of dpaudit's own schema, or of one of its definitions; ``exactly``: with no field that it does not name."""
    schema = json.loads(schema_text())
    schema = closed(schema) if exactly else schema
    return Draft202012Validator(schema if name is None else {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})


@functools.cache
def sarif() -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8")))


# --- random results

SHARES = {"p", "p_adjusted", "confidence", "claim_delta", "found_low", "found_high"}
NOT_NEGATIVE = {"seconds", "claim_epsilon", "claim_mu"}
numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
texts = st.text(max_size=8)


@functools.cache
def results(cls: type) -> st.SearchStrategy[Any]:
    """Random instances of a result: any text, infinities and NaN where a number may be that."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{f.name: _values(hints[f.name], f.name) for f in dataclasses.fields(cls)})


def _values(hint: Any, name: str) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return results(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(_values(part, name) for part in arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*(_values(part, "") for part in arguments))
    if origin is tuple:
        return st.lists(_values(arguments[0], ""), max_size=2).map(tuple)
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return st.dictionaries(texts, _values(arguments[1], ""), max_size=2)
    if hint is float:
        if name == "alpha":
            return st.floats(0.001, 0.5)
        if name in SHARES:
            return st.floats(0, 1) | st.just(math.nan)
        return st.floats(0, 1e9) | st.just(math.inf) if name in NOT_NEGATIVE else numbers
    plain = {int: st.integers(0, 10**12), bool: st.booleans(), str: texts, type(None): st.none(), Any: texts | numbers}
    return plain[hint]


def reports() -> st.SearchStrategy[dict[str, Any]]:
    """Random documents of audits, as files have them."""
    audits = results(AuditResult).map(lambda r: {"kind": "audit", "result": to_dict(r)})
    return audits | results(MechanismResult).map(lambda r: {"kind": "mechanism", "result": to_dict(r)})


# --- JUnit's XSD: what its elements may have, read from the file (the order of children is free there)


class Xsd:
    """Of an XSD as plain as junit-10.xsd: elements with attributes, their children by name, patterns of simple types."""

    def __init__(self, path: Path) -> None:
        self.root = ElementTree.parse(path).getroot()
        self.patterns = {
            t.get("name"): t.find(".//{*}pattern").get("value") for t in self.root.findall("{*}simpleType")
        }
        self.types = {t.get("name"): t for t in self.root.findall("{*}complexType")}
        self.elements = {e.get("name"): e for e in self.root.findall("{*}element")}

    def errors(self, element: ElementTree.Element) -> list[str]:
        if element.tag not in self.elements:
            return [f"<{element.tag}> is not known"]
        found = self.elements[element.tag]
        kind = found.find("{*}complexType")
        kind = kind if kind is not None else self.types.get(found.get("type"))
        if kind is None:
            return [f"<{element.tag}> has children or attributes"] if len(element) or element.attrib else []
        attributes = {a.get("name"): a for a in kind.findall("{*}attribute") + kind.findall(".//{*}attribute")}
        children = {c.get("ref") or c.get("name") for c in kind.iter() if c.tag.endswith("}element")}
        wrong = [f"<{element.tag} {name}> unknown" for name in element.attrib if name not in attributes]
        wrong += [f"<{element.tag}> lacks {n}" for n, a in attributes.items()
                  if a.get("use") == "required" and n not in element.attrib]  # fmt: skip
        for name, value in element.attrib.items():
            pattern = self.patterns.get(attributes[name].get("type")) if name in attributes else None
            if pattern is not None and not re.fullmatch(pattern, value):
                wrong.append(f"<{element.tag} {name}={value!r}> does not fit {pattern}")
        wrong += [f"<{c.tag}> in <{element.tag}>" for c in element if c.tag not in children]
        if kind.get("mixed") != "true" and kind.find(".//{*}extension") is None and (element.text or "").strip():
            wrong.append(f"text in <{element.tag}>")
        return wrong + [error for child in element for error in self.errors(child)]


@functools.cache
def junit() -> Xsd:
    return Xsd(SCHEMAS / "junit-10.xsd")
