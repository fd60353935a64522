"""Results in a notebook: the card's text, that it is escaped and scoped, and IPython finds it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from support import documents

import dpaudit
from dpaudit import types
from dpaudit.errors import UsageError
from dpaudit.report.notebook import repr_html
from dpaudit.types import AttackResult, CellResult, Interval

ATTACK = AttackResult(
    attack="likelihood-ratio",
    trials=2000,
    successes=1998,
    success=0.999,
    chance=0.5,
    epsilon_lower_bound=6.1,
    interval=Interval(low=0.9964, high=0.99988, confidence=0.95, method="Clopper-Pearson"),
    l2_error=1432.1,
    l2_expected=1431.0,
)
CELL = CellResult(
    cell="a-1",
    kind="attack",
    settings={"source": "pancake"},
    outcome={"success": 0.5},
    seconds=1.5,
    provenance={},
)


@pytest.fixture(scope="module")
def audit():
    return dpaudit.audit_sampler(
        "python:numpy.random:standard_normal",
        claim="gaussian:sigma=1",
        samples=5000,
        seed=1,
        tests=["moments", "tails"],
    )


@pytest.mark.slow
def test_results_show_themselves(audit):
    for result, said in (
        (audit, "nothing contradicts gaussian:sigma=1"),
        (
            ATTACK,
            "identified in 99.9 % [99.6, 100.0] of releases "
            "(guessing: 50.0 %; 1,998 of 2,000 correct)",
        ),
        (CELL, "A finished cell of kind attack, in 1.5 s."),
    ):
        html = result._repr_html_()
        page = documents.Page(html)
        assert page.ordered
        assert page.open == []
        assert said in page.text
        assert len(html) < 8000
        assert html == repr_html(result)
        assert page.count("script") == page.count("h1") == 0
        style = html[html.index("<style>") + 7 : html.index("</style>")].strip()
        assert all(rule.startswith(".dpaudit-card ") for rule in style.splitlines())


def test_hostile_text_is_escaped():
    page = documents.Page(repr_html(replace(ATTACK, attack=documents.HOSTILE)))
    assert page.count("script") == page.count("img") == 0
    assert "<script>alert(1)</script>" in page.text
    assert "\u202e" not in page.text


def test_without_a_report_the_text_stands(monkeypatch):
    monkeypatch.setattr(types, "html_of", None)
    assert ATTACK._repr_html_() is None
    assert repr(ATTACK) == "<AttackResult: likelihood-ratio, 1,998 of 2,000 right, chance 0.5>"


def test_other_things_are_refused():
    with pytest.raises(UsageError, match="result=dict"):
        repr_html({})


def test_the_report_is_imported_when_a_result_is_shown():
    code = (
        "import sys, dpaudit.types; print({'dpaudit.report', 'jinja2', 'numpy'} & set(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "set()"
