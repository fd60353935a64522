"""An ε audit's page and terminal table."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import pytest
from rich.console import Console

from dpaudit.report import mechanism_sentence, mechanism_table, render_report

spec = importlib.util.spec_from_file_location("report_documents", Path(__file__).with_name("documents.py"))
documents = importlib.util.module_from_spec(spec)
spec.loader.exec_module(documents)


def line(name, *, finding=False, advisory=False):
    return {
        "name": name,
        "p": 1e-9 if finding else 0.4,
        "p_adjusted": 4e-9 if finding else 1.0,
        "statistic": 1.4567,
        "looks_at": "values",
        "effect": "x ≥ 1: 500 of 1,000 against 100 of 1,000",
        "finding": finding,
        "advisory": advisory,
        "interval": {"low": 1.4567, "high": "inf", "confidence": 0.9975, "method": "Clopper-Pearson"},
        "unit": "ε",
        "details": {"statistic": "x", "intervals": [["-inf", 1.0000000000000002], [3.0, "inf"]]},
    }


def result(verdict, *, mu=None, name="event, second neighbour over first", **changes):
    spot = {"test": "events", "flaw": "how large ε really is", "size": None, "unit": "", "says": "at most 9.7"}
    bound = {"low": 1.4567, "high": "inf", "confidence": 0.99, "method": "Clopper-Pearson"}
    return {
        "verdict": verdict,
        "reason": "it hung" if verdict == "inconclusive" else "",
        "mechanism": "vendor:laplace",
        "method": "two neighbours",
        "neighbours": [[0.0], [1.0]],
        "claim_epsilon": 1.0 if verdict == "finding" else 2.0,
        "claim_delta": 1e-5,
        "claim_mu": mu,
        "alpha": 0.01,
        "epsilon": bound,
        "delta": {**bound, "low": 0.0},
        "mu": bound,
        "curve": [[10.0**-k, 1.4 - 0.1 * (8 - k)] for k in range(8, 0, -1)],
        "tests": [line(name, finding=verdict == "finding")] if verdict != "inconclusive" else [],
        "samples": 400_000,
        "samples_requested": 400_000,
        "seconds": 1.5,
        "advice": ["The noise depends on the value."],
        "cannot_rule_out": [spot] if verdict == "no-finding" else [],
        "provenance": documents.provenance(),
    } | changes


def one_run():
    return result(
        "no-finding", method="one run", neighbours=[], curve=[], delta=None, samples=500, samples_requested=500
    )


ALL = {v: result(v) for v in ("finding", "no-finding", "inconclusive")} | {"one run": one_run()}


def text(document, width=100):
    out = io.StringIO()
    Console(file=out, width=width).print(mechanism_table(document))
    return out.getvalue()


@pytest.mark.parametrize("name", ALL)
def test_page(name):
    html = render_report({"kind": "mechanism", "result": ALL[name]})
    page = documents.Page(html)
    assert page.ordered
    assert page.open == []
    assert mechanism_sentence(ALL[name]) in page.text
    assert page.count("svg") == (0 if name in {"one run", "inconclusive"} else 1)
    assert render_report({"kind": "mechanism", "result": ALL[name]}) == html


def test_page_says_claimed_against_shown_and_the_events_exactly():
    page = documents.Page(render_report({"kind": "mechanism", "result": ALL["finding"]}))
    assert "1 at δ = 1e-10" not in page.text
    assert "1 at δ = 1e-05" in page.text
    assert "≥ 1.45" in page.text  # a lower bound is rounded down
    assert "[−∞, 1.0000000000000002)" in page.text
    assert "[3, ∞)" in page.text


def test_sentences():
    assert mechanism_sentence(ALL["finding"]) == (
        "Finding: vendor:laplace is not (1, 1e-05)-DP: shown is ε ≥ 1.45 at δ = 1e-05 (99 % confidence)."
    )
    assert "by the last bits" in mechanism_sentence(result("finding", name="low bits, first neighbour over second"))
    assert "both (2, 1e-05)-DP and 3-GDP" in mechanism_sentence(result("no-finding", mu=3.0))
    assert "it hung" in mechanism_sentence(ALL["inconclusive"])
    nothing = result("no-finding", epsilon={"low": 0.0, "high": "inf"})
    assert "ε ≥ 0 (nothing)" in mechanism_sentence(nothing)


def test_terminal():
    passed, found = text(ALL["no-finding"]), text(ALL["finding"])
    assert passed.startswith("No finding: shown is ε ≥ 1.45")
    assert "What a pass cannot exclude" in passed
    assert "What a pass cannot exclude" not in found
    assert "The noise depends on the value." in found


def test_hostile_text_is_harmless():
    hostile = documents.made_hostile({"kind": "mechanism", "result": ALL["finding"]})
    page = documents.Page(render_report(hostile))
    assert page.scripts() == page.count("img") == 0
    assert "\x1b" not in text(hostile["result"])
