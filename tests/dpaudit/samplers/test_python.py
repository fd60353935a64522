from __future__ import annotations

import re
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from dpaudit.errors import SamplerCrashError, SamplerOutputError, SamplerTimeoutError, UsageError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.endpoints.targets import named_function


def draw(text, n=4, d=2, timeout=20):
    with open_sampler(text, seed="1") as sampler:
        return sampler.draw(n, d, timeout=timeout)


def test_values_arrive_in_order(module):
    module("class C:\n f = staticmethod(lambda n, d: np.arange(n * d).reshape(n, d))")
    values = draw("python:./foreign.py:C.f", 5, 3)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, np.arange(15.0).reshape(5, 3))


def test_a_big_block_arrives_whole(ask):
    values = ask("return np.arange(n * d, dtype=float).reshape(n, d)", 1000, 2000)
    np.testing.assert_array_equal(values, np.arange(2e6).reshape(1000, 2000))


def test_the_same_process_answers_all_calls(module):
    module(
        """
        calls = 0
        def f(n, d):
            global calls
            calls += 1
            return np.full((n, d), calls)
        """
    )
    with open_sampler("python:foreign:f", seed="1") as sampler:
        assert (sampler.dim, sampler.available, sampler.name) == (None, None, "python:foreign:f")
        first, second = sampler.draw(2, 2, timeout=20), sampler.draw(3, 1, timeout=20)
    assert (first == 1).all()
    assert (second == 2).all()
    assert second.shape == (3, 1)


def test_functions_with_a_size_are_called_by_size(here):
    values = draw("python:numpy.random:normal", 50, 3)
    assert values.shape == (50, 3)
    assert len(np.unique(values)) == 150


def test_one_column_may_be_flat_and_lists_will_do(ask):
    np.testing.assert_array_equal(ask("return list(range(n))", 3, 1), [[0.0], [1.0], [2.0]])


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
    with open_sampler("python:foreign:f", seed="1") as sampler:
        for _ in range(2):
            assert (sampler.draw(2, 2, timeout=20) == 0).all()


def test_an_exception_is_one_line_and_the_worker_lives_on(module):
    module(
        """
        def f(n, d):
            if n == 3: raise ValueError("bad\\nweather")
            return np.ones((n, d))
        """
    )
    with open_sampler("python:foreign:f", seed="1") as sampler:
        with pytest.raises(SamplerCrashError) as caught:
            sampler.draw(3, 2, timeout=20)
        assert (sampler.draw(2, 2, timeout=20) == 1).all()
    assert "raised ValueError: bad weather (foreign.py, line 4; call n=3, d=2)" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("def f(n, d):\n    return g(n)\ndef g(n):\n    return n / 0", "foreign.py, line 5; call"),
        ("import json\ndef f(n, d):\n    return json.loads('x')", "foreign.py, line 4; call"),
        (
            "def f(n, d):\n    exec(compile('1 / 0', '/x/\\x1b[31mred\\n.py', 'exec'))",
            "�[31mred .py, line 1; call",
        ),
    ],
)
def test_an_exception_says_where(body, where, module):
    """The innermost line of the sampler's own, without folders and control characters."""
    module(body)
    with (
        open_sampler("python:foreign:f", seed="1") as sampler,
        pytest.raises(SamplerCrashError, match=re.escape(f"({where} n=3, d=2)")) as caught,
    ):
        sampler.draw(3, 2, timeout=20)
    assert str(caught.value).isprintable()


def test_an_import_that_fails_says_where(module):
    module("import json\n\n1 / 0")
    with (
        open_sampler("python:foreign:f", seed="1") as sampler,
        pytest.raises(UsageError, match=r"division by zero; foreign\.py, line 4\); run from"),
    ):
        sampler.start(timeout=20)


