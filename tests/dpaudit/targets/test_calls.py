"""Many small calls, another process of the same sampler, noise made for a value, and forks."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.protocols import Repeatable, Request
from dpaudit.targets import open_sampler
from dpaudit.targets.endpoints.worker import SourceTarget

COUNTS = """
    import time
    calls = 0
    def f(n, d):
        global calls
        calls += 1
        if calls == 3: time.sleep(0.05)
        return np.full((n, d), calls, dtype=kind)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "np.float32"])
def test_calls_arrive_in_order_each_with_its_time(kind, module):
    module(f"kind = {kind}\n" + COUNTS.replace("\n    ", "\n"))
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        assert isinstance(sampler, Repeatable)
        sampler.ask(Request(1, 1), timeout=20)
        reply = sampler.ask(Request(2, 3, calls=4), timeout=20)
        values, seconds = reply.values, reply.seconds
        np.testing.assert_array_equal(values, np.repeat([2.0, 3, 4, 5], 2)[:, None] * np.ones(3))
        assert sampler.ask(Request(1, 1), timeout=20).values == 6
    assert seconds.shape == (4,)
    assert seconds[1] >= 0.05
    assert (seconds > 0).all()


@pytest.mark.slow
def test_many_small_calls(module):
    module("rng = np.random.default_rng(1)\ndef f(n, d): return rng.standard_normal((n, d))")
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        reply = sampler.ask(Request(1, 8, calls=20_000), timeout=60)
        values, seconds = reply.values, reply.seconds
    np.testing.assert_array_equal(values, np.random.default_rng(1).standard_normal((20_000, 8)))
    assert (seconds > 0).all()


@pytest.mark.parametrize(
    ("body", "kind", "match"),
    [
        ("np.full((n, d), np.nan)", SamplerOutputError, "not finite"),
        ("np.ones(7)", SamplerOutputError, r"shape \(7,\), wanted \(n=2, d=3\)"),
        ("1 / 0", SamplerCrashError, r"raised ZeroDivisionError.*; call n=2, d=3\)"),
    ],
)
def test_one_wrong_answer_among_many_is_found(body, kind, match, ask):
    count = "import sys\nsys.calls = getattr(sys, 'calls', 0) + 1\n"
    with pytest.raises(kind, match=match):
        ask(f"{count}return {body} if sys.calls == 7 else np.ones((n, d))", 2, 3, calls=20)
    values = ask("import sys\nsys.calls = 0\nreturn np.ones((n, d))", 2, 3, calls=5)
    assert values.shape == (10, 3)
    with pytest.raises(UsageError, match="calls=0"):
        ask("return np.ones((n, d))", 1, 1, calls=0)


@pytest.mark.slow
def test_calls_that_take_too_long_end_in_time(module):
    module("import time\ndef f(n, d):\n time.sleep(0.1)\n return np.ones((n, d))")
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        assert sampler.facts
        with pytest.raises(SamplerTimeoutError):
            sampler.ask(Request(1, 1, calls=1000), timeout=0.3)


@pytest.mark.slow
def test_a_program_runs_once_a_call(here):
    code = "import os, sys, struct; sys.stdout.buffer.write(struct.pack('<2d', os.getpid() > 0, 2))"
    with open_sampler("command:" + shlex.join([sys.executable, "-c", code]), seed="1").open(
        timeout=60
    ) as sampler:
        assert isinstance(sampler, Repeatable)
        reply = sampler.ask(Request(1, 2, calls=3), timeout=20)
        values, seconds = reply.values, reply.seconds
        with pytest.raises(SamplerTimeoutError):
            sampler.ask(Request(1, 2, calls=1000), timeout=0.2)
        with sampler.again().open(timeout=60) as other:
            np.testing.assert_array_equal(other.ask(Request(1, 2), timeout=20).values, [[1, 2]])
    np.testing.assert_array_equal(values, [[1, 2]] * 3)
    assert (seconds > 0).all()


@pytest.mark.slow
def test_again_is_the_same_sampler_in_another_process(module):
    module(
        "import os\ncalls = 0\ndef f(n, d):\n global calls\n calls += 1\n"
        " return [[os.stat('.').st_ino, calls]] * n"
    )
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        first = sampler.ask(Request(1, 2), timeout=20).values
        with pytest.raises(UsageError, match="not open"):
            sampler.again().ask(Request(1, 2), timeout=20)
        with sampler.again().open(timeout=60) as other:
            np.testing.assert_array_equal(
                other.ask(Request(1, 2), timeout=20).values, first
            )  # its own first call
        assert other.name == sampler.name


def test_again_gives_an_honest_source_another_seed_every_time():
    sampler = open_sampler("gaussian", seed="7")
    assert isinstance(sampler, SourceTarget)
    first, second = sampler.again(), sampler.again()
    same = open_sampler("gaussian", seed="7").again()
    seeds = [one._spec["seed"] for one in (sampler, first, second, first.again(), same)]
    assert len(set(seeds)) == 4
    assert seeds[1] == seeds[4]


