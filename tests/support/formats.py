"""Documents for the tests of the formats: small ones, random ones, and validators."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dpaudit.report.formats.json_schema import closed, schema_text
from dpaudit.report.reading import Document, document_of
from dpaudit.types import CellResult, Provenance, to_dict
from support import attribution, census, deployments, documents, measured, mechanisms, proofs

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "tests" / "data" / "schemas"


HOSTILE = (
    documents.HOSTILE
    + " | `` ``` @everyone #12 [x](http://evil.test) www.evil.test <!-- \x00\x07 ]]> {0} \ufffe\n"
    "line :smile:"
)


def mechanism(verdict: str = "finding") -> dict[str, Any]:
    found = verdict == "finding"
    again = "dpaudit mechanism numpy:laplace:scale=0.5 --neighbours 0,1 --claim-epsilon 1"
    changes = {
        "p": 1e-9 if found else 0.4, "p_adjusted": 1e-8 if found else 0.8,
        "looks_at": "the last bits of releases",
        "effect": "5,827 of 9,985 against 0 of 10,015",
        "interval": mechanisms.bound(6.7 if found else 0.2),
        "details": {}, "reproduce": again if found else "",
    }  # fmt: skip
    tests = [
        mechanisms.line(f"low bits, {n} neighbour", finding=found) | changes
        for n in ("first", "second")
    ]
    result = mechanisms.result(
        verdict, reason="", mechanism="python:./noise.py:release", claim_epsilon=1.0,
        claim_delta=0.0,
        epsilon=changes["interval"], delta=None, mu=None, curve=[[0.0, 1.8]], samples=1000,
        samples_requested=1000,
        tests=[] if verdict == "inconclusive" else tests, advice=["ask for more releases"],
        cannot_rule_out=[],
    )  # fmt: skip
    return {"kind": "mechanism", "result": result}


def failed_experiment() -> dict[str, Any]:
    failure = {
        "cell": "b-2", "kind": "attack", "settings": {"source": {"label": "pancake"}},
        "error": "ValueError: no",
        "traceback": "Traceback …\nValueError: no", "seconds": 0.1, "provenance": {},
    }  # fmt: skip
    return documents.experiment() | {"failures": [failure]}


EVERY_KIND = (
    "experiment", "failed", "measurements", "deployment", *proofs.EVERY_KIND,
    *(f"{kind} {verdict}" for kind in ("audit", "mechanism", "attribution", "census")
      for verdict in ("no-finding", "finding", "inconclusive")),
)  # fmt: skip


def of_kind(name: str) -> dict[str, Any]:
    kind, _, verdict = name.partition(" ")
    makers = {
        "experiment": documents.experiment,
        "failed": failed_experiment,
        "measurements": measured.grid,
        "deployment": deployments.document,
        "attribution": lambda: attribution.document(verdict),
        "census": lambda: census.document(verdict),
        "audit": lambda: documents.audit(verdict),
        "mechanism": lambda: mechanism(verdict),
        "proof": lambda: proofs.proof(verdict),
        "determinism": lambda: proofs.determinism(verdict),
    }
    return makers[kind]()


def typed(name: str) -> Document:
    return document_of(of_kind(name))


def made_hostile(value: Any, *, text: str = HOSTILE) -> Any:
    return documents.made_hostile(value, text=text)


@functools.cache
def validator(cls: type | None = None, *, exactly: bool = False) -> Draft202012Validator:
    """Of dpaudit's schema, or of one class of it; ``exactly``: no field that it does not name."""
    schema = closed() if exactly else json.loads(schema_text())
    return Draft202012Validator(
        schema if cls is None else {"$ref": f"#/$defs/{cls.__name__}", "$defs": schema["$defs"]}
    )


@functools.cache
def sarif() -> Draft202012Validator:
    return Draft202012Validator(
        json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    )


# --- random documents

texts = st.text(max_size=8)
FREE = texts | st.floats(width=32) | st.none() | st.lists(st.integers(0, 9), max_size=2)
PLAIN = {
    int: st.integers(0, 10**12), float: st.floats(width=32), bool: st.booleans(), str: texts,
    type(None): st.none(),
    Any: FREE, datetime: st.datetimes(timezones=st.just(UTC)),
}  # fmt: skip


@functools.cache
def random(cls: type) -> st.SearchStrategy[Any]:
    """Random instances of a class of documents: any text, infinities and NaN where allowed."""
    hints = typing.get_type_hints(cls, include_extras=True)
    names = (
        cls.__struct_fields__
        if issubclass(cls, msgspec.Struct)
        else [f.name for f in dataclasses.fields(cls)]
    )
    left_out = {"trials"} if cls is CellResult else set()  # in the store only
    return st.builds(cls, **{name: _values(hints[name]) for name in names if name not in left_out})


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        base, rule = arguments
        if base is float:
            return _numbers(rule)
        if base is int:
            return st.integers(rule.ge, 10**12)
        return st.just({}) | random(Provenance).map(to_dict)  # the one mapping with a rule
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(_values, arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(_values, arguments))
    if origin is tuple:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(texts, _values(arguments[1]), max_size=2)
    return PLAIN[hint] if hint in PLAIN else random(hint)


def _numbers(rule: msgspec.Meta) -> st.SearchStrategy[float]:
    """Of a number's annotation: within its bounds, or one of its words."""
    if rule.gt is not None:
        return st.floats(0.001, 0.5)
    more = rule.extra_json_schema or {}
    within = st.floats(
        more.get("minimum"), more.get("maximum"), width=32, allow_nan=False, allow_infinity=False
    )
    return within | st.sampled_from([float(word) for word in more["words"]])


# --- JUnit's XSD: what its elements may have, from the file (the order of children is free)


class Xsd:
    """Of an XSD as plain as junit-10.xsd: elements with attributes, children and patterns."""

    def __init__(self, path: Path) -> None:
        self.root = ElementTree.parse(path).getroot()
        self.patterns = {
            t.get("name"): t.find(".//{*}pattern").get("value")
            for t in self.root.findall("{*}simpleType")
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
            return (
                [f"<{element.tag}> has children or attributes"]
                if len(element) or element.attrib
                else []
            )
        attributes = {
            a.get("name"): a for a in kind.findall("{*}attribute") + kind.findall(".//{*}attribute")
        }
        children = {
            c.get("ref") or c.get("name") for c in kind.iter() if c.tag.endswith("}element")
        }
        wrong = [
            f"<{element.tag} {name}> unknown" for name in element.attrib if name not in attributes
        ]
        wrong += [f"<{element.tag}> lacks {n}" for n, a in attributes.items()
                  if a.get("use") == "required" and n not in element.attrib]  # fmt: skip
        for name, value in element.attrib.items():
            pattern = (
                self.patterns.get(attributes[name].get("type")) if name in attributes else None
            )
            if pattern is not None and not re.fullmatch(pattern, value):
                wrong.append(f"<{element.tag} {name}={value!r}> does not fit {pattern}")
        wrong += [f"<{c.tag}> in <{element.tag}>" for c in element if c.tag not in children]
        if (
            kind.get("mixed") != "true"
            and kind.find(".//{*}extension") is None
            and (element.text or "").strip()
        ):
            wrong.append(f"text in <{element.tag}>")
        return wrong + [error for child in element for error in self.errors(child)]


@functools.cache
def junit() -> Xsd:
    return Xsd(SCHEMAS / "junit-10.xsd")
