from __future__ import annotations

import re
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from support.draws import draw

from dpaudit.errors import (
    SamplerCrashError,
    SamplerOutputError,
    SamplerTimeoutError,
    UsageError,
)
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.endpoints.callees import named_function


@pytest.mark.slow
def test_values_arrive_in_order(module):
    module("class C:\n f = staticmethod(lambda n, d: np.arange(n * d).reshape(n, d))")
    values = draw("python:./foreign.py:C.f", 5, 3)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, np.arange(15.0).reshape(5, 3))


@pytest.mark.slow
def test_a_big_block_arrives_whole(ask):
    values = ask("return np.arange(n * d, dtype=float).reshape(n, d)", 1000, 2000)
    np.testing.assert_array_equal(values, np.arange(2e6).reshape(1000, 2000))


@pytest.mark.slow
def test_functions_with_a_size_are_called_by_size(here):
    values = draw("python:numpy.random:normal", 50, 3)
    assert values.shape == (50, 3)
    assert len(np.unique(values)) == 150


@pytest.mark.slow
def test_one_column_may_be_flat_and_lists_will_do(ask):
    np.testing.assert_array_equal(ask("return list(range(n))", 3, 1), [[0.0], [1.0], [2.0]])


@pytest.mark.slow
def test_printing_and_reading_standard_input_do_no_harm(module):
    module(
        """
        import os, sys
        print("importing")
        def f(n, d):
            print("x" * 200_000, flush=True)
            os.write(1, b"dpa1 garbage")
            assert sys.stdin.read() == ""
            os.system("echo from a child")
            return np.zeros((n, d))
        """
    )
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        for _ in range(2):
            assert (sampler.ask(Request(2, 2), timeout=20).values == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "where"),
    [
        (
            "def f(n, d): raise ValueError('bad\\nweather')",
            "raised ValueError: bad weather (foreign.py, line 2; call",
        ),
        ("def f(n, d):\n    return g(n)\ndef g(n):\n    return n / 0", "(foreign.py, line 5; call"),
        ("import json\ndef f(n, d):\n    return json.loads('x')", "(foreign.py, line 4; call"),
        (
            "def f(n, d):\n    exec(compile('1 / 0', '/x/\\x1b[31mred\\n.py', 'exec'))",
            "(�[31mred .py, line 1; call",
        ),
    ],
)
def test_an_exception_says_where(body, where, module):
    """The innermost line of the sampler's own, without folders and control characters."""
    module(body)
    with (
        open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler,
        pytest.raises(SamplerCrashError, match=re.escape(f"{where} n=3, d=2)")) as caught,
    ):
        sampler.ask(Request(3, 2), timeout=20)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("body", ["raise KeyboardInterrupt", "raise SystemExit"])
def test_exceptions_that_end_programs_end_no_worker(body, ask):
    with pytest.raises(
        SamplerCrashError, match=body.replace("raise", "raised") + r".*; call n=4, d=2\)"
    ):
        ask(body)
    assert ask("return np.ones((n, d))").all()


def test_a_dead_worker_stays_dead(module):
    module("import os\ndef f(n, d): print('the floor is lava', flush=True); os._exit(3)")
    with open_sampler("python:foreign:f", seed="1").open(timeout=60) as sampler:
        for match in (r"exit status 3.*floor is lava.*\(call n=2, d=2\)", "stopped earlier"):
            with pytest.raises(SamplerCrashError, match=match):
                sampler.ask(Request(2, 2), timeout=20)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("np.zeros(5)", r"returned shape \(5,\), wanted \(n=4, d=2\)"),
        ("np.zeros((2, 4))", r"returned shape \(2, 4\), wanted"),
        ("None", "type=NoneType"),
        ("np.array([[1, 'a']] * 4)", "not real numbers"),
        ("np.zeros((4, 2), dtype=complex)", "complex128"),
        ("[[1, 2], [3]]", "not an array"),
        (
            "np.array([[1, 2], [3, np.nan], [np.inf, 0], [0, 0]])",
            r"2 of 8 .* first is \[1, 1\]=nan",
        ),
    ],
)
def test_wrong_answers_say_what_was_wanted(body, match, ask):
    with pytest.raises(SamplerOutputError, match=match):
        ask(f"return {body}")


@pytest.mark.parametrize(
    ("place", "member", "match"),
    [
        ("no_such_module", "f", "module=no_such_module.*No module named"),
        ("foreign", "number", "number.*not callable"),
        ("./broken.py", "f", "module=./broken.py.*ZeroDivisionError"),
        ("exits", "f", "module=exits.*SystemExit: 0"),
    ],
)
def test_what_cannot_be_found_is_the_users_slip(place, member, match, module, monkeypatch):
    monkeypatch.syspath_prepend(".")
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    module("number = 3")
    module("1 / 0", "broken.py")
    module("raise SystemExit(0)", "exits.py")
    with pytest.raises(UsageError, match=match) as caught:
        named_function(place, member)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_slip_is_said_by_the_auditor(module):
    module("def gaussian(n, d): pass")
    with pytest.raises(UsageError, match=r"function=guassian.*did you mean 'gaussian'"):
        draw("python:foreign:guassian")


def test_a_missing_file_is_found_at_once(here):
    with pytest.raises(UsageError, match=r"module=./no.py"):
        open_sampler("python:./no.py:f", seed="1")


@pytest.mark.slow
def test_leaving_the_block_leaves_nothing_even_of_its_children(module, marker, alive, present):
    module(
        """
        import subprocess, sys
        def f(n, d):
            code = "import time; time.sleep(999)"
            subprocess.Popen([sys.executable, "-c", code, __file__ + "-child"])
            return np.zeros((n, d))
        """,
        f"{marker}.py",
    )
    with open_sampler(f"python:./{marker}.py:f", seed="1").open(timeout=60) as sampler:
        sampler.ask(Request(1, 1), timeout=20)
        assert present(f"{marker}.py-child")
    assert not alive(marker)


@pytest.mark.slow
def test_it_outlives_the_thread_that_opened_it(module):
    module("def f(n, d): return np.ones((n, d))")
    sampler = open_sampler("python:foreign:f", seed="1")
    opened = sampler.open(timeout=60)
    thread = threading.Thread(target=opened.__enter__)
    thread.start()
    thread.join()
    time.sleep(0.2)  # the supervisor looks every 0.05 s
    try:
        assert (sampler.ask(Request(1, 1), timeout=20).values == 1).all()
    finally:
        opened.__exit__(None, None, None)


@pytest.mark.slow
def test_no_descriptor_is_left_open(module):
    module("def f(n, d): return np.ones((n, d))")
    draw("python:foreign:f")
    before = psutil.Process().num_fds()
    draw("python:foreign:f")
    assert psutil.Process().num_fds() == before


@pytest.mark.slow
def test_the_start_and_noise_for_a_value_share_one_time_limit(module):
    module(
        "import time\ntime.sleep(1.5)\n"
        "def f(n, d, value):\n    time.sleep(1.5)\n    return np.full((n, d), value)"
    )
    target = open_sampler("python:./foreign.py:f", seed="1")
    with target.open(timeout=60) as sampler, pytest.raises(SamplerTimeoutError):
        sampler.ask(Request(2, 2, 1.0), timeout=2.6)
