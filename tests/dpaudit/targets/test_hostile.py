"""Samplers that misbehave: a draw ends in time, says why, and leaves nothing; so do some audits.

What a wrong answer is called, and what a plain crash, is in ``test_python.py``; every sampler of
both tables is audited in ``tests/hostile/test_soak.py``.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading
import time

import pytest
from command_line import here as command_line
from support.rude_samplers import COMMAND, HARD, HEAD, LATE, PYTHON, SLEEP, indent

from dpaudit.errors import SamplerError, SamplerTimeoutError
from dpaudit.protocols import Request
from dpaudit.targets import open_sampler
from dpaudit.targets.sandbox import process

LIMIT = 2.0  # of an audit, the start of the sampler included
SOON = 0.4  # of a draw by a sampler that has started
# 5 s are promised where nothing else runs; this tells an end from none on a busy machine too
GRACE = 60.0


def program(code: str, *words: str) -> str:
    return "command:" + shlex.join([sys.executable, "-S", "-c", HEAD + code, *words])


def audit(text: str, reason: str) -> None:
    words = "--claim gaussian:sigma=1 --samples 10000 --seed 1 --tests moments --format json"
    started = time.monotonic()
    done = command_line("audit", text, *words.split(), "--time-limit", LIMIT)
    assert time.monotonic() - started < LIMIT + GRACE
    assert done.returncode == 3
    said = json.loads(done.stdout)["reason"]
    # the latter on a busy machine
    assert re.search(f"{reason}|the time limit of {LIMIT:g} s was reached", said), said


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hangs", "raises", "fork bomb"])
def test_an_audit_of_a_function_that_means_harm(how, module, marker, alive):
    code, reason = PYTHON[how]
    module(f"{HEAD}def f(n, d):\n{indent(code)}", f"{marker}.py")
    audit(f"python:./{marker}.py:f", reason)
    assert not alive(marker)


@pytest.mark.slow
def test_an_audit_of_a_program_that_means_harm(here, marker, alive):
    code, reason = COMMAND["closes its output"]
    audit(program(code, marker), reason)
    assert not alive(marker)


def fails(how: str, marker: str, module, alive) -> None:
    """It started, it ends soon, for its own reason, and nothing of it is left."""
    code, reason = PYTHON[how]
    module(f"{HEAD}def f(n, d):\n{indent(code)}", f"{marker}.py")
    with open_sampler(f"python:./{marker}.py:f", seed="1").open(timeout=60) as sampler:
        assert sampler.facts
        limit = SOON if LATE in reason else 30
        started = time.monotonic()
        with pytest.raises(SamplerError, match=reason) as caught:
            sampler.ask(Request(4, 2), timeout=limit)
        assert time.monotonic() - started < limit + GRACE
        if LATE in str(caught.value):
            assert not alive(marker)  # at once, not when the block is left
            with pytest.raises(SamplerError, match="stopped earlier"):
                sampler.ask(Request(4, 2), timeout=limit)
    assert not alive(marker)


SIMPLE = {"crashes", "raises", "nan", "inf", "complex", "too few", "floods standard error"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in PYTHON if how not in SIMPLE])
def test_a_function_that_means_harm(how, module, marker, alive):
    fails(how, marker, module, alive)


@pytest.mark.parametrize("how", ["garbage", "too much", "fails", "endless file"])
def test_a_program_that_means_harm(how, here, marker, alive):
    code, reason = COMMAND[how]
    text = program(code, marker)
    with (
        open_sampler(text, seed="1").open(timeout=60) as sampler,
        pytest.raises(SamplerError, match=reason),
    ):
        sampler.ask(Request(1250, 8), timeout=60)
    assert not alive(marker)


def import_that_sleeps(module, marker):
    module("import time\ntime.sleep(1000)", f"{marker}.py")
    return f"python:./{marker}.py:f"


CHILD = f"subprocess.run([sys.executable, '-c', 'import time; {SLEEP}', *sys.argv])"
SILENT = {
    "import": import_that_sleeps,
    "child": lambda _, marker: program(CHILD, marker),
    "all but a byte": lambda _, marker: program(f"os.write(1, bytes(63)); {SLEEP}", marker),
    "all and no end": lambda _, marker: program(
        f"os.write(1, bytes(64)); os.close(1); {SLEEP}", marker
    ),
    "standard error": lambda _, marker: program("while True: os.write(2, b'x' * 10000)", marker),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", SILENT)
def test_silence_ends_in_time_and_leaves_nothing(how, module, marker, alive, present):
    """At a longer limit, if it had not begun: if there was no process with ``marker`` in it."""
    text, begun = SILENT[how](module, marker), []
    for limit in (0.5, 20.0):
        watch = threading.Timer(0.8 * limit, lambda: begun.append(present(marker, seconds=0)))
        with open_sampler(text, seed="1").open(timeout=60) as sampler:
            watch.start()
            start = time.monotonic()
            with pytest.raises(
                SamplerTimeoutError, match=rf"timeout={limit:g} s.*\(call n=4, d=2\)"
            ):
                sampler.ask(Request(4, 2), timeout=limit)
            assert limit <= time.monotonic() - start < limit + GRACE
            assert not alive(marker)
        watch.join()
        if any(begun):
            return
    pytest.fail("the sampler never began")


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in HARD if how != "hangs"])
@pytest.mark.parametrize(
    "level", ["plain", pytest.param("none", marks=pytest.mark.slow)]
)  # ended by the same supervisor
def test_without_namespaces_nothing_is_left_either(how, level, module, marker, alive, monkeypatch):
    monkeypatch.setattr(process, "_APART", False)
    if level == "none":
        monkeypatch.setenv("DPAUDIT_SANDBOX", "none")
    fails(how, marker, module, alive)
