"""What a page says to somebody who was not there: meaning, identity, hazards, glossary."""

from __future__ import annotations

import doctest
import importlib
import re
from dataclasses import replace

import pytest
from support import documents, formats

from dpaudit import registry
from dpaudit.report import document_of
from dpaudit.report.glossary import Linker, glossary, glossary_text
from dpaudit.report.hazards import COMPONENTS, hazards_of_audit
from dpaudit.report.line_breaks import breakable, kept_whole
from dpaudit.report.meaning import (
    KINDS,
    audit_meaning,
    kind_of,
)
from dpaudit.report.tables import facts_table
from dpaudit.types import Interval


def result_of(document):
    return document_of(document).result


def finding(*names, p=1e-30, **changes):
    """An audit in which these tests found something, in this order."""
    result = result_of(documents.audit("finding"))
    test = replace(result.tests[1], finding=True, p=p, p_adjusted=p, **changes)
    return replace(result, tests=tuple(replace(test, name=name) for name in names))


def says(meanings):
    return " ".join(one.says for one in meanings)


def test_doctests():
    assert doctest.testmod(importlib.import_module("dpaudit.report.meaning")).failed == 0


def test_every_test_and_every_count_is_of_a_kind():
    kinds = {name: kind_of(name) for name in registry.plugins("tests")}
    assert "other" not in kinds.values(), kinds
    for attack in ("reach", "laplace-support", "pair-inversion", "bit-features", "timing"):
        assert kind_of(f"{attack}, first neighbour over second") in {"last-bits", "time"}
    assert kind_of("trade-off curve") == "epsilon"
    assert set(kinds.values()) | {"last-bits", "epsilon", "other"} == set(KINDS)


def test_findings_are_gathered_by_kind_the_most_certain_first():
    told = audit_meaning(finding("repeats", "moments", "norms", "hidden-direction"))
    assert [one.found for one in told] == ["repeats", "moments; norms", "hidden-direction"]
    assert told[1].topics == ("moments", "norms")
    assert [bool(one.note) for one in told] == [False, True, False]
    assert "less than one of a million audits" in told[0].says
    assert "at most 1 of 250 audits" in audit_meaning(finding("tails", p=0.004))[0].says


def test_a_hidden_direction_is_a_consequence_unless_it_is_alone():
    (alone,) = audit_meaning(finding("hidden-direction"))
    assert alone.heading == KINDS["hidden"].heading
    after = audit_meaning(finding("moments", "hidden-direction"))[1]
    assert after.heading != alone.heading
    assert "if this alone is left" in after.says
    for names in (("moments", "keyless-search"), ("moments", "hidden-direction", "keyless-search")):
        assert KINDS["hidden"].harm[1:] in audit_meaning(finding(*names))[1].says


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.9, 0.99, "weaker"), (1.01, 1.2, "stronger"), (0.9, 1.1, "where"), (0.9, float("inf"), "")],
)
def test_the_interval_says_whether_noise_is_weaker_or_stronger(low, high, word):
    interval = Interval(low=low, high=high, confidence=0.99, method="")
    told = audit_meaning(finding("moments", interval=interval, unit="× the claimed scale"))
    assert (
        told[0].says.lower().startswith(f"the noise is {word} than" if word[-2:] == "er" else "w")
    )


def test_hazards_name_each_component_once_and_what_belongs_there():
    columns = hazards_of_audit(finding("moments", "granularity", "keyless-search"))
    assert columns[0].cells == [name for name, _ in COMPONENTS]
    found = dict(zip(columns[0].cells, columns[2].cells, strict=True))
    assert found["Algorithms and correctness"] == "moments"
    assert found["Side channels"] == "granularity"
    assert found["Trust models"] == "keyless-search"
    spots = [
        ("a cryptographic generator under somebody's seed", None, "Trust models"),
        ("floating-point leaks", None, "Side channels"),
        ("other neighbours, and other ways of looking at a release", None, "Unit of privacy"),
        ("wrong scale", 0.1, "Algorithms and correctness"),
    ]
    passed = result_of(documents.audit("no-finding"))
    spot = passed.cannot_rule_out[0]
    columns = hazards_of_audit(
        replace(
            passed,
            cannot_rule_out=tuple(
                replace(spot, flaw=flaw, size=size, test="") for flaw, size, _ in spots
            ),
        )
    )
    left = dict(zip(columns[0].cells, columns[3].cells, strict=True))
    for flaw, _, component in spots:
        assert flaw in left[component]
    assert left["Utility"] == left["Data collection exposure"] == "not looked at"
    assert left["Privacy parameters"] == "whether the claimed ε is small enough"


def test_the_glossary_of_the_docs_is_that_of_the_report():
    docs = (formats.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert docs == glossary_text(), "cp dpaudit/report/glossary.md docs/glossary.md"
    entries = glossary_text().split("\n\n")[1:]
    assert len(glossary()) == len(entries) >= 25
    assert len({term.id for term in glossary()}) == len(entries)
    assert all(re.fullmatch(r"term-[a-z-]+", term.id) for term in glossary())
    assert not any(mark in term.says for term in glossary() for mark in "*`")


def test_terms_are_linked_once_and_text_stays_text():
    link = Linker()
    assert link("An ε <b> of attackers") == (
        'An <a class="term" href="#term-epsilon">ε</a> &lt;b&gt; of '
        '<a class="term" href="#term-adversary">attackers</a>'
    )
    assert link("ε, the adversary") == "ε, the adversary"
    assert link("a lower bound for ε") == (
        'a <a class="term" href="#term-lower-bound-for">lower bound for ε</a>'
    )
    assert "<a" not in link("unclaimed farm disclaim non-power")


def test_line_breaks():
    assert kept_whole("ε ≥ 7.69 <i> --real-numbers") == (
        '<span class="whole">ε ≥ 7.69</span> &lt;i&gt; <span class="whole">--real-numbers</span>'
    )
    assert breakable("a com.apple.keyboard.Emoji <b>") == (
        "a com.<wbr>apple.<wbr>keyboard.<wbr>Emoji &lt;b&gt;"
    )
    assert breakable("<script>alert(1)</script>=a") == ("&lt;script&gt;alert(1)&lt;/script&gt;=a")
    assert breakable("1,001,004") == "1,001,004"


def test_plugins_of_one_package_take_one_line():
    def value(*plugins):
        table = facts_table(documents.provenance() | {"plugins": list(plugins)})
        return dict(zip(*(column.cells for column in table), strict=True))["plugins"]

    one = {"kind": "tests", "name": "a", "distribution": "x", "version": "1", "sha256": "ff"}
    other = {"kind": "tests", "name": "c", "distribution": "y", "version": "2", "sha256": "00"}
    assert value(one, one | {"name": "b"}, other) == "tests a, b x 1 ff\ntests c y 2 00"
    assert value() == "–"
    assert value({}) == "–"
    assert value("odd", 1) == "odd, 1"