@pytest.mark.parametrize("body", ["raise KeyboardInterrupt", "raise SystemExit"])
def test_exceptions_that_end_programs_end_no_worker(body, ask):
    with pytest.raises(
        SamplerCrashError, match=body.replace("raise", "raised") + r".*; call n=4, d=2\)"
    ):
        ask(body)
    assert ask("return np.ones((n, d))").all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("__import__('os')._exit(3)", "exit status 3"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "signal SIGKILL"),
        (
            "print('the floor is lava', flush=True); __import__('os')._exit(1)",
            "floor is lava",
        ),
        ("__import__('os').closerange(3, 100)", "raised OSError|closed the channel|process ended"),
        (
            "[__import__('os').write(k, b'0' * 64) for k in range(4, 9) if k != 6]",
            "raised OSError|something else wrote",
        ),
    ],
)
def test_ends_of_the_process_are_crashes(body, match, module, marker, alive):
    module(f"def f(n, d): {body}", f"{marker}.py")
    with open_sampler(f"python:./{marker}.py:f", seed="1") as sampler:
        with pytest.raises(SamplerCrashError, match=match) as caught:
            sampler.draw(2, 2, timeout=20)
        assert "n=2, d=2" in str(caught.value)
    assert not alive(marker)


def test_a_dead_worker_stays_dead(module):
    module("def f(n, d): __import__('os')._exit(3)")
    with open_sampler("python:foreign:f", seed="1") as sampler:
        for match in ("exit status 3", "stopped earlier"):
            with pytest.raises(SamplerCrashError, match=match):
                sampler.draw(2, 2, timeout=20)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("np.zeros(5)", r"returned shape \(5,\), wanted \(n=4, d=2\)"),
        ("np.zeros((2, 4))", r"returned shape \(2, 4\), wanted"),
        ("np.zeros((4, 2, 1))", r"shape \(4, 2, 1\)"),
        ("np.zeros((5, 2))", r"shape \(5, 2\)"),
        ("None", "type=NoneType"),
        ("np.array([[1, 'a']] * 4)", "not real numbers"),
        ("np.array([[1, None]] * 4, dtype=object)", "dtype=object"),
        ("np.zeros((4, 2), dtype=complex)", "complex128"),
        ("[[1, 2], [3]]", "not an array"),
        (
            "np.array([[1, 2], [3, np.nan], [np.inf, 0], [0, 0]])",
            r"2 of 8 .* first is \[1, 1\]=nan",
        ),
        ("np.full((4, 2), -np.inf)", r"8 of 8 .* \[0, 0\]=-inf"),
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


def test_a_slip_is_said_by_the_auditor(module):
    module("def gaussian(n, d): pass")
    with pytest.raises(UsageError, match=r"function=guassian.*did you mean 'gaussian'"):
        draw("python:foreign:guassian")


def test_a_missing_file_is_found_at_once(here):
    with pytest.raises(UsageError, match=r"module=./no.py"):
        open_sampler("python:./no.py:f", seed="1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import time\ndef f(n, d): time.sleep(1000)",
        "import time\ntime.sleep(1000)",
        "def f(n, d):\n while True: print('x' * 1000)",
        "import subprocess, sys\ndef f(n, d):\n"
        " subprocess.run([sys.executable, '-c', 'import time; time.sleep(999)', MARK])",
    ],
)
def test_silence_ends_in_time_and_leaves_nothing(code, module, marker, ends_in_time):
    module(f"MARK = '{marker}'\n{code}", f"{marker}.py")
    ends_in_time(f"python:./{marker}.py:f", marker)


def test_after_a_time_out_the_worker_stays_dead(module):
    module("def f(n, d): __import__('time').sleep(1000)")
    with open_sampler("python:foreign:f", seed="1") as sampler:
        with pytest.raises(SamplerTimeoutError):
            sampler.draw(4, 2, timeout=0.1)
        with pytest.raises(SamplerCrashError, match="stopped earlier"):
            sampler.draw(4, 2, timeout=0.1)


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
    with open_sampler(f"python:./{marker}.py:f", seed="1") as sampler:
        sampler.draw(1, 1, timeout=20)
        assert present(f"{marker}.py-child")
    assert not alive(marker)


def test_it_outlives_the_thread_that_opened_it(module):
    module("def f(n, d): return np.ones((n, d))")
    sampler = open_sampler("python:foreign:f", seed="1")
    thread = threading.Thread(target=sampler.__enter__)
    thread.start()
    thread.join()
    time.sleep(0.2)  # the supervisor looks every 0.05 s
    try:
        assert (sampler.draw(1, 1, timeout=20) == 1).all()
    finally:
        sampler.__exit__(None, None, None)


def test_no_descriptor_is_left_open(module):
    module("def f(n, d): return np.ones((n, d))")
    draw("python:foreign:f")
    before = psutil.Process().num_fds()
    draw("python:foreign:f")
    assert psutil.Process().num_fds() == before
