"""From what runs showed to a verdict: it fails closed. Pipelines here are made up, but for two."""

import json
import math
from functools import partial
from types import SimpleNamespace

import pytest
from command_line import here as dpaudit

from dpaudit import replay
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.neighbour_search import Pair
from dpaudit.audit.options import ClaimOptions
from dpaudit.audit.replay import run as run_module
from dpaudit.audit.replay.evidence import Clock, Drawing, Evidence
from dpaudit.audit.replay.inside import server
from dpaudit.audit.replay.judge import Difference
from dpaudit.audit.replay.request import ReplayOptions
from dpaudit.audit.replay.run import _Judge
from dpaudit.errors import SamplerCrashError, SamplerError, UsageError
from dpaudit.provenance import collect
from dpaudit.report import describe
from dpaudit.types import Interval

EPSILON = partial(Interval, high=math.inf, confidence=0.99, method="by hand")
PLACE = {"name": "n", "in": "a.py:3", "at": "a.py:3", "call": 0}
LAPLACE = {**PLACE, "law": "laplace", "scale": 2.0, "l1": 1.0, "l2": 1.0}
RUN = {
    "raised": "", "where": "", "seconds": 0.01, "notes": [], "unseen": [], "changed": [],
    "booked": [], "draws": 1, "selects": 0, "repeats": [], "lost": [], "calls": [], "lines": [],
    "found": [], "moved": [],
}  # fmt: skip


class Fake:
    """A pipeline's process: ``of(data, what)`` says what a run answers, and fails if it raises."""

    name = "python:./a.py:run"

    def __init__(self, of=lambda data, what: {}):
        self.of, self.runs = of, []

    def tell(self, do, **how):
        return {"form": "records", "lines": {}, "hooks": []}

    def record(self, records, **how):
        return self._run(records, "record")

    def replay(self, records, **how):
        return self._run(records, "replay")

    def releases(self, records, n, **how):
        return [self._run(records, "release") for _ in range(n)]

    def _run(self, records, what):
        self.runs.append((what, tuple(records)))
        return {**RUN, **self.of(list(records), what)}


def evidence(pairs=4, *, beyond=False, **more):
    found = Evidence(draws=1, **more)
    for number in range(1, pairs + 1):
        found.tried[number] = Pair((1,), (1, number), f"pair {number}", beyond)
        found.moved[number] = [[]]
    return found


def differ(found, kind="sensitivity", number=1, **more):
    one = {**PLACE, "kind": kind, "first": "1", "second": "2", "path": "the release", **more}
    selects = bool(more.get("selects"))
    found.differences.append(Difference(one, found.tried[number], number, selects))
    return found


def judged(found, *, epsilon=1.0, delta=0.0, seconds=100.0, asked=4, child=None):
    options = ReplayOptions(data=[1], pairs=asked, seed="1", time_limit=1e6)
    claim = None if epsilon is None else PrivacyClaim(epsilon, delta)
    judge = _Judge(child or Fake(), options, claim, Clock(seconds), found)
    result = judge.result(judge.divergences(), collect(seed="1", plugins=()))
    assert describe(result).verdict == result.verdict
    return result


@pytest.fixture
def releases(monkeypatch):
    """New releases that show what a test says; the calls that asked for them."""
    calls = []

    def show(verdict="no-finding", low=0.0, reason="", error=None):
        def audit_pair(encoded, *, neighbours, claim, options):
            calls.append(SimpleNamespace(claim=claim, options=options))
            if error is not None:
                raise error
            return SimpleNamespace(
                verdict=verdict, epsilon=EPSILON(low=low), reason=reason, samples=4000
            )

        monkeypatch.setattr(run_module, "audit_pair", audit_pair)
        return calls

    return show


# -- the verdict -------------------------------------------------------------------------------


def test_runs_that_differ_in_nothing_are_no_finding():
    result = judged(evidence())
    assert (result.verdict, result.reason, result.epsilon) == ("no-finding", "", 0)
    assert "4 pairs of neighbours" in describe(result).headline


