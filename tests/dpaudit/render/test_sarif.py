"""SARIF 2.1.0: fits the published schema and the rules that a schema cannot say."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.exceptions import best_match
from markdown_it import MarkdownIt
from support import reports

from dpaudit.harms import HARMS, page_of
from dpaudit.render.sarif import code_block, location_of, prose, sarif_json
from dpaudit.report import replace


def run_of(report):
    text = sarif_json(report)
    assert text == sarif_json(report)
    assert text.isascii()
    log = json.loads(text, parse_constant=pytest.fail)
    assert not re.search("[\ud800-\udfff]", json.dumps(log, ensure_ascii=False))
    error = best_match(reports.sarif().iter_errors(log))
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
@pytest.mark.parametrize("name", reports.EVERY)
def test_every_report_fits(name, hostile):
    report = reports.EVERY[name]
    run = run_of(reports.hostile(report) if hostile else report)
    for message in messages(run) if hostile else ():
        assert "](http" not in re.sub(r"(?s)(`{3,})sh\n.*?\n\1|\\\]", "", message)


def test_the_schema_refuses_what_is_no_sarif():
    log = json.loads(sarif_json(reports.report("finding")))
    assert reports.sarif().is_valid(log)
    for broken in (log | {"version": "2.0"}, log | {"runs": [{}]}, log | {"more": 1}):
        assert not reports.sarif().is_valid(broken)
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not reports.sarif().is_valid(log)


def test_findings_are_errors_with_numbers_and_a_command():
    interval = {"low": 6.7, "high": "inf", "confidence": 0.99, "method": "x"}
    run = run_of(reports.report("finding", facts={"epsilon": interval, "mu": 1.0}))
    first, *_, last = run["results"]
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("audit/tests/moments", "error"),
        ("audit/tests/tails", "error"),
        ("audit/tests/time", "note"),
    ]
    numbers = first["properties"]
    assert (numbers["p"], numbers["pAdjusted"], numbers["cause"]) == (1e-9, 1e-8, "a scale")
    assert numbers["interval"] | {"method": "x"} == interval
    assert numbers["epsilonBounds"] == {"epsilon": interval, "mu": 1.0}
    assert f"```sh\n{reports.AGAIN}\n```" in first["message"]["markdown"]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "noise.py"
    assert "interval" not in last["properties"]
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)
    assert invocation["commandLine"].startswith("dpaudit audit")


def test_rules_are_the_checks_that_ran_and_a_pass_has_no_result():
    run = run_of(reports.report("no-finding"))
    rules = run["tool"]["driver"]["rules"]
    assert run["results"] == []
    assert [rule["id"] for rule in rules] == [
        f"audit/tests/{n}" for n in ("moments", "norms", "forks")
    ]
    assert {rule["defaultConfiguration"]["level"] for rule in rules} == {"error"}
    assert run["properties"]["blindSpots"][1] == "a secret direction (any size): no size helps"
    assert run["properties"]["alpha"] == 0.01
    assert run["invocations"][0]["executionSuccessful"] is True


@pytest.mark.parametrize("report", [reports.report("inconclusive"), reports.measurements()])
def test_what_went_wrong_is_an_execution_that_failed(report):
    (invocation,) = run_of(report)["invocations"]
    code = 3 if report.verdict == "inconclusive" else None  # a run exits with no verdict
    assert (invocation["executionSuccessful"], invocation.get("exitCode")) == (False, code)
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["level"] == "error"
    said = "signal 9" if code == 3 else "attack b-2: ValueError: no"
    assert said in notification["message"]["text"]


def test_results_beyond_a_thousand_are_counted():
    run = run_of(reports.huge())
    assert (len(run["results"]), run["properties"]["resultsLeftOut"]) == (1000, 200)


def test_a_time_with_a_zone_is_told_in_utc():
    times = {"2026-11-23T08:20:01+02:00": "2026-11-23T06:20:01Z"}
    times |= dict.fromkeys(("2026-11-23T08:20:01", "2026-11-23", "x"))
    for started, told in times.items():
        report = reports.report(provenance={"started": started})
        assert run_of(report)["invocations"][0].get("startTimeUtc") == told


def test_fingerprints_stay_from_run_to_run_and_tell_findings_apart():
    def prints(report):
        return [r["partialFingerprints"]["dpaudit/v1"] for r in run_of(report)["results"]]

    advice = [reports.check("advice", "advice", group="advice", effect=text) for text in "ab"]
    checks = [reports.check("moments"), reports.check("tails"), *advice]
    other = [
        reports.check(c.name, p=1e-4, p_adjusted=1e-3, statistic=1.0, effect="x", reproduce="y")
        for c in checks[:2]
    ]
    first = prints(reports.report("finding", *checks))
    again = reports.report("finding", *other, *advice, seconds=99.0, provenance={"seed": "0x99"})
    assert prints(again) == first
    assert len(set(first)) == 4
    for changed in ({"claim": "laplace:scale=1"}, {"subject": "x"}, {"kind": "mechanism"}):
        assert not set(first) & set(prints(reports.report("finding", *checks, **changed)))


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
    target = form.format(text) if "{}" in form else form + text
    run_of(replace(reports.hostile(reports.report("finding"), text=text), subject=target))


def test_a_result_names_its_cause_and_a_rule_explains_its_test():
    run = run_of(reports.report("finding"))
    rules = {rule["id"]: rule["help"] for rule in run["tool"]["driver"]["rules"]}
    first, *_, advice = run["results"]
    assert "Likely cause: a scale." in first["message"]["text"]
    assert "Likely cause: a scale." in first["message"]["markdown"]
    assert "Likely cause" not in advice["message"]["text"]
    page = dict(page_of("moments").sections)
    for form in ("text", "markdown"):
        said = rules["audit/tests/moments"][form]
        assert all(page[name] in said for name in ("What a finding means", "What to do"))
    unknown = reports.check("x", topic="not-installed", harm="time")
    harm = HARMS["time"]
    (rule,) = run_of(reports.report("finding", unknown))["tool"]["driver"]["rules"]
    assert f"{harm.heading}: {harm.harm}.\n\n{harm.todo}" in rule["help"]["text"]
    bare = reports.check("x", topic="not-installed", harm="")
    (rule,) = run_of(reports.report("finding", bare))["tool"]["driver"]["rules"]
    assert "Run the command" in rule["help"]["text"]


# --- Markdown in messages: third-party text is text

GITHUB = MarkdownIt("gfm-like", {"linkify": False}).enable(["table", "strikethrough"])
OURS = {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "ul", "li"}
MENTION = re.compile(r"(^|\W)@\w")
URL = re.compile(r"(https?|ftp)://\w|\bwww\.\w", re.I)


def shown(markdown):
    """Rendered by an independent implementation; only tags that our messages have."""
    page = GITHUB.render(markdown)
    tags = {tag.lower() for tag in re.findall(r"</?([a-zA-Z][\w-]*)", page)}
    assert tags <= OURS, tags - OURS
    for plain in re.split(r"<pre>.*?</pre>", page, flags=re.S):
        text = html.unescape(re.sub(r"<[^>]*>", "", plain))
        assert not MENTION.search(text)
        assert not URL.search(text)
    return page


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "[x](y)", "@someone"])
def test_the_renderer_shows_what_is_not_escaped(text):
    with pytest.raises(AssertionError):
        shown(text)


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.text(st.sampled_from("ab1 .-+=*_`~|<>[]()!&#@:/\\{}$^\n\t\"'w"), max_size=30),
    st.sampled_from(["{}", "- {}", "| {} |\n|---|", "**x.** {}"]),
)
def test_prose_shows_just_that_text(text, form):
    page = shown(form.format(prose(text)))
    seen = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).replace("\u2060", "").split())
    expected = form.replace("|---|", "").strip("|- *").replace("**", "")
    expected = " ".join(expected.format(" ".join(text.split())).split())
    if form == "| {} |\n|---|":
        expected = " ".join(text.split())
    assert seen == expected


@given(st.text(st.sampled_from("a`~\n #"), max_size=30))
def test_a_code_block_ends_where_it_ends(text):
    source = code_block(text) + "\n\nafter"
    token, *_ = GITHUB.parse(source)
    assert token.type == "fence"
    assert token.content.rstrip("\n") == text.rstrip("\n")
    assert GITHUB.render(source).endswith("<p>after</p>\n")
