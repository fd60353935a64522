"""A deployment's page: what it says, what it escapes, and that half a document still makes a page."""

from __future__ import annotations

import importlib.util
import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from dpaudit.report import render_report
from dpaudit.report.formats.checks import checked

spec = importlib.util.spec_from_file_location("report_documents", Path(__file__).with_name("documents.py"))
documents = importlib.util.module_from_spec(spec)
spec.loader.exec_module(documents)
Page = documents.Page


def spent(budget, records, claimed, high="inf"):
    return {"budget": budget, "records": records, "claimed": claimed, "shown_low": claimed, "shown_high": high}


def shown(key, verdict, low, high, *claims):
    interval = {"low": low, "high": high, "confidence": 0.99, "method": "exact"}
    return {
        "key": key,
        "algorithm": "CountMedianSketch",
        "claims": [{"by": by, "epsilon": e} for by, e in zip(("configuration", "report"), claims, strict=False)],
        "records": 10,
        "used": 5,
        "flip": {**interval, "low": 0.093, "high": 0.1416},
        "sketch": interval,
        "record": interval if verdict != "not identified" else None,
        "verdict": verdict,
        "reason": "5 vectors of 256 bits",
        "checks": [{"name": "copies", "p": 0.4, "says": "none"}],
        "findings": [],
    }


def document():
    loss = {"per_record": 2.0, "per_day": 4.0, "over_days": 120.0}
    total = {"budgets": ["a"], "per_day": 16.0, "over_days": 480.0, "coin_per_day": 38.0, "coin_over_days": 1140.0}
    days = [
        {
            "date": (date(2017, 5, 1) + timedelta(days=2 * i)).isoformat(),
            "budgets": [spent("com.apple.keyboard.NewWords", 2, 4.0), spent(f"budget {i}", 1, 1.0)],
            "total": spent("", 3, 5.0 + i),
        }
        for i in range(9)
    ]
    return {
        "kind": "deployment",
        "system": "apple",
        "verdict": "finding",
        "configuration": {"folder": "somewhere"},
        "ledger": {
            "days": 30,
            "lines": [
                {
                    "budget": "com.apple.keyboard.NewWords",
                    "application": "New words",
                    "keys": 94,
                    "records_per_day": 2.0,
                    "claimed": loss,
                    "coin": None,
                }
            ],
            "permitted": total | {"name": "initially announced applications"},
            "platforms": [total | {"name": "macOS", "per_day": 6.0}],
            "configured": total | {"name": "everything configured", "per_day": 21.3},
        },
        "observed": {
            "reports": 9,
            "undated": 0,
            "days": days,
            "busiest": days[-1],
            "span": 17,
            "budgets": [spent("com.apple.keyboard.NewWords", 18, 36.0)],
            "total": spent("", 27, 45.0, 99.0),
            "per_day": 2.6,
            "says": "2.6 a day as claimed; which is arithmetic and no forecast.",
        },
        "shown": [
            shown("com.apple.lookup.DomainMatch", "agrees", 0.6, 3.4, 1.0),
            shown("com.apple.parsec.Nothing", "not identified", 0, 0, 1.0),
            shown("com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard", "shows more", 3.604, "inf", 1.0, 2.0),
        ],
        "differences": [
            {
                "what": "?",
                "table": "PropertiesName",
                "name": "NewWords",
                "field": "Amount",
                "old": "1",
                "new": "2",
                "note": "",
            }
        ],
        "against": {"effect": "The ε permitted in a day rises from 14 to 16 (+2)."},
        "database": {
            "balances": [{"key": "com.apple.health", "balance": -3, "created": "2017-05-01", "updated": "2017-05-02"}]
        },
        "findings": [
            {"where": "b", "message": "a remark", "serious": False},
            {"where": "a", "message": "against the user", "serious": True},
        ],
        "provenance": documents.provenance(),
    }


@pytest.fixture(scope="module")
def html():
    return render_report(document())