@pytest.mark.parametrize("beyond", [False, True])
def test_a_run_without_an_answer_is_never_a_pass(beyond):
    died = [("no answer within 10 s", Pair((1,), (1, 2), "the bad record", beyond))]
    result = judged(evidence(died=died))
    assert result.verdict == "inconclusive"
    assert "1 of 5 pairs" in result.reason
    assert "the bad record" in result.reason
    assert "within 10 s" in result.reason
    found = judged(differ(evidence(died=died)), seconds=0)
    assert found.verdict == "finding"
    assert any("within 10 s" in one for one in found.unseen)


@pytest.mark.parametrize(
    ("pairs", "asked", "verdict"),
    [
        (0, 1, "inconclusive"), (4, 5, "inconclusive"), (4, 40, "inconclusive"),
        (19, 40, "inconclusive"), (20, 40, "no-finding"), (5, 6, "no-finding"),
        (2, 4, "no-finding"), (1, 4, "inconclusive"),
    ],
)  # fmt: skip
def test_few_of_the_pairs_in_time_are_no_pass(pairs, asked, verdict):
    result = judged(evidence(pairs, late=True), asked=asked)
    assert result.verdict == verdict
    if verdict == "inconclusive":
        assert f"{pairs} of {asked} pairs" in result.reason
        assert "--time-limit" in result.reason
    else:
        assert f"{pairs} of the {asked} pairs" in describe(result).headline


def test_all_the_pairs_that_there_are_suffice():
    assert judged(evidence(2), asked=40).verdict == "no-finding"


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"changed": ["numpy"]}, "replaced"), ({"raised": "ValueError"}, "raises"),
        ({"unseen": {"native code: x": None}}, "no known noise"),
    ],
)  # fmt: skip
def test_what_was_not_seen_is_no_pass(more, word):
    found = evidence(**more)
    found.draws = 0
    result = judged(found)
    assert result.verdict == "inconclusive"
    assert word in result.reason


@pytest.mark.parametrize("kind", ["control flow", "shape", "exception"])
def test_no_epsilon_is_said_of_runs_that_parted(kind):
    assert judged(differ(evidence(), "release"), seconds=0).epsilon == 0
    assert judged(differ(evidence(), kind), seconds=0).epsilon is None
    assert judged(evidence(raised="ValueError")).epsilon is None


def test_replaced_hooks_take_findings_with_them():
    assert judged(differ(evidence(changed=["numpy"])), seconds=0).verdict == "inconclusive"


def test_a_claim_of_noise_with_an_unknown_law_cannot_be_checked(releases):
    releases("no-finding")
    found = evidence()
    found.moved[2] = [[{**LAPLACE, "law": "student-t"}, LAPLACE]]
    result = judged(found)
    assert (result.verdict, result.epsilon) == ("inconclusive", None)
    assert "a.py:3" in result.reason
    assert "student-t" in result.reason
    result = judged(found, epsilon=None)
    assert (result.verdict, result.epsilon) == ("no-finding", None)
    assert "not known" in describe(result).headline


# -- what new releases decide ------------------------------------------------------------------

DOUBTFUL = [
    {"kind": "release", "selects": 1}, {"kind": "release", "lost": True},
    {"kind": "control flow", "law": "integers"}, {"kind": "output", "lost": True},
]  # fmt: skip


@pytest.fixture(params=[*DOUBTFUL, None], ids=lambda p: "budget" if p is None else p["kind"])
def doubtful(request):
    """Evidence with one divergence that something may hide; None: more is spent than claimed."""
    found = evidence()
    if request.param is None:
        found.moved[3] = [[{**LAPLACE, "l1": 20.0}]]
        return found
    return differ(found, **request.param)


def test_a_doubt_that_releases_confirm_is_a_finding(doubtful, releases):
    calls = releases("finding", low=1.239)
    result = judged(doubtful)
    (one,) = result.findings
    assert result.verdict == "finding"
    assert one.says.endswith("New releases show ε ≥ 1.23 at δ = 0")
    assert one.epsilon.low == 1.239
    assert (calls[0].claim.epsilon, calls[0].options.alpha) == (1.0, 0.01)
    assert calls[0].options.time_limit > 50


