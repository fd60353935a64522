"""JUnit XML: fits Jenkins's schema, counts correctly, and never turns a failure into a pass."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import reports

from dpaudit.render.junit import junit_xml
from dpaudit.report import with_verdict

# XML 1.0, 2.2: what a document may hold, written out here
LEGAL = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


def parsed(report):
    text = junit_xml(report)
    assert text == junit_xml(report)
    assert LEGAL.fullmatch(text)
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert reports.junit().errors(root) == []
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    for suite in [root, *root.iter("testsuite")]:
        assert int(suite.get("tests")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures")) == len(list(suite.iter("failure")))
        assert int(suite.get("errors")) == len(list(suite.iter("error")))
    assert int(root.find("testsuite").get("skipped")) == len(list(root.iter("skipped")))
    return root


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", reports.EVERY)
def test_every_report_fits_and_counts(name, hostile):
    report = reports.EVERY[name]
    parsed(reports.hostile(report) if hostile else report)


def test_more_checks_than_a_page_shows():
    assert parsed(reports.huge()).get("failures") == "1200"


def test_the_reader_of_the_schema_sees_what_is_wrong():
    good = junit_xml(reports.report("finding"))
    for wrong in (
        good.replace('<testcase name="', '<testcase nom="', 1),
        good.replace("<failure ", "<failed ").replace("</failure>", "</failed>"),
        good.replace(' tests="4"', ""),
        good.replace('time="83.200"', 'time="83.2 s"'),
        good.replace("<properties>", "<properties>text"),
    ):
        assert wrong != good
        assert reports.junit().errors(ElementTree.fromstring(wrong))


def test_each_outcome_is_what_ci_systems_know():
    checks = [
        reports.check("a", "finding"), reports.check("b", "pass"), reports.check("c", "advice"),
        reports.check("d", "undecided"), reports.check("e", "error", group="cells"),
    ]  # fmt: skip
    root = parsed(reports.report("finding", *checks))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    outcomes = {"a": "failure", "c": "skipped", "d": "skipped", "e": "error"}
    for name, tag in outcomes.items():
        assert cases[name].find(tag) is not None, name
    assert [child.tag for child in cases["b"]] == ["system-out"]
    assert cases["c"].find("skipped").get("message") == "advice: 5 of 9 against 0"
    assert (cases["e"].find("error").get("type"), cases["a"].get("classname")) == (
        "failed",
        "dpaudit.audit.tests",
    )
    for part in ("[6.7, ∞] ε (99.0 % confidence", "p: 1.0e-09, adjusted: 1.0e-08",
                 "cause: a scale", f"reproduce: {reports.AGAIN}"):  # fmt: skip
        assert part in cases["a"].find("failure").text


@pytest.mark.parametrize(
    ("verdict", "outcomes", "added"),
    [
        ("finding", ["pass"], "failure"),
        ("finding", ["finding"], None),
        ("no-finding", [], "system-out"),
        ("no-finding", ["pass"], None),
        ("inconclusive", ["undecided"], "error"),
        ("inconclusive", [], "error"),
    ],
)
def test_a_verdict_that_no_check_shows_is_a_case_of_its_own(verdict, outcomes, added):
    checks = [reports.check(f"{i}", outcome) for i, outcome in enumerate(outcomes)]
    root = parsed(reports.report(verdict, *with_verdict(checks, verdict, "it ended")))
    case = root.find(".//testcase[@name='verdict']")
    assert (case is not None) == (added is not None)
    assert added is None or case.find(added) is not None
    failed = root.get("failures") != "0"
    assert (failed, root.get("errors") != "0") == (verdict == "finding", verdict == "inconclusive")


def test_properties_say_what_was_judged_and_the_text_what_is_not_excluded():
    root = parsed(reports.report("no-finding"))
    known = {p.get("name"): p.get("value") for p in root.iter("property")}
    assert known["verdict"] == "no-finding"
    assert (known["alpha"], known["sandbox"], known["seed"]) == ("0.01", "full", "0x12")
    said = root.find(".//testsuite/system-out").text
    assert "Not excluded: a secret direction (any size): no size helps" in said
    assert "this cannot exclude is below" in said


@settings(suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_makes_legal_xml(text):
    parsed(reports.hostile(reports.report("finding"), text=text))
