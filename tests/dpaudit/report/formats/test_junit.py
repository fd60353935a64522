"""JUnit XML: fits Jenkins's schema, counts correctly, and never turns a failure into a pass."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import formats as made

from dpaudit.report import document_of
from dpaudit.report.formats import junit_xml

# XML 1.0, 2.2: what a document may hold, written out here
LEGAL = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


def parsed(document):
    text = junit_xml(document_of(document))
    assert LEGAL.fullmatch(text)
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert made.junit().errors(root) == []
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    for suite in [root, *root.iter("testsuite")]:
        assert int(suite.get("tests")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures")) == len(list(suite.iter("failure")))
        assert int(suite.get("errors")) == len(list(suite.iter("error")))
    assert int(root.find("testsuite").get("skipped")) == len(list(root.iter("skipped")))
    return root


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_every_kind_fits_and_counts(name, hostile):
    document = made.of_kind(name)
    parsed(made.made_hostile(document) if hostile else document)


def test_the_reader_of_the_schema_sees_what_is_wrong():
    good = junit_xml(made.typed("audit finding"))
    for wrong in (
        good.replace('<testcase name="', '<testcase nom="', 1),
        good.replace("<failure ", "<failed ").replace("</failure>", "</failed>"),
        good.replace(' tests="3"', ""),
        good.replace('time="83.200"', 'time="83.2 s"'),
        good.replace("<properties>", "<properties>text"),
    ):
        assert wrong != good
        assert made.junit().errors(ElementTree.fromstring(wrong))


def test_a_finding_is_a_failure_with_effect_interval_and_reproducer():
    root = parsed(made.mechanism())
    failures = list(root.iter("failure"))
    assert [f.get("type") for f in failures] == ["finding", "finding"]
    assert failures[0].get("message") == "5,827 of 9,985 against 0 of 10,015"
    for part in (
        "[6.7, ∞] ε (99.0 % confidence",
        "p: 1.0e-09",
        "reproduce: dpaudit mechanism numpy:laplace",
    ):
        assert part in failures[0].text
    assert (
        root.find(".//testcase[@name='advice']/skipped").get("message")
        == "advice: ask for more releases"
    )


def test_an_honest_audit_passes_and_says_what_that_does_not_exclude():
    root = parsed(made.documents.audit("no-finding"))
    assert root.get("failures") == root.get("errors") == "0"
    assert (
        "Not excluded: a secret direction (any size): no sample size helps"
        in root.find(".//testsuite/system-out").text
    )
    assert root.find(".//property[@name='verdict']").get("value") == "no-finding"


@pytest.mark.parametrize("kind", ["audit", "mechanism"])
def test_an_inconclusive_audit_is_an_error_and_no_case_passes(kind):
    document = (
        made.documents.audit("inconclusive") if kind == "audit" else made.mechanism("inconclusive")
    )
    document["result"]["tests"] = made.documents.audit("no-finding")["result"]["tests"]
    root = parsed(document)
    cases = list(root.iter("testcase"))
    assert [case.get("name") for case in cases if case.find("error") is not None] == ["verdict"]
    assert all(case.find("error") is not None or case.find("skipped") is not None for case in cases)


def test_a_verdict_that_no_test_shows_is_a_case_of_its_own():
    document = made.mechanism("no-finding")
    document["result"] |= {"verdict": "finding"}
    assert parsed(document).find(".//testcase[@name='verdict']/failure") is not None


def test_advice_is_skipped_only_where_it_has_something_to_say():
    document = made.documents.audit("no-finding")
    for test, p in zip(document["result"]["tests"], (0.001, 0.5, "nan"), strict=True):
        test |= {"advisory": True, "p": p, "name": f"p {p}"}
    root = parsed(document)
    assert {c.get("name") for c in root.iter("testcase") if c.find("skipped") is not None} == {
        "p 0.001",
        "p nan",
    }


def test_an_experiment_has_its_cells_and_the_published_numbers():
    failed = parsed(made.failed_experiment())
    assert [case.get("classname") for case in failed.iter("testcase")] == [
        "dpaudit.experiment.cells"
    ] * 2
    assert "Traceback" in failed.find(".//error").text
    grid = made.measured.grid()
    root = parsed(grid)
    published = [
        case for case in root.iter("testcase") if case.get("classname").endswith(".published")
    ]
    assert len(published) == len(grid["rows"]) == 240
    assert (
        len([case for case in published if case.find("failure") is not None])
        == len(grid["misses"])
        == 3
    )
    assert published[0].get("name") == "d=256, epsilon=0.125, gamma=2, beta=1e-05"


@settings(suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_makes_legal_xml(text):
    document = made.made_hostile(made.documents.audit("finding"), text=text)
    document["result"]["tests"] = document["result"]["tests"][:1]
    parsed(document)
