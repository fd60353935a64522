"""SARIF 2.1.0: fits the published schema and the rules that a schema cannot say."""

import json
import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.exceptions import best_match
from support import formats as made

from dpaudit.report import document_of
from dpaudit.report.formats import sarif_json
from dpaudit.report.formats.locations import location_of


def run_of(document):
    text = sarif_json(document_of(document))
    assert text.isascii()
    log = json.loads(text, parse_constant=pytest.fail)
    assert not re.search("[\ud800-\udfff]", json.dumps(log, ensure_ascii=False))
    error = best_match(made.sarif().iter_errors(log))
    assert error is None, f"{list(error.absolute_path)}: {error.message[:300]}"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]  # §3.27.6
    for message in messages(run):
        # §3.11.5: braces are doubled
        assert not re.search(r"(?<!\{)(\{\{)*\{(?!\{)|(?<!\})(\}\})*\}(?!\})", message)
    return run


def messages(value):
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k in ("text", "markdown") and isinstance(v, str))
        yield from (m for k, v in value.items() if k != "properties" for m in messages(v))
    elif isinstance(value, list):
        yield from (m for v in value for m in messages(v))


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", made.EVERY_KIND)
def test_every_kind_fits(name, hostile):
    document = made.of_kind(name)
    run = run_of(made.made_hostile(document) if hostile else document)
    for message in messages(run) if hostile else ():
        assert "](http" not in re.sub(r"(?s)(`{3,})sh\n.*?\n\1|\\\]", "", message)


def test_the_schema_refuses_what_is_no_sarif():
    log = json.loads(sarif_json(made.typed("mechanism finding")))
    assert made.sarif().is_valid(log)
    for broken in (log | {"version": "2.0"}, log | {"runs": [{}]}, log | {"more": 1}):
        assert not made.sarif().is_valid(broken)
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not made.sarif().is_valid(log)


def test_findings_are_errors_with_numbers_and_a_command():
    document = made.mechanism()
    run = run_of(document)
    errors = [r for r in run["results"] if r["level"] == "error"]
    assert [r["ruleId"] for r in errors] == [
        "mechanism/tests/low-bits-first-neighbour",
        "mechanism/tests/low-bits-second-neighbour",
    ]
    properties = errors[0]["properties"]
    assert (properties["p"], properties["pAdjusted"]) == (1e-9, 1e-8)
    assert properties["interval"]["low"] == 6.7
    assert properties["epsilonBounds"]["epsilon"] == document["result"]["epsilon"]
    assert "```sh\ndpaudit mechanism numpy:laplace:scale=0.5" in errors[0]["message"]["markdown"]
    assert errors[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "noise.py"
    assert [r["level"] for r in run["results"] if r not in errors] == ["note"]  # the advice
    assert (
        run["invocations"][0] | {"startTimeUtc": ""}
        == {
            "executionSuccessful": True,
            "exitCode": 1,
            "exitCodeDescription": "a finding",
            "startTimeUtc": "",
        }
        or "startTimeUtc" not in run["invocations"][0]
    )


def test_rules_are_the_tests_that_ran_and_a_pass_has_no_result():
    run = run_of(made.documents.audit("no-finding"))
    assert run["results"] == []
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        f"audit/tests/{n}" for n in ("tails", "moments", "norms")
    ]
    assert {rule["defaultConfiguration"]["level"] for rule in run["tool"]["driver"]["rules"]} == {
        "error"
    }
    assert (
        run["properties"]["blindSpots"][1] == "a secret direction (any size): no sample size helps"
    )
    assert run["invocations"][0]["executionSuccessful"] is True


@pytest.mark.parametrize(
    "document", [made.documents.audit("inconclusive"), made.mechanism("inconclusive")]
)
def test_inconclusive_is_an_execution_that_failed(document):
    document["result"]["reason"] = "the process ended with signal 9"
    run = run_of(document)
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 3)
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["level"] == "error"
    assert "signal 9" in notification["message"]["text"]
    assert [r for r in run["results"] if r["level"] == "error"] == []


def test_an_experiment_with_failed_cells_did_not_succeed():
    (invocation,) = run_of(made.failed_experiment())["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "ValueError: no" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    misses = run_of(made.measured.grid())["results"]
    assert [r["ruleId"] for r in misses] == ["measurements/published"] * 3


def test_fingerprints_stay_from_run_to_run_and_tell_findings_apart():
    def prints(document):
        return [r["partialFingerprints"]["dpaudit/v1"] for r in run_of(document)["results"]]

    first, again = made.mechanism(), made.mechanism()
    again["result"] |= {
        "seconds": 99.0,
        "samples": 2,
        "provenance": made.documents.provenance() | {"seed": "0x99"},
    }
    for test in again["result"]["tests"]:
        test |= {
            "p": 1e-4,
            "p_adjusted": 1e-3,
            "statistic": 1.0,
            "effect": "another",
            "reproduce": "again",
        }
    assert prints(first) == prints(again)
    assert len(set(prints(first))) == 3
    other = made.mechanism()
    other["result"]["claim_epsilon"] = 2.0
    assert not set(prints(first)) & set(prints(other))
    assert len(set(prints(made.measured.grid()))) == 3


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("file:data/samples.npy", "data/samples.npy"),
        ("file:./a b#1.npy", "a%20b%231.npy"),
        ("library:./lib/libnoise.so:gauss", "lib/libnoise.so"),
        ("python:./src/noise.py:draw", "src/noise.py"),
        ("python:./a/../noise.py:draw", "noise.py"),
        ("library:/opt/lib/libnoise.so:gauss", "file:///opt/lib/libnoise.so"),
        ("library://opt/libnoise.so:gauss", "file:///opt/libnoise.so"),
        ("python:./né.py:draw", "n%C3%A9.py"),
        ("python:http://evil.test/x.py:f", "http%3A/evil.test/x.py"),
        ("python:numpy.random:standard_normal", None),
        ("python:../other/noise.py:draw", None),
        ("file:..", None),
        ("file:", None),
        ("numpy:laplace:scale=1", None),
        ("command:./sampler {n} {d}", None),
        ("http://127.0.0.1:8000/noise", None),
    ],
)
def test_locations(target, uri):
    location = location_of(target)
    assert location["logicalLocations"][0]["fullyQualifiedName"] == target
    artifact = location.get("physicalLocation", {}).get("artifactLocation")
    assert (artifact or {}).get("uri") == uri
    if artifact is not None:
        parts = urlsplit(uri)
        assert parts.scheme in ("", "file")
        assert ("uriBaseId" in artifact) == (parts.scheme == "")
        assert ".." not in unquote(parts.path).split("/")


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.sampled_from(["", "file:", "python:./{}.py:f", "library:{}:s"]),
)
def test_any_text_makes_valid_sarif(text, form):
    document = made.made_hostile(made.documents.audit("finding"), text=text)
    document["result"]["sampler"] = form.format(text) if "{}" in form else form + text
    document["result"]["tests"] = document["result"]["tests"][:2]
    run_of(document)