VALUE = (
    "def f(n, d, value): return value + np.full((n, d), 0.5)\n"
    "def plain(n, d): return np.ones((n, d))"
)


@pytest.mark.slow
def test_noise_made_for_a_value_is_what_was_returned_less_the_value(module):
    module(VALUE + "\ndef leaks(n, d, value=3.0): return value + np.full((n, d), abs(value))")
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        assert "noise for a value" in sampler.facts.accepts
        np.testing.assert_array_equal(
            sampler.ask(Request(2, 3, 1e9), timeout=20).values, np.full((2, 3), 0.5)
        )
        np.testing.assert_array_equal(
            sampler.ask(Request(2, 3), timeout=20).values, np.full((2, 3), 0.5)
        )
        with pytest.raises(UsageError, match="value=nan"):
            sampler.ask(Request(2, 3, float("nan")), timeout=20)
    with open_sampler("python:foreign:leaks", seed="1").open(timeout=60) as sampler:
        assert (sampler.ask(Request(2, 3, 8.0), timeout=20).values == 8).all()
        assert (sampler.ask(Request(2, 3), timeout=20).values == 0).all()


@pytest.mark.slow
def test_a_function_without_a_value_says_so(module):
    module(VALUE)
    with open_sampler("python:foreign:plain", seed="1").open(timeout=60) as sampler:
        assert "noise for a value" not in sampler.facts.accepts
        with pytest.raises(UsageError, match=r"value=1\.0: .* does not answer noise for a value"):
            sampler.ask(Request(2, 3, 1.0), timeout=20)
    unopened = open_sampler("python:foreign:f", seed="1")
    assert "noise for a value" not in unopened.facts.accepts


@pytest.mark.slow
def test_facts_wait_for_the_start_as_long_as_open_was_told(module):
    module("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n" + VALUE)
    target = open_sampler("python:foreign:f", seed="1")
    with (
        target.open(timeout=0.3) as sampler,
        pytest.raises(SamplerTimeoutError, match=r"timeout=0\.3 s while it was opened"),
    ):
        assert sampler.facts
    Path("go").touch()
    with target.open(timeout=60) as sampler:
        assert "noise for a value" in sampler.facts.accepts
        assert (sampler.ask(Request(2, 3), timeout=20).values == 0.5).all()


@pytest.mark.slow
def test_a_start_that_fails_is_told_by_start(module):
    module("1 / 0")
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        for _ in range(2):
            with pytest.raises(
                UsageError, match=r"division by zero; foreign\.py, line 2\); run from"
            ):
                assert sampler.facts
            with pytest.raises(UsageError, match="ZeroDivisionError"):
                sampler.ask(Request(1, 1), timeout=20)


@pytest.mark.slow
def test_shared_state_shows_after_a_fork(module):
    module(
        """
        rng = np.random.default_rng(1)
        def shared(n, d): return rng.standard_normal((n, d))
        def fresh(n, d): return np.random.default_rng().standard_normal((n, d))
        """
    )
    with open_sampler("python:foreign:shared", seed="1").open(timeout=60) as sampler:
        child, parent = np.split(sampler.ask(Request(10, 3, forked=True), timeout=20).values, 2)
        np.testing.assert_array_equal(child, parent)
        assert sampler.ask(Request(1, 3), timeout=20).values.shape == (1, 3)
    with open_sampler("python:foreign:fresh", seed="1").open(timeout=60) as sampler:
        child, parent = np.split(sampler.ask(Request(10, 3, forked=True), timeout=20).values, 2)
        assert (child != parent).all()


@pytest.mark.slow
@pytest.mark.parametrize("body", ["os._exit(1)", "time.sleep(99)", "return 'x'"])
def test_what_does_not_survive_a_fork_gives_none(body, module, monkeypatch):
    monkeypatch.setattr("dpaudit.targets.endpoints.worker._FORK_SECONDS", 0.3)
    module(
        "import os, time\nmain = os.getpid()\ndef f(n, d):\n"
        f" if os.getpid() != main: {body}\n return np.ones((n, d))"
    )
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        assert sampler.facts
        assert not sampler.ask(Request(4, 2, forked=True), timeout=60).values.size
        assert (sampler.ask(Request(4, 2), timeout=20).values == 1).all()


@pytest.mark.slow
def test_processes_started_ahead_are_handed_out_in_order_and_all_end():
    with open_sampler("gaussian", seed="7").open(timeout=60) as sampler:
        sampler.prepare(2)
        one, two = sampler.again(), sampler._prepared[0]
        first = one._process
        with one.open(timeout=60) as entered:
            assert entered._process is first is not None
            assert two._process is not None
        assert one._process is None
        assert [one._spec["seed"], two._spec["seed"]] == ["7/again/1", "7/again/2"]
    assert two._process is None
