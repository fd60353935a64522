"""A deployment's page: what it says, and what it escapes."""

from __future__ import annotations

import re

import pytest
from support import documents
from support.deployments import bare, document, shown

from dpaudit.report import render_report

Page = documents.Page


@pytest.fixture(scope="module")
def html():
    return render_report(document())


@pytest.mark.slow
def test_figures_have_alt_text_and_ids_of_their_own(html):
    page = Page(html)
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(plots) == 2
    assert "claimed 1 and 2, shown ≥ 3.6" in plots[0]["aria-label"]
    assert "9 days from 2017-05-01 to 2017-05-17, 45 in total" in plots[1]["aria-label"]
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_strangers_text_is_escaped_everywhere(html):
    hostile = Page(render_report(documents.made_hostile(document())))
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in Page(html).tags}
    assert not any(a.startswith("on") for _, attributes in hostile.tags for a in attributes)
    assert hostile.text.count("<script>alert(1)</script>") > 20
    for character in "\x1b\u202e\udcff":
        assert character not in hostile.text
    assert hostile.ordered


@pytest.mark.slow
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


def test_a_configuration_of_nothing_makes_a_page():
    text = Page(render_report(bare())).text
    assert "No finding: the configuration permits ε = 0 per day." in text


@pytest.mark.slow
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
