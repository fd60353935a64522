"""The sandbox level is in every output of an audit; documents without it show none."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import pytest
from rich.console import Console
from support import formats as made

from dpaudit.report import audit_table, document_of, mechanism_table, render_report
from dpaudit.report.formats import junit_xml, markdown_summary, sarif_json


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


@pytest.mark.parametrize("kind", ["audit", "mechanism"])
def test_what_a_level_says_is_text_and_nothing_else(kind):
    found = document(kind, "no-finding", sandbox=made.HOSTILE)
    assert "\x1b" not in terminal(found)
    assert page(found).scripts() == page(found).count("img") == 0
    assert "<script>" not in markdown_summary(found)
    assert all("\x1b" not in text for text in (sarif(found), junit(found)))
