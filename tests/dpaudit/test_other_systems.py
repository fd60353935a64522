"""What works on Windows and macOS, by simulation: a process in which what they lack is gone (``other_system.py``)."""

import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import psutil

TESTS = Path(__file__).parents[1]
AUDITS = [  # of N(0, 1): both verdicts, and a page
    (["audit", "file:x.npy", "--claim", "gaussian:sigma=1", "--tests", "moments"], 0),
    (
        [
            "audit",
            "file:x.npy",
            "--claim",
            "gaussian:sigma=2",
            "--tests",
            "moments",
            "--out",
            "out",
        ],
        1,
    ),
]


def on(system, commands, folder):
    """Standard error of each command, all run in one process on a recording of normal numbers; the exit codes are right."""
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


def test_macos_audits_recordings_and_runs_programs_and_ends_them(tmp_path):
    """The supervisor hears the request to end there too: of a program that hangs, nothing is left."""
    marker = f"dpaudit-test-{uuid.uuid4().hex}"
    hangs = shlex.join([sys.executable, "-S", "-c", "import time; time.sleep(1000)", marker])
    programs = [
        (
            [
                "audit",
                "numpy:normal",
                "--claim",
                "gaussian:sigma=1",
                "--samples",
                "2e4",
                "--tests",
                "moments",
            ],
            0,
        ),
        (["audit", f"command:{hangs}", "--claim", "gaussian:sigma=1", "--time-limit", "0.5"], 3),
    ]
    on("macos", [(["--help"], 0), *AUDITS, *programs], tmp_path)
    assert not [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or ())]
