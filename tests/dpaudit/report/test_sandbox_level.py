"""The sandbox level is in every output of an audit; documents without it show none."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import pytest
from rich.console import Console
from support import formats as made

from dpaudit.pytest_plugin.auditor import failure, nothing_found
from dpaudit.report import audit_table, document_of, mechanism_table, render_report
from dpaudit.report.formats import junit_xml, markdown_summary, sarif_json
from dpaudit.report.notebook import repr_html
from dpaudit.types import AuditResult, Interval, MechanismResult, Provenance

PARTIAL = "partial: no namespaces (Operation not permitted), other processes can be seen"
WITH_LEVEL = ("full", PARTIAL, "none", "not needed")
VERDICTS = ("no-finding", "finding", "inconclusive")


def document(kind, verdict, **more):
    found = made.of_kind(f"{kind} {verdict}")
    return document_of(found | {"result": found["result"] | more})


def terminal(found):
    out = io.StringIO()
    table = audit_table if found.kind == "audit" else mechanism_table
    Console(file=out, width=200).print(table(found.result))
    return out.getvalue()


def page(found):
    return made.documents.Page(render_report(found))


def junit(found):
    properties = ElementTree.fromstring(junit_xml(found).encode()).iter("property")
    return {p.get("name"): p.get("value") for p in properties}.get("sandbox")


def sarif(found):
    return json.loads(sarif_json(found))["runs"][0]["properties"].get("sandbox")


@pytest.mark.parametrize("level", WITH_LEVEL)
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("kind", ["audit", "mechanism"])
def test_every_format_says_the_level(kind, verdict, level):
    found = document(kind, verdict, sandbox=level)
    assert f"Sandbox: {level}\n" in terminal(found)
    words = page(found).text.split("Sandbox")
    assert len(words) == 2
    assert words[1].startswith(level)
    assert f" · sandbox {level} · " in markdown_summary(found)
    assert (sarif(found), junit(found)) == (level, level)
    for message in (
        failure(found.result, again="x", page=None),
        nothing_found(found.result, wanted="", again="x", page=None),
    ):
        assert f" (sandbox: {level})\n" in message


@pytest.mark.parametrize("more", [{}, {"sandbox": ""}])
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("kind", ["audit", "mechanism"])
def test_a_document_that_does_not_say_it_shows_nothing(kind, verdict, more):
    found = document(kind, verdict, **more)
    texts = [
        terminal(found),
        render_report(found).split('<dl class="glossary">')[0],
        markdown_summary(found),
        failure(found.result, again="x", page=None),
    ]
    assert not any("sandbox" in text.lower() for text in texts)
    assert sarif(found) is None
    assert junit(found) is None


@pytest.mark.parametrize("kind", ["audit", "mechanism"])
def test_what_a_level_says_is_text_and_nothing_else(kind):
    found = document(kind, "no-finding", sandbox=made.HOSTILE)
    assert "\x1b" not in terminal(found)
    assert page(found).scripts() == page(found).count("img") == 0
    assert "<script>" not in markdown_summary(found)
    assert all("\x1b" not in text for text in (sarif(found), junit(found)))


def results(level):
    provenance = Provenance(seed="1", versions={}, plugins=(), hardware="", started="")
    common = {
        "verdict": "no-finding",
        "reason": "",
        "alpha": 0.01,
        "tests": (),
        "samples": 1,
        "samples_requested": 1,
        "seconds": 1.0,
        "cannot_rule_out": (),
        "provenance": provenance,
        "sandbox": level,
    }
    interval = Interval(low=0.0, high=1.0, confidence=0.99, method="x")
    yield AuditResult(sampler="x", claim="gaussian:sigma=1", dims=(1,), **common)
    yield MechanismResult(
        mechanism="x",
        method="x",
        attack="",
        neighbours=(),
        claim_epsilon=1.0,
        claim_delta=0.0,
        claim_mu=None,
        epsilon=interval,
        delta=None,
        mu=None,
        curve=(),
        advice=(),
        **common,
    )


def test_a_notebook_says_it_too():
    for result in results(PARTIAL):
        assert f"Sandbox: {PARTIAL}" in made.documents.Page(repr_html(result)).text
    for result in results(""):
        assert "Sandbox" not in repr_html(result)
