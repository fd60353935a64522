"""Mechanisms in a process of their own: what is asked and released, at once or one by one."""

from __future__ import annotations

import time

import numpy as np
import pytest
from support.draws import release

from dpaudit.errors import (
    SamplerCrashError,
    SamplerOutputError,
    SamplerTimeoutError,
    UnknownNameError,
    UsageError,
)
from dpaudit.protocols import Request, Session
from dpaudit.targets.endpoints.callees import Callee, open_callee
from dpaudit.targets.endpoints.worker_main import Dispatcher
from dpaudit.targets.resolve import open_mechanism

ONE = np.array([1.0])
# seconds: what has its time limit ends long before on a busy machine, and what has none does not
LATEST = 15.0


@pytest.mark.slow
def test_a_value_of_one_number_is_told_as_a_float(module):
    module("""
        def f(value, n):
            assert type(value) is float and type(n) is int
            return [value] * n
    """)
    with open_mechanism("python:foreign:f", seed="1").open(timeout=60) as mechanism:
        assert isinstance(mechanism, Session)
        assert mechanism.name == "python:foreign:f"
        released = mechanism.ask(Request(3, input=np.array([2.5])), timeout=30).values
    assert released.dtype == np.float64
    np.testing.assert_array_equal(released, [[2.5]] * 3)


@pytest.mark.slow
def test_a_longer_value_is_told_as_an_array_of_its_own(module):
    module("""
        def f(value, n):
            assert value.shape == (4096,) and value.dtype == np.float64
            out = np.tile(value, (n, 1))
            value[:] = 0
            return out
    """)
    value = np.random.default_rng(1).standard_normal(4096)
    np.testing.assert_array_equal(release("python:foreign:f", value, 2), [value, value])


@pytest.mark.slow
def test_releases_may_have_any_length_and_one_process_serves_all_values(module):
    module("""
        import os
        calls = []
        def f(value, n):
            calls.append(n)
            k = int(value)
            if k == 1: return np.full(n, value)
            return np.array([[os.getpid(), len(calls)] + [value] * (k - 2)] * n)
    """)
    with open_mechanism("./foreign.py".join(["python:", ":f"]), seed="1").open(
        timeout=60
    ) as mechanism:
        seen = [
            mechanism.ask(Request(n, input=np.array([float(k)])), timeout=30).values
            for k, n in [(3, 2), (5, 1), (1, 7), (2, 3)]
        ]
    assert [x.shape for x in seen] == [(2, 3), (1, 5), (7, 1), (3, 2)]
    assert len({seen[i][0, 0] for i in (0, 1, 3)}) == 1
    # one call for one question, none to find out the length
    assert [seen[i][0, 1] for i in (0, 1, 3)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (
            "return np.zeros(n + 1)",
            r"shape \(5,\) \(release n=4 of m=1 numbers\); return an array .* \(n,\) or \(n, k\)",
        ),
        ("return np.zeros((n, 2, 2))", r"shape \(4, 2, 2\)"),
        ("return np.zeros((n, 0))", r"shape \(4, 0\)"),
        ("return 1.0", r"shape \(\)"),
        ("return np.array([0, 1, np.nan, np.inf])[:n]", r"2 of 4 .* \[2, 0\]=nan"),
    ],
)
def test_releases_that_are_not_rows_of_numbers(body, match, tell):
    with pytest.raises(SamplerOutputError, match=match):
        tell(body)


def test_an_exception_is_told_and_the_next_release_goes_on(tell):
    with pytest.raises(
        SamplerCrashError,
        match=r"^mechanism .* raised ValueError: no negative counts.*fix the mechanism",
    ):
        tell("raise ValueError('no negative counts')")
    assert tell("return np.full(n, value)", n=2).shape == (2, 1)


@pytest.mark.slow
def test_a_value_far_longer_than_a_pipe_cannot_hang_the_auditor(module):
    module("import time; time.sleep(1000)\ndef f(value, n): pass")
    start = time.monotonic()
    with pytest.raises(SamplerTimeoutError):
        release("python:foreign:f", np.zeros(4096), timeout=0.3)
    assert time.monotonic() - start < LATEST