def test_the_page(html):
    page = Page(html)
    assert page.ordered
    assert page.open == []
    text = " ".join(page.text.split())
    for words in (
        "Deployment of Apple, configured by somewhere",
        "Finding: the configuration permits ε = 16 a day, and a finding is against the user; the bits of "
        "com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard show ε ≥ 3.6 a record, where 1 is claimed.",
        "of that, seen to work on macOS",
        "45 … 99",
        "configuration 1 report 2",
        "0.0930 … 0.1416",
        "copies: p = 0.400",
        "no forecast",
        "rises from 14 to 16",
        "Amount for NewWords",
        "-3",
    ):
        assert words in text
    assert html.index(">against the user<") < html.index(">a remark<")


def test_the_worst_comes_first(html):
    text = Page(html).text
    at = [text.index(word, text.index("It rests on")) for word in ("shows more", "not identified", "agrees")]
    assert at == sorted(at)


def test_figures_have_alt_text_and_ids_of_their_own(html):
    page = Page(html)
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(plots) == 2
    assert "claimed 1 and 2, shown ≥ 3.6" in plots[0]["aria-label"]
    assert "9 days from 2017-05-01 to 2017-05-17, together 45" in plots[1]["aria-label"]
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_the_same_document_makes_the_same_page(html):
    assert render_report(document()) == html


def test_strangers_text_is_escaped_everywhere(html):
    hostile = Page(render_report(documents.made_hostile(document()) | {"sentence": None}))
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in Page(html).tags}
    assert not any(a.startswith("on") for _, attributes in hostile.tags for a in attributes)
    assert hostile.text.count("<script>alert(1)</script>") > 20
    for character in "\x1b\u202e\udcff":
        assert character not in hostile.text
    assert hostile.ordered


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "\x1b[2J\u202e\x00", "]]>--><svg onload=a()>", "a" * 5000, ""]
)
def test_hostile_keys_in_figures(name):
    changed = document()
    for s in changed["shown"]:
        s["key"] = name
    for day in changed["observed"]["days"]:
        day["budgets"][0]["budget"] = name
    page = Page(render_report(changed))
    assert page.scripts() == page.count("img") == page.count("iframe") == 0
    assert not any(a.startswith("on") for _, attributes in page.tags for a in attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page.text)
    assert page.ordered


@pytest.mark.parametrize("missing", [k for k in document() if k != "kind"])
def test_half_a_document_still_makes_a_page(missing, monkeypatch):
    if missing not in ("shown", "observed"):  # figures are of these two only
        monkeypatch.setattr("dpaudit.report.figure_deployment.inline_svg", lambda draw, prefix: "")
    whole = document()
    whole["observed"]["days"], whole["shown"] = whole["observed"]["days"][:2], whole["shown"][:2]
    for value in ({}, {missing: "odd"}, {missing: [1, None]}):
        changed = {k: v for k, v in whole.items() if k != missing} | value
        assert Page(render_report(changed)).ordered


@pytest.mark.parametrize("said", [None, "finding", "no-finding", "inconclusive", "passed"])
@pytest.mark.parametrize("serious", [False, True])
def test_the_page_and_the_other_formats_say_the_same_verdict(said, serious):
    told = {"kind": "deployment", "verdict": said, "findings": [{"message": "a", "where": "b", "serious": serious}]}
    verdict = "finding" if serious else said if said in ("finding", "no-finding") else "inconclusive"
    assert f'<p class="verdict {verdict}"' in render_report(told)
    assert checked(told).verdict == verdict


def test_nothing_at_all_makes_a_page():
    assert "there is no ledger" in Page(render_report({"kind": "deployment"})).text


def test_numbers_without_a_place_are_left_out_of_the_figures():
    changed = document()
    changed["shown"] = [shown("a", "shows more", low, high, claim) for low in (0.0, 1.0, 1e300, "nan", "inf", -1)
                        for high in (0.5, 1e300, "inf", "nan", None) for claim in (1e300, 0, "nan", -2)]  # fmt: skip
    for i, value in enumerate(("nan", "inf", -1.0, 1e308, None, "x")):
        changed["observed"]["days"][i]["budgets"][0]["claimed"] = value
        changed["observed"]["days"][i]["date"] = ("0001-01-01", "9999-12-31", "no", None, "2017-05-03", 5)[i]
    assert Page(render_report(changed)).ordered
