"""Nothing that judges or writes is imported after a foreign program has started, however the audit is asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

WATCH = """
import json, sys
from dpaudit.samplers.sandbox import process

first = []
class Watched(process.Process):
    def __init__(self, *arguments, **options):
        first.append(set(sys.modules))
        super().__init__(*arguments, **options)

for module in list(sys.modules.values()):
    if module.__name__.startswith("dpaudit.") and getattr(module, "Process", None) is process.Process:
        module.Process = Watched
process.Process = Watched

from dpaudit.cli import main, readiness, verdicts
unready, *sys.argv[1:] = sys.argv[1:]
if unready == "unready":
    verdicts.be_ready = lambda *, writes: None
try:
    main()
except SystemExit as end:
    late = sorted(set(sys.modules) - first[0])
    json.dump({"code": end.code, "started": len(first), "late": late}, open("late.json", "w"))
"""
SAMPLER = """
import numpy as np
rng = np.random.default_rng(5)
def good(n, d): return rng.standard_normal((n, d))
def wide(n, d): return 1.1 * rng.standard_normal((n, d))
def release(value, n): return np.round((value + rng.laplace(0, 0.5, n)) * 2**20) / 2**20
"""
ALL_FORMATS = ("--out", "o", "--also", "sarif,junit,markdown")
NOISE = ("--claim", "gaussian:sigma=1", "--samples", "2e5", "--seed", "1")
CALLS = {
    "plain": ("audit", "python:./mine.py:wide", *NOISE),
    "every format": ("audit", "python:./mine.py:wide", *NOISE, *ALL_FORMATS),
    "no finding": ("audit", "python:./mine.py:good", *NOISE, *ALL_FORMATS),
    "sequential": ("audit", "python:./mine.py:wide", *NOISE, "--sequential", *ALL_FORMATS, "--format", "json"),
    "a command": ("audit", "command:head -c {bytes} /dev/urandom", *NOISE, *ALL_FORMATS),
    "a mechanism": (
        *("mechanism", "python:./mine.py:release", "--neighbours", "0,1", "--claim-epsilon", "1"),
        *("--samples", "2e4", "--seed", "1", *ALL_FORMATS),
    ),
}


def watched(folder, *words, ready="ready"):
    """The exit code, how often a program was started, and the modules that were imported after the first start."""
    (folder / "mine.py").write_text(SAMPLER)
    run = subprocess.run([sys.executable, "-c", WATCH, ready, *words], cwd=folder, capture_output=True, text=True)
    assert (folder / "late.json").exists(), run.stderr
    return json.loads((folder / "late.json").read_text()), run.stderr


@pytest.mark.parametrize("how", CALLS)
def test_nothing_is_imported_late(how, tmp_path):
    seen, said = watched(tmp_path, *CALLS[how])
    assert seen["code"] in (0, 1, 3), said
    assert seen["started"] >= 1
    assert seen["late"] == []


def test_the_watch_sees_what_is_late(tmp_path):
    seen, _ = watched(tmp_path, *CALLS["every format"], ready="unready")
    assert "dpaudit.report.figures" in seen["late"]
    assert any(name.startswith("matplotlib") for name in seen["late"])