def test_a_release_too_great_to_hold_is_refused(tell):
    with pytest.raises(SamplerOutputError, match=r"4 rows of 134217728 numbers; .* ask for fewer"):
        tell("return np.lib.stride_tricks.as_strided(np.zeros(1), (n, 1 << 27), (0, 0))")


@pytest.mark.parametrize(
    ("value", "n", "match"),
    [
        (np.zeros((2, 2)), 1, r"value of shape \(2, 2\)"),
        (np.zeros(4097), 1, r"1 to 4096 numbers"),
        (np.array([1.0, np.nan]), 1, "value=nan"),
        (ONE, 0, "n=0"),
    ],
)
def test_questions_that_cannot_be_asked(value, n, match, here):
    with pytest.raises(UsageError, match=match):
        # before anything is started
        open_mechanism("numpy:laplace", seed="1").ask(Request(n, input=value), timeout=5)


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        ("numpy:lapace", UnknownNameError, "did you mean 'laplace'"),
        ("numpy", UnknownNameError, "numpy has: normal"),
        ("http:///x", UsageError, "mechanism=http:///x: names no host"),
        ("file:a.npy", UsageError, "needs two files, of releases at the first"),
        (
            "command:true",
            UsageError,
            r"must be told the value; write \{value\} .* command:true --value=\{value\} \{n\}",
        ),
        ("python:./no.py:f", UsageError, "no such file"),
        ("numpy:laplace:scale=0", UsageError, "scale=0"),
    ],
)
def test_what_is_no_mechanism(text, kind, match, here):
    with pytest.raises(kind, match=match):
        open_mechanism(text, seed="1")


# ---------------------------------------------------------------- one by one, with seconds


def timed(text, value, n, timeout=60.0):
    with open_mechanism(text, seed="1").open(timeout=60) as mechanism:
        assert "releases in calls" in mechanism.facts.accepts
        value = np.array(value, dtype=np.float64)
        reply = mechanism.ask(Request(1, input=value, calls=n), timeout=timeout)
        return reply.values, reply.seconds


@pytest.mark.slow
def test_each_release_is_a_call_of_its_own_with_its_own_seconds(module):
    """Sleeps are never shorter than asked, so the lower bounds always hold."""
    module("""
        import time
        calls = []
        def f(value, n):
            calls.append(n)
            time.sleep(0.02 if len(calls) % 3 == 0 else 0)
            return np.array([[value, len(calls), n]])
    """)
    released, seconds = timed("python:foreign:f", [-2.5], 9)
    np.testing.assert_array_equal(released, [[-2.5, i + 1, 1] for i in range(9)])
    assert seconds.shape == (9,)
    assert (seconds > 0).all()
    assert (seconds[2::3] >= 0.02).all()


@pytest.mark.slow
def test_what_goes_wrong_is_told(module):
    module("""
        state = []
        def grows(value, n):
            state.append(1)
            return np.zeros((1, len(state)))
        def two(value, n): return np.zeros(2)
        def none(value, n): return np.full((1, 2), np.nan)
        def raises(value, n): raise ValueError("no negative counts")
    """)
    for function, kind, match in [
        ("grows", SamplerOutputError, r"returned shape \(1, 2, 3\) \(release n=1 of m=1 numbers\)"),
        ("none", SamplerOutputError, "nan"),
        ("raises", SamplerCrashError, "ValueError: no negative counts"),
    ]:
        with pytest.raises(kind, match=match):
            timed(f"python:foreign:{function}", [1.0], 3)
    with pytest.raises(UsageError, match=r"value=0\.5"):
        open_callee({"name": "x", **open_mechanism("scipy:dlaplace", seed="1")._spec}).once(
            np.array([0.5])
        )


def test_a_target_asked_for_what_it_lacks_says_so():
    spec = {"name": "x", "role": "mechanism"}
    worker = Dispatcher(Callee(release=lambda _, n: np.ones(n), ours=True), spec)
    question = {"n": 1, "d": 1, "call": 0, "seconds": 1e9, "release": "AAAAAAAAAAA="}
    with pytest.raises(UsageError, match="of another kind"):
        worker.answer({**question, "calls": 1})
    assert worker.answer(question).tolist() == [[1.0]]
