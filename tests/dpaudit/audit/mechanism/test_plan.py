"""The stages of an audit of a mechanism alone: request, plan, open, judge, conclude."""

import math

import numpy as np
import pytest
from support.in_process import InProcess

from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.request import MechanismRequest
from dpaudit.audit.mechanism.run import (
    audit_subject,
    conclude,
    judge_planned,
    open_planned,
    plan_audit,
)
from dpaudit.audit.options import DataOptions, MechanismOptions
from dpaudit.audit.request import Failure
from dpaudit.errors import UsageError
from dpaudit.targets.callables import Subject

EPSILON_1 = PrivacyClaim(1.0, 0.0)


def request_of(neighbours="0,1", *, attack=None, data=None, **options):
    return MechanismRequest(
        claim=EPSILON_1,
        data=DataOptions(neighbours=neighbours, **(data or {})),
        attack=attack,
        options=MechanismOptions(samples=4_000, seed="7", **options),
    )


def laplace(scale, calls):
    rng = np.random.default_rng(3)

    def release(value, n):
        calls.append(n)
        return np.round((value + rng.laplace(0, scale, n)) * 2**20) / 2**20

    return release


def test_the_stages_of_an_audit_by_themselves():
    """Nothing is released before the mechanism is judged, and nothing after."""
    calls = []
    subject = Subject("mine (in this process)", function=laplace(0.3, calls))
    plan = plan_audit(subject, request_of())
    assert (plan.question, plan.attack, plan.claim) == (None, None, EPSILON_1)
    assert [v.tolist() for v in plan.neighbours] == [[0.0], [1.0]]
    with open_planned(plan).open(timeout=60) as mechanism:
        assert mechanism.name == "mine (in this process)"
        assert not calls
        result = judge_planned(plan, mechanism)
    assert (result.verdict, result.samples) == ("finding", 8_000)
    assert sum(calls) == 8_000
    assert not any(test.reproduce for test in result.tests)
    again = conclude(plan, result, sandbox="").tests
    call = "dpaudit.audit_mechanism(…, epsilon=1.0, neighbours='0,1', samples=4000, seed='7')"
    assert {test.reproduce for test in again if test.finding} == {call}
    assert audit_subject(subject, request_of()).verdict == "finding"


def test_the_judge_takes_any_opened_mechanism():
    """As planned for one that is opened elsewhere: what it is called does not matter."""
    plan = plan_audit(Subject("numpy:laplace", target="numpy:laplace"), request_of())
    rng = np.random.default_rng(5)
    honest = InProcess(lambda v, n: np.round((v + rng.laplace(0, 1.0, (n, 1))) * 2**20) / 2**20)
    assert judge_planned(plan, honest).verdict == "no-finding"
    finding = judge_planned(plan, InProcess(lambda v, n: v + rng.integers(0, 2, (n, 1))))
    assert finding.verdict == "finding"
    (command,) = {t.reproduce for t in conclude(plan, finding, sandbox="full").tests if t.finding}
    assert command == (
        "dpaudit mechanism numpy:laplace --claim-epsilon 1 --neighbours 0,1 --samples 4000 --seed 7"
    )


def test_a_plan_says_what_a_release_is():
    def sessions():
        return lambda value: value

    subject = Subject("s", function=sessions)
    calls = plan_audit(subject, request_of(calls=4))
    assert (calls.question, calls.claim.of_each) == (None, "(1, 0)-DP")
    assert math.isclose(calls.claim.epsilon, 4.0)
    together = plan_audit(subject, request_of(calls=4, together=True))
    assert together.claim == EPSILON_1
    several = plan_audit(subject, request_of(sessions=2))
    assert (several.question.pair, several.question.of_queries) == ((0.0, 1.0), True)
    files = plan_audit(subject, request_of("[1];[1, 2]"))
    assert (files.question.pair, files.neighbours) == (([1], [1, 2]), None)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (lambda: request_of(guesses=3), "guesses=3: belongs to a one-run audit"),
        (lambda: request_of(None, sessions=2), "neighbours=None: with --sessions 2 two query"),
        (lambda: request_of(sessions=2, attack="reach"), "attack=reach: sees one release"),
        (lambda: request_of("[1];[2]", attack="reach"), "attack: computes with query results"),
        (lambda: request_of("0,0"), "neighbours=0,0: they are equal"),
    ],
)
def test_options_that_do_not_go_together_fail_before_anything_is_opened(request_, message):
    with pytest.raises(UsageError, match=message):
        plan_audit(Subject("numpy:laplace", target="numpy:laplace"), request_())


def test_neighbours_are_checked_when_the_mechanism_is_opened():
    """A recording brings its own, so a plan without any is none too few."""
    plan = plan_audit(Subject("numpy:laplace", target="numpy:laplace"), request_of(None))
    with pytest.raises(UsageError, match="neighbours=None: numpy:laplace is compared at two"):
        open_planned(plan)


def test_a_request_writes_its_own_command(tmp_path):
    text = "dpaudit mechanism t --claim-epsilon 1 --neighbours"
    how = "--samples 4000 --seed 7"
    assert request_of().command("t") == f"{text} 0,1 {how}"
    assert request_of((0, 0.25)).command("t") == f"{text} '0.0;0.25' {how}"
    assert request_of(([1], ["a"])).command("t") == f"{text} '[1];[\"a\"]' {how}"
    file = tmp_path / "a.csv"
    file.write_text("age\n1\n2\n")
    search = request_of("search", data={"dataset": file, "features": "m:f"})
    assert search.command("t") == f"{text} search --dataset {file} --features m:f {how}"
    result = search.inconclusive(Failure(name="t", reason="died"))
    assert (result.reason, result.samples_requested, result.details) == ("died", 4_000, {})
