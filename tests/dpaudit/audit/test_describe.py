"""What audits report: the cause first, the meaning by harm, claims that are implied."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support import documents, mechanisms
from support.documents import Page
from support.results import typed

from dpaudit import registry
from dpaudit.harms import HARMS, SIDE_CHANNELS, TRUST, UNIT
from dpaudit.render.page import render_page
from dpaudit.render.parts import badge
from dpaudit.report import Chart, Facts, check_of, describe
from dpaudit.types import Interval

HARM = {"moments": "strength", "norms": "strength", "repeats": "reuse", "granularity": "values",
        "hidden-direction": "hidden", "keyless-search": "hidden", "tails": "law"}  # fmt: skip
PASSED = typed(documents.audit("no-finding"))


def finding(*names, p=1e-30, **changes):
    """An audit in which these tests found something, in this order."""
    result = typed(documents.audit("finding"))
    test = replace(result.tests[1], finding=True, p=p, p_adjusted=p, **changes)
    tests = (replace(test, name=n, harm=HARM.get(n, "other"), topic=n) for n in names)
    return replace(result, tests=tuple(tests))


def charts(report):
    return [b for section in report.sections for b in section.blocks if isinstance(b, Chart)]


def facts(report):
    blocks = [b for section in report.sections for b in section.blocks if isinstance(b, Facts)]
    return dict(row for block in blocks for row in block.rows)


def test_every_test_declares_a_harm_that_is_known():
    harms = {name: registry.load("tests", name).harm for name in registry.plugins("tests")}
    assert set(harms.values()) <= HARMS.keys() - {"other"}, harms
    for attack in ("reach", "laplace-support", "pair-inversion", "bit-features"):
        assert registry.load("attacks", attack).harm == "last-bits"
    assert registry.load("attacks", "timing").harm == "time"


def test_findings_are_gathered_by_harm_the_most_certain_first():
    told = describe(finding("repeats", "moments", "norms", "hidden-direction")).meaning
    assert [one.found for one in told] == ["repeats", "moments; norms", "hidden-direction"]
    assert told[1].topics == ("moments", "norms")
    assert [bool(one.note) for one in told] == [False, True, False]
    assert "less than one of a million audits" in told[0].says
    assert "at most 1 of 250 audits" in describe(finding("tails", p=0.004)).meaning[0].says
    (other,) = describe(finding("a plug-in's own")).meaning
    assert other.heading == HARMS["other"].heading


def test_a_hidden_direction_is_a_consequence_unless_it_is_alone():
    (alone,) = describe(finding("hidden-direction")).meaning
    assert alone.heading == HARMS["hidden"].heading
    after = describe(finding("moments", "hidden-direction")).meaning[1]
    assert after.heading != alone.heading
    assert "if this alone is left" in after.says
    for names in (("moments", "keyless-search"), ("moments", "hidden-direction", "keyless-search")):
        assert HARMS["hidden"].harm[1:] in describe(finding(*names)).meaning[1].says


@pytest.mark.parametrize(
    ("low", "high", "begins"),
    [
        (0.9, 0.99, "The noise is weaker than"),
        (1.01, 1.2, "The noise is stronger than"),
        (0.9, 1.1, "Where the noise is weaker"),
        (0.9, math.inf, "Where the noise is weaker"),
    ],
)
def test_the_interval_says_whether_noise_is_weaker_or_stronger(low, high, begins):
    interval = Interval(low=low, high=high, confidence=0.99, method="")
    result = finding("moments", interval=interval, unit="× the claimed scale")
    assert describe(result).meaning[0].says.startswith(begins)


def test_the_cause_of_a_finding_comes_first():
    assert ": moments contradicts" in describe(finding("moments")).headline
    caused = replace(finding("moments", "norms"), cause="a scale of 2")
    assert describe(caused).headline.startswith(
        "Finding: a scale of 2; moments and norms contradict gaussian:sigma=1 (smallest adjusted p"
    )


def test_equal_findings_keep_the_order_of_causes():
    """The audit puts the likelier cause first among p-values that no longer differ."""
    result = finding("support", "moments", "coordinates", p=1e-300)
    assert [c.name for c in describe(result).checks] == ["support", "moments", "coordinates"]
    for p, first in ((1e-101, "support"), (1e-90, "moments")):
        less = (replace(result.tests[0], p=p, p_adjusted=p), *result.tests[1:])
        assert describe(replace(result, tests=less)).checks[0].name == first


@pytest.mark.parametrize(
    ("changes", "verdict", "outcome"),
    [
        ({"finding": True}, "inconclusive", "finding"),
        ({"advisory": True, "p": 0.001}, "no-finding", "advice"),
        ({"advisory": True, "p": math.nan}, "no-finding", "advice"),
        ({"advisory": True, "p": 0.5}, "no-finding", "pass"),
        ({}, "no-finding", "pass"),
        ({}, "inconclusive", "undecided"),
    ],
)
def test_outcomes(changes, verdict, outcome):
    test = replace(PASSED.tests[0], **changes)
    assert check_of(test, 0.01, verdict).outcome == outcome


@pytest.mark.parametrize("verdict", ["finding", "inconclusive", "no-finding"])
def test_a_verdict_without_tests_is_a_check_of_its_own(verdict):
    (check,) = describe(replace(typed(documents.audit(verdict)), tests=())).checks
    assert check.group == "verdict"
    assert check.outcome == {"no-finding": "pass", "inconclusive": "error"}.get(verdict, verdict)


def test_a_pass_that_excludes_nothing_says_so():
    report = describe(replace(PASSED, cannot_rule_out=()))
    assert "no test stated what it would miss" in report.headline
    assert "this pass excludes no flaw of a stated size" in Page(render_page(report)).text


def test_hazards_are_those_of_the_harms_and_of_the_spots():
    found = {h.component: h.found for h in describe(finding(*HARM)).hazards}
    assert found["Algorithms and correctness"] == ("moments", "norms", "repeats", "tails")
    assert found[SIDE_CHANNELS] == ("granularity",)
    assert found[TRUST] == ("hidden-direction", "keyless-search")
    spot = PASSED.cannot_rule_out[0]
    spots = tuple(replace(spot, flaw=c, component=c) for c in (TRUST, SIDE_CHANNELS, UNIT))
    left = {h.component: h.open for h in describe(replace(PASSED, cannot_rule_out=spots)).hazards}
    assert all(component in left[component] for component in (TRUST, SIDE_CHANNELS, UNIT))
    assert "whether the claimed ε is small enough" in left["Privacy parameters"]


def test_the_chart_of_p_values_has_the_tests_that_spend_alpha():
    honest = replace(PASSED.tests[0], p_adjusted=1.0, finding=False)
    tests = [replace(honest, name=f"test {i}") for i in range(18)]
    tests.append(replace(honest, name="forks", advisory=True))
    (chart,) = charts(describe(replace(PASSED, tests=tuple(tests))))
    assert chart.y.categories == ("all 18 tests",)
    few = describe(replace(PASSED, tests=tuple(tests[:3])))
    assert charts(few)[0].y.categories == ("test 0", "test 1", "test 2")
    links = [m.link for m in charts(describe(finding("a", "b")))[0].panels[0].series[0].marks]
    assert links == ["1", "2"]


def mechanism(verdict, **changes):
    return describe(typed(mechanisms.result(verdict, **changes)))


def test_claimed_and_shown_stand_beside_each_other_and_events_are_exact():
    report = mechanism("finding")
    told = facts(report)
    assert told["ε claimed"] == "1 at δ = 1e-05"
    assert told["ε shown (99 % confidence)"].startswith("≥ 1.45")  # rounded down
    text = Page(render_page(report)).text
    assert "[−∞, 1.0000000000000002)" in text
    assert "[3, ∞)" in text
    (chart,) = charts(report)
    assert "claimed ε 1 at δ 1e-05; shown there ≥ 1.45" in chart.alt


def test_a_pass_without_the_last_bits_says_so():
    bits = mechanisms.line("low bits, first neighbour", advisory=True) | {"topic": "low-bits"}
    for changes in ({"details": {"last_bits_excluded": True}}, {"tests": [bits]}):
        report = mechanism("no-finding", **changes)
        said = badge(report, where="below")
        assert said.word == "No finding (last bits excluded)"
        assert said.rest.startswith("we can show ")
        assert "--real-numbers" in report.meaning[0].says
    told = mechanism("finding", details={"last_bits_excluded": True})
    assert "excluded" not in told.headline


def test_a_finding_of_the_low_bits_alone_says_so():
    low_bits = describe(typed(mechanisms.low_bits()))
    assert "is not (1, 0)-DP, by the low bits of its releases: we can show" in low_bits.headline
    assert "by the low bits" not in mechanism("finding").headline
    assert low_bits.checks[-1].outcome == "advice"
    assert low_bits.hazards[-1].component == SIDE_CHANNELS


def test_what_the_trade_off_curve_alone_shows_is_labelled():
    curve = mechanisms.bound(0.0) | {"method": "trade-off curve, Clopper-Pearson"}
    for delta, says in ((curve, True), (mechanisms.bound(0.0), False)):
        told = facts(mechanism("finding", delta=delta))
        assert ("δ shown at the claimed ε, by the trade-off curve" in told) == says


def test_what_a_claim_implies_is_not_called_claimed():
    mu = mechanism("no-finding", mu=0.5, details={"claimed": "mu"})
    assert "consistent with the claim of vendor:laplace, 0.5-GDP" in mu.headline
    assert (mu.claim, facts(mu)["μ claimed"]) == ("0.5-GDP", "0.5")
    assert "ε that the claimed μ implies" in facts(mu)
    assert "implied ε 2" in charts(mu)[0].alt
    assert "μ = 0.5 is claimed" in mu.meaning[0].says
    both = mechanism("no-finding", mu=0.5)
    assert both.claim == "(2, 1e-05)-DP"
    assert "both (2, 1e-05)-DP and 0.5-GDP" in both.headline
    stated = {"claim": "0.5-zCDP", "unit": "ρ", "value": 0.5, "shown": None, "says": "ρ ≥ 0.1"}
    zcdp = mechanism("no-finding", stated=stated)
    assert "ρ ≥ 0.1 and ε ≥ 1.45" in zcdp.headline
    assert (facts(zcdp)["Claimed"], facts(zcdp)["Shown"]) == ("0.5-zCDP", "ρ ≥ 0.1")


@pytest.mark.parametrize("claimed", [0.5, 1.0, 20.0])
def test_an_epsilon_is_told_as_odds(claimed):
    bound = Interval(low=1.4567, high=math.inf, confidence=0.99, method="")
    result = typed(mechanisms.result("finding"), claim_epsilon=claimed)
    result = replace(result, tests=(replace(result.tests[0], interval=bound),))
    says = describe(result).meaning[0].says
    assert ("odds of 1 : 1 can become 4.2 : 1" in says) == (claimed < 1.4567)


@pytest.mark.parametrize(
    "details",
    [
        {"counts": 3, "likelier_at": 0, "success": {"right": "x", "of": 0}},
        {"counts": {"likelier": [1, 0]}, "likelier_at": 7, "intervals": "no"},
        {"success": {"right": 5, "of": 9}, "feasible_at_truth": {"first": "x"}},
    ],
)
def test_details_that_are_none_stop_no_report(details):
    test = mechanisms.line("event") | {"details": details}
    report = mechanism("no-finding", tests=[test], details=details, attack="reach")
    assert Page(render_page(report)).ordered