def test_a_doubt_that_all_releases_contradict_is_advice(doubtful, releases):
    releases("no-finding")
    result = judged(doubtful)
    (one,) = result.divergences
    assert "4,000 new releases" in one.says
    if one.kind == "budget":  # a sum of stated laws above the claim is never a pass
        assert (result.verdict, one.outcome) == ("inconclusive", "undecided")
        return
    assert (result.verdict, one.outcome) == ("inconclusive", "advice")  # the claim has no ε here
    assert result.epsilon is None  # not 0, though no input of a primitive moved
    assert "the ε is not known" in result.reason


@pytest.mark.parametrize(
    ("moved", "delta"),
    [({}, 0.0), ({"law": "normal"}, 1e-5), ({"l1": 8.0, "l0": 3.0}, 1e-5)],
)
def test_released_sums_need_no_release_to_exceed_the_claim(moved, delta):
    found = evidence()
    found.moved[2] = [[{**LAPLACE, "l1": 4.0, "l2": 4.0, "l0": 1.0, "exact": True, **moved}]]
    result = judged(found, seconds=0, delta=delta)
    assert [(d.kind, d.outcome) for d in result.divergences] == [("budget", "finding")]
    found.moved[2][0][0]["exact"] = False
    assert judged(found, seconds=0, delta=delta).verdict == "inconclusive"


@pytest.mark.parametrize("how", ["no time", "raises", "inconclusive"])
def test_a_doubt_that_was_not_judged_is_no_pass(doubtful, releases, how):
    error = SamplerCrashError("it broke") if how == "raises" else None
    calls = releases("inconclusive", reason="the time was up", error=error)
    result = judged(doubtful, seconds=0.5 if how == "no time" else 100)
    assert result.verdict == "inconclusive"
    assert [d.outcome for d in result.divergences] == ["undecided"]
    word = {"no time": "no time", "raises": "it broke", "inconclusive": "time was up"}[how]
    assert word in result.reason
    assert len(calls) == (how != "no time")
    assert any(check.outcome == "undecided" for check in describe(result).checks)


def test_without_a_claim_an_epsilon_is_no_finding_by_itself(releases):
    calls = releases("finding", low=0.7)
    found = differ(evidence(), "release", selects=1)
    result = judged(found, epsilon=None)
    assert result.verdict == "inconclusive"
    assert "no claim" in result.reason
    assert (calls[0].claim.epsilon, calls[0].claim.delta) == (0.0, 0.0)


def test_what_is_sure_stays_a_finding_without_releases(releases):
    calls = releases(error=SamplerCrashError("it broke"))
    result = judged(differ(evidence()))
    assert (result.verdict, result.findings[0].epsilon, len(calls)) == ("finding", None, 1)
    assert judged(differ(evidence()), seconds=0).verdict == "finding"


def test_the_books_are_a_claim_of_their_own(releases):
    calls = releases("no-finding")
    found = evidence(booked=[(0.25, 0.0), (0.5, 1e-6)])
    found.moved[2] = [[{**LAPLACE, "l1": 4.0}]]
    result = judged(found, epsilon=None)
    assert (calls[0].claim.epsilon, calls[0].claim.delta) == (0.75, 1e-6)
    assert "booked 0.75" in result.divergences[0].says
    found.booked = [(math.inf, 0.0)]
    assert judged(found, epsilon=None).divergences == ()


def test_a_pair_beyond_the_domain_overspends_too(releases):
    releases("finding", low=5.0)
    found = evidence()
    found.tried[2] = Pair((1,), (1, math.nan), "a NaN", beyond=True)
    found.moved[1] = [[LAPLACE]]
    found.moved[2] = [[{**LAPLACE, "l1": "inf"}]]
    assert [d.pair for d in judged(found).findings] == [2]
    found.moved[1] = [[{**LAPLACE, "l1": 3.0}]]  # within the domain is better
    assert [d.pair for d in judged(found).findings] == [1]


