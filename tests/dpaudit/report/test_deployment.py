"""A deployment's page: what it says, and what it escapes."""

from __future__ import annotations

import re

import pytest
from support import documents
from support.deployments import bare, document, shown

from dpaudit.report import document_of, render_report
from dpaudit.report.formats.checks import checked

Page = documents.Page


@pytest.fixture(scope="module")
def html():
    return render_report(document())


def test_the_page(html):
    page = Page(html)
    assert page.ordered
    assert page.open == []
    text = " ".join(page.text.split())
    for words in (
        "Apple’s deployment, configuration somewhere",
        "Finding: the configuration permits ε = 16 per day, and a finding is against the user; "
        "the bits of com.apple.keyboard.Emoji.ru_RU.EmojiKeyboard show ε ≥ 3.6 per record, "
        "where 1 is claimed.",
        "of that, confirmed active on macOS",
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
    at = [
        text.index(word, text.index("Basis")) for word in ("shows more", "not identified", "agrees")
    ]
    assert at == sorted(at)


def test_figures_have_alt_text_and_ids_of_their_own(html):
    page = Page(html)
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(plots) == 2
    assert "claimed 1 and 2, shown ≥ 3.6" in plots[0]["aria-label"]
    assert "9 days from 2017-05-01 to 2017-05-17, 45 in total" in plots[1]["aria-label"]
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_the_same_document_makes_the_same_page(html):
    assert render_report(document()) == html


def test_strangers_text_is_escaped_everywhere(html):
    hostile = Page(render_report(documents.made_hostile(document())))
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in Page(html).tags}
    assert not any(a.startswith("on") for _, attributes in hostile.tags for a in attributes)
    assert hostile.text.count("<script>alert(1)</script>") > 20
    for character in "\x1b\u202e\udcff":
        assert character not in hostile.text
    assert hostile.ordered


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>]]>--><svg onload=a()>\x1b[2J\u202e\x00", "a" * 5000]
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


@pytest.mark.parametrize(
    "missing", ["observed", "against", "differences", "database", "shown", "findings"]
)
def test_what_was_not_given_is_not_on_the_page(missing, monkeypatch):
    if missing not in ("shown", "observed"):  # figures are of these two only
        monkeypatch.setattr("dpaudit.report.figures.deployment.inline_svg", lambda draw, prefix: "")
    whole = document()
    whole["observed"]["days"], whole["shown"] = whole["observed"]["days"][:2], whole["shown"][:2]
    assert Page(render_report(whole | {missing: bare()[missing]})).ordered


@pytest.mark.parametrize("said", ["finding", "no-finding", "inconclusive"])
def test_the_page_and_the_other_formats_say_the_same_verdict(said):
    told = document_of(
        bare()
        | {
            "verdict": said,
            "findings": [{"message": "a", "where": "b", "serious": said == "finding"}],
        }
    )
    assert f'<p class="verdict {said}"' in render_report(told)
    assert checked(told).verdict == said


def test_a_configuration_of_nothing_makes_a_page():
    text = Page(render_report(bare())).text
    assert "No finding: the configuration permits ε = 0 per day." in text


def test_numbers_without_a_place_are_left_out_of_the_figures():
    changed = document()
    changed["shown"] = [
        shown("a", "shows more", low, high, claim)
        for low in (0.0, 1.0, 1e300, "nan", "inf", -1)
        for high in (0.5, 1e300, "inf", "nan")
        for claim in (1e300, 0, "nan", -2)
    ]
    for i, value in enumerate(("nan", "inf", -1.0, 1e308)):
        changed["observed"]["days"][i]["budgets"][0]["claimed"] = value
        changed["observed"]["days"][i]["date"] = ("0001-01-01", "9999-12-31", "no", "2017-05-03")[i]
    assert Page(render_report(changed)).ordered
