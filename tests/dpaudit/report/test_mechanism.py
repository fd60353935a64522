"""An ε audit's page and terminal table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from support import documents
from support.mechanisms import ALL, bound, result

from dpaudit.report import document_of, mechanism_sentence, mechanism_table, render_report
from dpaudit.report.formats import markdown_summary


def typed(result):
    return document_of({"kind": "mechanism", "result": result}).result


def text(result, width=100):
    out = io.StringIO()
    Console(file=out, width=width).print(mechanism_table(typed(result)))
    return out.getvalue()


def test_page_says_claimed_against_shown_and_the_events_exactly():
    page = documents.Page(render_report({"kind": "mechanism", "result": ALL["finding"]}))
    assert "1 at δ = 1e-10" not in page.text
    assert "1 at δ = 1e-05" in page.text
    assert "≥ 1.45" in page.text  # a lower bound is rounded down
    assert "[−∞, 1.0000000000000002)" in page.text
    assert "[3, ∞)" in page.text


def test_hostile_text_is_harmless():
    hostile = documents.made_hostile({"kind": "mechanism", "result": ALL["finding"]})
    page = documents.Page(render_report(hostile))
    assert page.scripts() == page.count("img") == 0
    assert "\x1b" not in text(hostile["result"])


def test_a_pass_without_the_last_bits_says_so():
    said = "No finding (last bits excluded)"
    bits = ALL["no-finding"]["tests"][0] | {"name": "low bits, first neighbour", "advisory": True}
    for changes in ({"details": {"last_bits_excluded": True}}, {"tests": [bits]}):
        excluded = result("no-finding", **changes)
        document = {"kind": "mechanism", "result": excluded}
        assert mechanism_sentence(typed(excluded)).startswith(f"{said}: we can show ")
        html = render_report(document)
        assert f"</span>{said}</strong>" in html
        assert html.count(said) == 1
        assert f"**{said}:** we can show" in markdown_summary(document_of(document))
    told = mechanism_sentence(typed(result("finding", details={"last_bits_excluded": True})))
    assert "excluded" not in told


@pytest.mark.slow
def test_what_the_trade_off_curve_alone_shows_is_labelled():
    curve = bound(0.0) | {"method": "trade-off curve, Clopper-Pearson"}
    for delta, says in ((curve, True), (bound(0.0), False)):
        document = {"kind": "mechanism", "result": result("finding") | {"delta": delta}}
        text = documents.Page(render_report(document)).text
        assert ("shown at the claimed ε, by the trade-off curve" in text) == says
