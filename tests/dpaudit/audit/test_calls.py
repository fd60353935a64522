"""Claims of one call, audited over several calls of one session."""

import itertools
import json
import math

import numpy as np
import pytest
from command_line import here as dpaudit

from dpaudit import audit_datasets, audit_mechanism
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.claims.tables import composed_pair
from dpaudit.audit.mechanism.request import MechanismRequest
from dpaudit.audit.options import DataOptions, MechanismOptions
from dpaudit.audit.request import Failure
from dpaudit.errors import SamplerOutputError, UsageError
from dpaudit.targets.functions import sessions


def hockey_stick(epsilon, each, delta, calls):
    """δ(ε) of so many calls of the worst mechanism with (``each``, ``delta``), term by term."""
    keep = (1 - delta) / (1 + math.exp(each))
    p = [delta, keep * math.exp(each), keep, 0.0]  # gives away, likelier, less likely, never
    q = [0.0, keep, keep * math.exp(each), delta]
    total = 0.0
    for outcome in itertools.product(range(4), repeat=calls):
        a = math.prod(p[i] for i in outcome)
        b = math.prod(q[i] for i in outcome)
        total += max(0.0, a - math.exp(epsilon) * b)
    return total


@pytest.mark.parametrize("calls", [2, 3, 5])
@pytest.mark.parametrize(("each", "delta"), [(0.7, 0.0), (0.4, 0.01)])
def test_a_curve_of_calls_is_that_of_the_worst_mechanism_at_its_corners(calls, each, delta):
    curve = composed_pair(each, delta, calls=calls)
    assert [e for e, _ in curve.pairs][-1] == calls * each
    assert len(curve.pairs) == calls // 2 + 1 + calls % 2  # ε = 0 too
    for epsilon, found in curve.pairs:
        assert found == pytest.approx(hockey_stick(epsilon, each, delta, calls), rel=1e-6, abs=1e-9)
    if delta == 0:
        assert curve.pairs[-1] == (calls * each, 0.0)


def test_the_other_claims_add_up():
    assert PrivacyClaim.of(None, rho=0.5).repeated(4).stated.rho == 2.0
    renyi = PrivacyClaim.of(None, renyi=(3, 0.25)).repeated(4).stated
    assert (renyi.order, renyi.divergence) == (3.0, 1.0)
    four = PrivacyClaim.of(None, mu=0.5).repeated(4)
    assert four.stated.mu == 1.0
    assert four.epsilon == pytest.approx(PrivacyClaim.of(None, mu=1.0).epsilon)
    assert (four.of_each, four.mu) == ("0.5-GDP", None)
    assert PrivacyClaim.from_options(four.options).mu == 1.0
    assert PrivacyClaim.of(0.0, 0.1).repeated(2).stated.pairs == ((0.0, pytest.approx(0.19)),)
    once = PrivacyClaim.of(1.0)
    assert once.repeated(1) is once


@pytest.mark.parametrize(
    ("how", "rho"),
    [
        ({}, 0.25),
        ({"calls": 2, "sessions": 2}, 1.0),
        ({"calls": 2, "sessions": 2, "together": True}, 0.25),
    ],
)
def test_where_nothing_is_drawn_the_claim_is_that_of_a_release(how, rho):
    claim, options = PrivacyClaim.of(None, rho=0.25), MechanismOptions(**how)
    request = MechanismRequest(claim=claim, data=DataOptions(neighbours="0,1"), options=options)
    result = request.inconclusive(Failure(name="m", reason="died"))
    assert (result.verdict, result.stated.value) == ("inconclusive", rho)


def test_a_release_is_the_calls_of_one_fresh_session():
    class Counts:
        def __init__(self):
            self.calls = 0

        def __call__(self, value):
            self.calls += 1
            value += 100  # a value of its own each time
            return [self.calls, value[0]]

    released = sessions(Counts, 3, name="Counts")
    for _ in range(2):
        assert released(np.array([1.0])).tolist() == [1, 101, 2, 101, 3, 101]


SESSIONS = """\
import numpy as np
rng = np.random.default_rng(5)
class Fresh:
    def __call__(self, value):
        return float(rng.random() < (0.75 if value else 0.25))
class Remembers:
    \"\"\"Its second answer and all after it are the truth.\"\"\"
    seen = 0
    def __call__(self, value):
        self.seen += 1
        return float(value) if self.seen > 1 and rng.random() < 0.5 else Fresh()(value)
"""


def audit(module, name, **options):
    given = {}
    exec(module, given)
    options = {k: given[v] if k == "adversary" else v for k, v in options.items()}
    run = audit_datasets if module is COUNTERS else audit_mechanism
    return run(given[name], seed=1, in_process=True, **options)


