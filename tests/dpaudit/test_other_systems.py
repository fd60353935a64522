"""What works on Windows and macOS, by simulation: a process in which what they lack is gone (``other_system.py``)."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]


def on(system, *args, folder):
    command = [sys.executable, str(TESTS / "other_system.py"), system, *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**os.environ, "TMPDIR": str(folder)}, timeout=200
    )


@pytest.fixture
def recorded(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20_000, 2)))
    return "file:x.npy"


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_a_recording_is_audited(system, recorded, tmp_path):
    assert on(system, "--help", folder=tmp_path).returncode == 0
    for sigma, code in ((1, 0), (2, 1)):
        out = on(system, "audit", recorded, "--claim", f"gaussian:sigma={sigma}", "--out", "out", folder=tmp_path)
        assert out.returncode == code, out.stderr
        assert (tmp_path / "out" / "report.html").is_file()


def test_windows_says_that_it_runs_no_programs_and_keeps_no_runs(tmp_path):
    out = on("windows", "audit", "numpy:normal", "--claim", "gaussian:sigma=1", folder=tmp_path)
    assert out.returncode == 2
    assert "programs are run on Linux and macOS only; record their values and audit file:samples.npy" in out.stderr
    out = on("windows", "run", "gpm-fig4", "--trials", 2, "--out", "run", folder=tmp_path)
    assert out.returncode == 2
    assert "This system has no file locks for dpaudit; use Linux or macOS" in out.stderr
    made = on(
        "windows", "key", "new", "--dim", 64, "--beta", "1e-3", "--gamma", "2sqrtd", "--out", "k.json", folder=tmp_path
    )
    assert made.returncode == 0, made.stderr


def test_macos_runs_programs(tmp_path):
    out = on("macos", "audit", "numpy:normal", "--claim", "gaussian:sigma=1", "--samples", "1e5", folder=tmp_path)
    assert out.returncode == 0, out.stderr
