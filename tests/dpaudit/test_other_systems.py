"""Windows and macOS, simulated in a process without what they lack (``other_system.py``)."""

import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import psutil
import pytest

TESTS = Path(__file__).parents[1]
MOMENTS = ["audit", "file:x.npy", "--tests", "moments", "--claim"]
AUDITS = [  # of N(0, 1): both verdicts, and a page
    ([*MOMENTS, "gaussian:sigma=1"], 0),
    ([*MOMENTS, "gaussian:sigma=2", "--out", "out"], 1),
]


def on(system, commands, folder):
    """Standard error of each command, all run in one process on a recording of normal numbers."""
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(5_000, 2)))
    words = [word for command, _ in commands for word in ("+", *map(str, command))][1:]
    done = subprocess.run(
        [sys.executable, str(TESTS / "other_system.py"), system, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=200,
    )
    *said, rest = re.split(r"\n== exit (\d+)\n", done.stderr)
    assert done.returncode == 0, done.stderr
    assert list(map(int, said[1::2])) == [code for _, code in commands], done.stderr
    assert rest == ""
    assert (folder / "out" / "report.html").is_file()
    return said[::2]


@pytest.mark.slow
def test_windows_audits_recordings_and_says_that_it_runs_no_programs_and_keeps_no_runs(tmp_path):
    key = ["key", "new", "--dim", 64, "--beta", "1e-3", "--gamma", "2sqrtd", "--out", "k.json"]
    program = ["audit", "numpy:normal", "--claim", "gaussian:sigma=1"]
    run = ["run", "bpia-table5", "--trials", 2, "--out", "run"]
    said = on("windows", [(["--help"], 0), *AUDITS, (program, 2), (run, 2), (key, 0)], tmp_path)
    assert (
        "programs are run on Linux and macOS only; record their values and audit file:samples.npy"
        in said[3]
    )
    assert "This system has no file locks for dpaudit; use Linux or macOS" in said[4]


@pytest.mark.slow
def test_macos_audits_recordings_and_runs_programs_and_ends_them(tmp_path):
    """There, too, the supervisor ends on request: nothing is left of a program that hangs."""
    marker = f"dpaudit-test-{uuid.uuid4().hex}"
    hangs = shlex.join([sys.executable, "-S", "-c", "import time; time.sleep(1000)", marker])
    few = ["--samples", "2e4", "--tests", "moments"]
    programs = [
        (["audit", "numpy:normal", "--claim", "gaussian:sigma=1", *few], 0),
        (["audit", f"command:{hangs}", "--claim", "gaussian:sigma=1", "--time-limit", "0.5"], 3),
    ]
    on("macos", [(["--help"], 0), *AUDITS, *programs], tmp_path)
    assert not [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or ())]
