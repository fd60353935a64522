"""Samplers that misbehave, audited as a user would: it ends in time, says why, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time

import pytest
from support.rude_samplers import COMMAND, HARD, HEAD, LATE, PYTHON, SLEEP, indent

from dpaudit.errors import SamplerError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.sandbox import process

LIMIT = 2.5
GRACE = 20.0 if "PYTEST_XDIST_WORKER" in os.environ else 5.0  # what is promised, where nothing else runs


def audit(text: str) -> tuple[int, str, float]:
    words = ["audit", text, "--claim", "gaussian:sigma=1", "--samples", "10000", "--seed", "1", "--format", "json"]
    words += ["--time-limit", str(LIMIT)]
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", "from dpaudit.cli import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout)["reason"], time.monotonic() - started


def judge(text: str, reason: str, marker: str, alive) -> None:
    code, said, seconds = audit(text)
    assert code == 3
    assert re.search(f"{reason}|the time limit of {LIMIT} s was reached", said), (
        said
    )  # on a busy machine, before it began
    assert seconds < LIMIT + GRACE
    assert not alive(marker)


@pytest.mark.parametrize("how", PYTHON)
def test_a_function_that_means_harm(how, module, marker, alive):
    code, reason = PYTHON[how]
    module(f"{HEAD}def f(n, d):\n{indent(code)}", f"{marker}.py")
    judge(f"python:./{marker}.py:f", reason, marker, alive)


def test_a_module_that_hangs_when_imported(module, marker, alive):
    module(f"{HEAD}{SLEEP}", f"{marker}.py")
    judge(f"python:./{marker}.py:f", rf"{LATE}|the time limit of {LIMIT} s was reached", marker, alive)


@pytest.mark.parametrize("how", COMMAND)
def test_a_program_that_means_harm(how, here, marker, alive):
    code, reason = COMMAND[how]
    judge("command:" + shlex.join([sys.executable, "-c", HEAD + code, marker]), reason, marker, alive)


@pytest.mark.parametrize("how", HARD)
@pytest.mark.parametrize("level", ["plain", "none"])
def test_without_namespaces_nothing_is_left_either(how, level, module, marker, alive, monkeypatch):
    monkeypatch.setattr(process, "_APART", False)
    if level == "none":
        monkeypatch.setenv("DPAUDIT_SANDBOX", "none")
    code, reason = PYTHON[how]
    module(f"{HEAD}def f(n, d):\n{indent(code)}", f"{marker}.py")
    with open_sampler(f"python:./{marker}.py:f", seed="1") as sampler:
        sampler.start(timeout=30)
        started = time.monotonic()
        with pytest.raises(SamplerError, match=reason):
            sampler.draw(4, 2, timeout=1)
        assert time.monotonic() - started < 1 + GRACE
    assert not alive(marker)