COUNTERS = """\
import random


def noisy(true):
    return round(true + random.expovariate(0.5) - random.expovariate(0.5))


class Shared:
    \"\"\"Two answers at ε = 0.5 in all, then None; claimed: ε = 1 together.\"\"\"

    def __init__(self):
        self.left = 2

    def __call__(self):
        def ask(data):
            if not self.left:
                return None
            self.left -= 1
            return noisy(len(data))

        return ask


class Apart:
    \"\"\"The flaw: each session has the whole budget.\"\"\"

    def __call__(self):
        return Shared()()


class Fresh:
    \"\"\"Sessions answer a weight times a noisy count; ε = 0.5 each.\"\"\"

    def __call__(self):
        return lambda data, weight: weight * noisy(len(data))


class Cached:
    \"\"\"The flaw: all sessions use the noise of the first, whatever is asked.\"\"\"

    def __init__(self):
        self.noise = noisy(0)

    def __call__(self):
        return lambda data, weight: weight * len(data) + self.noise


def differ(answers):
    return len(answers) % 2, 1 - 2 * (len(answers) % 2)
"""
EACH = {"epsilon": math.log(3)}, {"rho": 0.5493}, {"renyi": (2, 0.8473)}


@pytest.mark.slow
@pytest.mark.parametrize("claim", EACH, ids=str)
@pytest.mark.parametrize(("name", "verdict"), [("Fresh", "no-finding"), ("Remembers", "finding")])
def test_what_a_session_keeps_is_found_and_fresh_noise_is_not(claim, name, verdict):
    """Randomized response, at its claim exactly."""
    result = audit(SESSIONS, name, neighbours=(0, 1), calls=3, samples=5e3, **claim)
    assert result.verdict == verdict
    assert "in each of 3 calls" in result.stated.claim
    if result.stated.value is not None:
        assert "(claimed of all together: " in result.stated.says


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (SESSIONS, "Remembers", "--neighbours 0,1 --calls 3 --claim-epsilon 1.1"),
        (COUNTERS, "Cached", "--sessions 2 --adversary ./m.py:differ --claim-epsilon 0.5"),
    ],
)
def test_sessions_of_a_process_of_their_own(tmp_path, module, name, words):
    (tmp_path / "m.py").write_text(module)
    words = words.split()
    pair = [] if "--neighbours" in words else ["--neighbours=[1];[1, 2]"]
    args = ("mechanism", f"python:./m.py:{name}", *pair, *words, "--samples=1e4", "--seed=1")
    done = dpaudit(*args, "--format=json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert f"({words[-1]}, 0)-DP in each of " in result["stated"]["claim"]
    again = next(t["reproduce"] for t in result["tests"] if t["finding"])
    for option, value in zip(words[-4::2], words[-3::2], strict=True):
        assert f"{option} {value}" in again


def test_what_is_no_session_is_an_error_of_the_mechanism():
    with pytest.raises(SamplerOutputError, match="returned float; with calls=3"):
        audit_mechanism(float, calls=3, in_process=True, neighbours=(0, 1), rho=1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), [("Shared", "no-finding"), ("Apart", "finding")])
def test_a_budget_of_each_session_is_found_and_a_shared_one_is_not(name, verdict):
    asked = {"calls": 2, "sessions": 4, "together": True, "epsilon": 1, "samples": 4000}
    result = audit(COUNTERS, name, neighbours=([1], [1, 2]), **asked)
    assert result.verdict == verdict
    assert any("of 4 sessions at once, 2 calls each" in advice for advice in result.advice)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), [("Fresh", "no-finding"), ("Cached", "finding")])
def test_noise_shared_by_sessions_is_found_by_inputs_that_differ(name, verdict):
    asked = {"sessions": 2, "adversary": "differ", "epsilon": 0.5, "samples": 4000}
    result = audit(COUNTERS, name, neighbours=([1], [1, 2]), **asked)
    assert result.verdict == verdict
    assert "(0.5, 0)-DP in each of 2 calls" in result.stated.claim


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("numpy:laplace", {"calls": 3}, "only python:MODULE:FUNCTION makes sessions"),
        ("scores:s.npz", {"sessions": 2}, "sessions=2: recorded scores have no sessions"),
        (float, {"calls": 3, "epsilon": None, "f": "0.1,0.5"}, "a table is not composed"),
        (float, {"calls": 3, "mu": 1}, "ε and μ are composed apart"),
        (float, {"calls": 3, "call": "f(value)"}, "leave --call out"),
        (lambda value: value, {"calls": 3}, "needs an argument"),
        (float, {"sessions": 0}, "sessions=0"),
        (float, {"calls": 0}, "calls=0"),
        (float, {"sessions": 50, "calls": 50}, "a release is 2,500 calls; 1,000 at most"),
        (float, {"together": True}, "there is nothing to claim together"),
        (float, {"sessions": 2, "attack": "reach"}, "attack=reach: sees one release"),
        (float, {"adversary": "m:f"}, "adversary=m:f"),
        ("python:math:sin", {"adversary": len}, "adversary: a function"),
    ],
)
def test_sessions_that_do_not_fit_are_refused(name, given, says):
    given = {"epsilon": 1, "neighbours": (0, 1), **given}
    with pytest.raises(UsageError, match=says):
        audit_mechanism(name, in_process=None if isinstance(name, str) else True, **given)