def test_all_doubts_are_judged_and_share_time_and_level(releases):
    calls = releases("no-finding")
    found = evidence(8)
    for number in range(1, 9):
        differ(found, "release", number, selects=1, path=f"['{chr(96 + number)}']")
    assert judged(found, seconds=80, asked=8).verdict == "inconclusive"
    assert len(calls) == 8
    assert sum(call.options.alpha for call in calls) == pytest.approx(0.01)
    assert calls[0].options.time_limit == pytest.approx(10, rel=0.1)
    assert calls[-1].options.time_limit == pytest.approx(80, rel=0.1)  # what the others left
    differ(found, "sensitivity")
    del calls[:]
    assert judged(found, seconds=80, asked=8).verdict == "finding"
    assert len(calls) == 4  # with a finding, no more than is useful


def test_what_is_the_same_whatever_the_noise_needs_no_releases():
    child = Fake(lambda data, what: {"values": {"": float(len(data))}, "stdout": ""})
    found = differ(evidence(), "release", lost=True, selects=1)
    assert judged(found, child=child, seconds=0).verdict == "finding"


def test_noise_out_of_sight_counts_as_noise_of_its_law():
    def of(data, what):
        z = 0.7 * (len(child.runs) // 2)  # the same in a recording and its replay
        draw = {**PLACE, "law": "laplace", "scale": 4.0, "values": [z]}
        return {"values": {"": sum(data) + z}, "lost_values": [draw]}

    child = Fake(of)
    child.runs.append(None)
    found = differ(evidence(lost={"n at a.py:3": None}), "release", 1, lost=True, l1=1.0, l2=1.0)
    result = judged(found, child=child)
    assert (result.verdict, result.divergences, result.unseen) == ("no-finding", (), ())
    assert result.epsilon == pytest.approx(0.25)


# -- drawing -----------------------------------------------------------------------------------


def drawn(of, *, pairs=6, limit=100.0):
    child = Fake(of)
    options = ReplayOptions(data=[1, 2], pairs=pairs, seed="1", bounds=(0, 9))
    return Drawing(child, options, [1, 2, 3], Clock(limit)).draw(), child


def test_as_many_pairs_as_asked_for():
    found, child = drawn(lambda data, what: {"moved": [LAPLACE]})
    assert len(found.tried) == len(found.moved) == 6
    assert not found.died
    assert not found.late
    assert found.runs == len(child.runs) >= 8


@pytest.mark.parametrize("how", ["a run", "the process", "a recording"])
def test_what_died_is_kept_with_its_pair(how):
    def of(data, what):
        hit = data != [1, 2, 3] and (what == "record") == (how == "a recording")
        if hit and how == "the process":
            raise SamplerCrashError("it ended")
        return {"died": "it ended"} if hit else {}

    found, _ = drawn(of)
    assert len(found.tried) + len(found.died) == 6
    assert found.died
    why, pair = found.died[0]
    assert "it ended" in why
    assert ("recorded gave one" in why) == (how != "a recording")
    assert any(sorted(side) != [1, 2, 3] for side in (pair.first, pair.second))


def test_the_data_set_itself_must_run():
    with pytest.raises(SamplerError, match="it ended"):
        drawn(lambda data, what: {"died": "it ended"})


def test_no_time_is_told():
    found, _ = drawn(lambda data, what: {}, limit=0.0)
    assert (found.late, found.tried) == (True, {})


def test_what_a_data_set_shows_beside_itself_is_no_difference():
    clock = {**PLACE, "kind": "release", "path": "['time']", "first": "1", "second": "2"}
    real = {**clock, "path": "['total']"}
    found, _ = drawn(lambda data, what: {"found": [clock] if data == [1, 2, 3] else [clock, real]})
    assert {d.found["path"] for d in found.differences} == {"['total']"}
    assert any("time" in one for one in found.unseen)


# -- pipelines ---------------------------------------------------------------------------------

CODE = """
import os
import numpy as np

RNG = np.random.default_rng()

def ends_on_a_neighbour(data):
    if len(data) != 3:
        os._exit(0)
    return sum(data) + RNG.laplace(scale=100)

def ends(data):
    os._exit(0)
"""


@pytest.fixture
def pipelines(tmp_path, monkeypatch):
    (tmp_path / "ending.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "data.json").write_text("[1, 2, 3]", encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("pipelines")
def test_a_pipeline_that_ends_its_process_on_a_neighbour():
    result = replay("./ending.py:ends_on_a_neighbour", [1, 2, 3], pairs=4, form="records", seed="1")
    assert result.verdict == "inconclusive"
    assert "no answer" in result.reason
    assert "ended its process" in result.reason


@pytest.mark.slow
@pytest.mark.usefixtures("pipelines")
def test_a_pipeline_that_fails_is_an_inconclusive_result_in_json():
    done = dpaudit("replay", "./ending.py:ends", "--data", "data.json", "--format", "json",
                   "--seed", "1", "--claim-epsilon", "1")  # fmt: skip
    document = json.loads(done.stdout)
    assert done.returncode not in (0, 1, 2)
    assert document["verdict"] == "inconclusive"
    assert "ended its process" in document["reason"]
    assert document["provenance"]["command"].startswith("dpaudit replay")


@pytest.mark.usefixtures("pipelines")
def test_an_infinite_claim_promises_nothing():
    with pytest.raises(UsageError, match="promises nothing"):
        replay("./ending.py:ends", [1, 2, 3], epsilon=math.inf)


def test_a_command_asks_for_the_same():
    options = ReplayOptions(data="people.csv", seed="7", pairs=9)
    command = options.command("./a.py:run", ClaimOptions(epsilon=1.0))
    for part in ("dpaudit replay ./a.py:run", "--data people.csv", "--pairs 9", "--seed 7"):
        assert part in command


def test_coins_that_choose_are_tossed_again():
    """What only one toss of four shows counts, and the pair's ε is the largest of its runs."""
    told = iter(range(10_000))

    def of(data, what):
        rare = what == "replay" and next(told) % 4 == 3
        return {"selects": 1, "moved": [LAPLACE] if rare else []}

    found, _ = drawn(of, pairs=4)
    assert found.coins
    assert all(len(runs) == 4 for runs in found.moved.values())
    assert sum(bool(moved) for runs in found.moved.values() for moved in runs) >= 3
    assert judged(found).epsilon == pytest.approx(0.5)
    quiet, _ = drawn(lambda data, what: {"moved": []}, pairs=4)
    assert not quiet.coins
    assert all(len(runs) == 1 for runs in quiet.moved.values())


def test_a_run_that_takes_much_longer_on_a_neighbour_is_told_of():
    def of(data, what):
        return {"seconds": 3.0 if what == "replay" and 9 in data else 0.01}

    found, _ = drawn(of, pairs=12)
    assert any("time may show the data" in note for note in found.notes)
    assert judged(found).verdict == "no-finding"
    assert not drawn(lambda data, what: {})[0].notes


def test_a_recording_that_died_is_replayed_neither_now_nor_as_the_one_before(monkeypatch):
    told = []

    def in_fork(pipeline, job, record, limit):
        told.append(record)
        return {"died": "it ended"} if job.get("dies") else {"record": {"n": len(told)}}

    monkeypatch.setattr(server, "in_fork", in_fork)
    one = server.Server(None)
    replay_of = {"do": "replay", "of": "coins"}
    assert "died" in one.answer(replay_of)
    one.answer({"do": "record", "as": "coins"})
    one.answer(replay_of)
    assert told[-1] is not None
    assert "died" in one.answer({"do": "record", "as": "coins", "dies": True})
    before = len(told)
    assert "died" in one.answer(replay_of)
    assert len(told) == before
