"""``dpaudit explain``: a page for everything that can report a finding, complete and found."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint

import pytest
from command_line import here as dpaudit

from dpaudit import registry
from dpaudit.audit.betting.noise import BETS
from dpaudit.audit.verdict import ALWAYS_BLIND
from dpaudit.harms import COMPONENTS, HARMS, SECTIONS, explain, topic_of, topics
from dpaudit.types import PluginOrigin


def test_every_test_and_every_attack_on_mechanisms_has_a_topic():
    known = topics()
    assert set(registry.plugins("tests")) <= set(known)
    assert {topic_of(bet) for bet in BETS} == {"bets"}
    counted = {"event", "low-bits", "trade-off-curve", "one-run"}
    attacks = {"reach", "laplace-support", "pair-inversion", "bit-features", "sensitivity"}
    assert counted | attacks | {"timing-attack", "bets"} <= set(known)
    assert "norm-reader" not in known  # no attack of `dpaudit mechanism`


def test_pages_have_all_sections_and_say_which_cause_the_verdict_names():
    named = {
        "state-recovery",
        "linear-complexity",
        "predictable",
        "congruential",
        "support",
        "repeats",
        "granularity",
        "keyless-search",
        "moments",
    }  # the tests that name a cause
    for name in topics():
        page = explain(name)
        assert tuple(heading for heading, _ in page.sections) == SECTIONS
        assert page.summary
        assert all(len(text) > 20 for _, text in page.sections)
        meaning = " ".join(dict(page.sections)["What a finding means"].lower().split())
        assert name not in named or "the verdict begins with" in meaning, name
    assert named <= set(topics())


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("low bits, second neighbour over first", "low-bits"),
        ("event, first neighbour over second (rounding: one record)", "event"),
        ("reach, first neighbour over second", "reach"),
        ("timing", "timing"),
        ("timing, second neighbour over first", "timing-attack"),
        ("one run, μ", "one-run"),
        ("trade-off curve", "trade-off-curve"),
        ("bet on a direction", "bets"),
    ],
)
def test_a_whole_name_of_a_result_finds_its_page(name, topic):
    assert topic_of(name) == topic
    assert explain(name).name == topic


@pytest.mark.slow
def test_on_the_command_line():
    page = dpaudit("explain", "moments")
    assert page.returncode == 0
    assert [heading for heading in SECTIONS if f"\n{heading}\n" in page.stdout] == list(SECTIONS)
    document = json.loads(dpaudit("explain", "moments", "--format", "json").stdout)
    assert [part["heading"] for part in document["sections"]] == list(SECTIONS)
    ours, theirs = dpaudit("explain").stdout.split("dpaudit mechanism")
    assert "  moments            " in ours
    assert "  low-bits           " in theirs
    assert all(f"  {name} " in ours + theirs for name in topics())
    named = json.loads(dpaudit("explain", "--format", "json").stdout)
    assert {entry["name"]: entry["command"] for entry in named}["low-bits"] == "mechanism"
    wrong = dpaudit("explain", "momets")
    assert wrong.returncode == 2
    assert "test=momets" in wrong.stderr


def plugin(name, target):
    origin = PluginOrigin(kind="tests", name=name, distribution="other", version="1")
    return registry.Plugin(origin, target, EntryPoint(name, target, "dpaudit.tests"))


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """A package of somebody else's with three tests, one of which ends whoever imports it."""
    package = tmp_path / "dpaudit_other"
    (package / "explanations").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    source = 'class One:\n    """Look at \x1b[2J things."""\nclass Two:\n    looks_at = "more"\n'
    (package / "tests.py").write_text(source)
    (package / "ending.py").write_text("raise SystemExit('imported')")
    (package / "explanations" / "two.md").write_text("Two?\n\n## What it looks at\n\nThe second.\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = dict(registry.plugins("tests"))
    more = {n: plugin(n, f"dpaudit_other.tests:{n.title()}") for n in ("one", "two")}
    more["gone"] = plugin("gone", "dpaudit_gone.tests:Gone")
    more["ending"] = plugin("ending", "dpaudit_other.ending:Ending")
    original = registry.plugins
    monkeypatch.setattr(
        registry, "plugins", lambda kind: own | more if kind == "tests" else original(kind)
    )


@pytest.mark.slow
def test_a_third_partys_test_brings_its_page_or_its_docstring(third_party):
    assert explain("two").sections == (("What it looks at", "The second."),)
    assert "dpaudit_other.tests" not in sys.modules  # a page is read without an import
    assert explain("one").summary == "Look at \x1b[2J things."
    assert explain("gone").summary == explain("ending").summary == "It has no description."
    shown, listed = dpaudit("explain", "one").stdout, dpaudit("explain").stdout
    assert "\x1b" not in shown + listed
    assert "things." in shown
    assert "Two?" in listed


def test_all_harms_and_blind_spots_name_a_component_that_the_scope_section_counts():
    named = {harm.component for harm in HARMS.values()} | {b.component for b in ALWAYS_BLIND}
    assert named <= set(dict(COMPONENTS))
