"""Releases one a call, each call timed in the worker."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, UsageError
from dpaudit.interfaces import TimedMechanism
from dpaudit.samplers.endpoints.targets import Target
from dpaudit.samplers.endpoints.worker_main import Dispatcher, open_target
from dpaudit.samplers.resolve import open_mechanism


def timed(text, value, n, timeout=60.0):
    with open_mechanism(text, seed="1") as mechanism:
        assert isinstance(mechanism, TimedMechanism)
        return mechanism.release_timed(np.array(value, dtype=np.float64), n, timeout=timeout)


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("numpy:laplace", [1.0, 5.0]),
        ("stdlib:gauss", [1.0, 5.0, 9.0]),
        ("python-dp:laplace-int:epsilon=1", [3.0, 4.0]),
    ],
)
def test_libraries(text, value):
    released, seconds = timed(text, value, 400)
    assert released.shape == (400, len(value))
    assert seconds.shape == (400,)
    assert (seconds > 0).all()
    # integers at ε = 1: fewer than 6 distinct in 400 happens once in 10^12
    assert len(np.unique(released[:, 0])) > 5
    assert np.abs(np.median(released, axis=0) - value).max() < 6 * 10 / np.sqrt(400)


def test_a_mechanism_of_data_sets():
    pytest.importorskip("pydp")
    released, seconds = timed(
        "python-dp:bounded-sum:epsilon=1,lower_bound=0,upper_bound=1", [0.5, 1, 9], 50
    )
    assert released.shape == (50, 1)
    assert len(np.unique(released)) == len(seconds) == 50


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
        open_target(
            {"name": "x", **open_mechanism("scipy:dlaplace", seed="1")._spec}
        ).release_timed(np.array([0.5]), 3)


def test_a_target_without_timed_releases_says_so():
    spec = {"name": "x", "role": "mechanism"}
    asked = Dispatcher(Target(draw=lambda *_: None, release=lambda *_: 1, ours=True), spec)
    question = {"n": 1, "d": 1, "call": 0, "seconds": 1e9, "release": "AAAAAAAAAAA=", "timed": True}
    with pytest.raises(UsageError, match="mechanism x: has no timed releases"):
        asked.answer(question)
    assert asked.answer({**question, "timed": False}) == {"width": 1}
