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

from dpaudit.errors import SamplerError
from dpaudit.samplers import open_sampler
from dpaudit.samplers.sandbox import process

LIMIT = 2.5
GRACE = 20.0 if "PYTEST_XDIST_WORKER" in os.environ else 5.0  # what is promised, where nothing else runs
HEAD = "import ctypes, os, signal, subprocess, sys, time\n"
SLEEP = "time.sleep(1000)"
LATE = r"no answer before timeout="

ESCAPE = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {SLEEP}
    os._exit(0)
"""
BOMB = f"""
end = time.time() + 6  # it would stop by itself, should all else fail
while time.time() < end:
    os.fork()
{SLEEP}
"""
HUNT = f"""
pid, found = os.getpid(), []
while pid > 1:
    pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
    if pid > 0 and b"leash.py" in open(f"/proc/{{pid}}/cmdline", "rb").read():
        found.append(pid)
for pid in reversed(found):
    os.kill(pid, signal.SIGKILL)
{SLEEP}
"""

PYTHON = {
    "hangs": (SLEEP, LATE),
    "crashes": ("ctypes.string_at(0)", "signal SIGSEGV after"),
    "raises": ("raise RuntimeError('no entropy left')", "raised RuntimeError: no entropy left"),
    "nan": ("return np.full((n, d), np.nan)", "not finite"),
    "inf": ("return np.full((n, d), np.inf)", "not finite"),
    "complex": ("return np.ones((n, d), dtype=complex)", "not real numbers"),
    "too few": ("return np.ones((n - 1, d))", r"returned shape \(\d+, \d+\), wanted"),
    "100 GB": ("return np.ones(100 * 2**30, dtype=np.uint8)", "one process may reserve 16 GiB"),
    "endless file": (
        "with open('/tmp/endless', 'wb') as file:\n while True: file.write(bytes(1 << 20))",
        "File too large.* a file may have 64 MiB",
    ),
    "ignores SIGTERM": (f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEP}", LATE),
    "escapes": (f"{ESCAPE}\n{SLEEP}", LATE),
    "escapes and dies": (f"{ESCAPE}\ntime.sleep(0.2)\nos._exit(3)", "exit status 3"),
    "fork bomb": (BOMB, rf"{LATE}|it had \d+ processes and all were killed, above the limit of 256|closed the channel"),
    "closes its channels": (f"os.closerange(0, 100)\n{SLEEP}", "closed the channel|was killed"),
    "floods standard error": ("while True: os.write(2, b'x' * 10000)", LATE),
    "kills its parent": (f"os.kill(os.getppid(), signal.SIGKILL)\n{SLEEP}", f"{LATE}|was killed"),
    "kills its group": (f"os.killpg(0, signal.SIGKILL)\n{SLEEP}", "SIGKILL|was killed"),
    "stops itself": ("os.kill(os.getpid(), signal.SIGSTOP)", LATE),
    "hunts the leash": (HUNT, f"{LATE}|was killed|Operation not permitted"),
}
COMMAND = {
    "one byte a second": (
        "while True: sys.stdout.write('x'), sys.stdout.flush(), time.sleep(1)",
        "had not ended after",
    ),
    "garbage": ("print('garbage', end='')", r"gave 0 values \(7 bytes"),
    "too much": ("while True: sys.stdout.write('x' * 10000)", "at least .* wanted exactly"),
    "closes its output": (f"os.close(1)\n{SLEEP}", "had not ended after"),
    "fails": ("sys.exit('no licence')", "exit status 1; its last words: 'no licence'"),
    "endless file": (
        "os.execvp('cp', ['cp', '/dev/zero', '/tmp/endless'])",
        "exit status 1|longer than the limit of 64 MiB",
    ),
}


def indent(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.strip("\n").splitlines())


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


HARD = [
    "hangs",
    "ignores SIGTERM",
    "escapes",
    "escapes and dies",
    "fork bomb",
    "kills its parent",
    "kills its group",
    "stops itself",
    "hunts the leash",
]


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
