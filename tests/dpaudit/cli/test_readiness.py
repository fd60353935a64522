"""Nothing that judges or writes is imported after a third-party program has started."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

WATCH = """
import json, os, sys
import scipy.stats  # once, for all forks
from pathlib import Path
from dpaudit.targets.sandbox import process

first = []
class Watched(process.Process):
    def __init__(self, *arguments, **options):
        first.append(set(sys.modules))
        super().__init__(*arguments, **options)

for module in list(sys.modules.values()):
    ours = module.__name__.startswith("dpaudit.")
    if ours and getattr(module, "Process", None) is process.Process:
        module.Process = Watched
process.Process = Watched

from dpaudit.cli import main, readiness

def watched(name, words):
    folder = Path(name)
    folder.mkdir()
    os.chdir(folder)
    sys.argv[1:] = words
    os.dup2(os.open("err", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT), 1)
    try:
        main()
    except SystemExit as end:
        late = sorted(set(sys.modules) - first[0])
        others = ("dpaudit.audit.mechanism", "dpaudit.audit.training", "sklearn", "torch")
        needless = sorted(name for name in first[0] if name.startswith(others))
        found = {"code": end.code, "started": len(first), "late": late, "needless": needless}
        Path("late.json").write_text(json.dumps(found))

for name, words in json.load(sys.stdin).items():
    child = os.fork()
    if child == 0:
        try:
            if name == "unready":
                readiness.be_ready = lambda **_: None
            watched(name, words)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    if name == "every format":
        readiness.be_ready(writes=True, releases=True)  # for the rest
"""
SAMPLER = """
import numpy as np
rng = np.random.default_rng((5, 2311))
def good(n, d): return rng.standard_normal((n, d))
def wide(n, d): return 1.1 * rng.standard_normal((n, d))
def release(value, n): return np.round((value + rng.laplace(0, 0.5, n)) * 2**20) / 2**20
def two(value, n): return np.round((value + rng.laplace(0, 0.5, (n, 2))) * 2**20) / 2**20
"""
ALL_FORMATS = ("--out", "o", "--also", "sarif,junit")
NOISE = ("--claim", "gaussian:sigma=1", "--samples", "2e4", "--seed", "1")
CALLS = {
    # each of these as a process that has just started
    "unready": ("audit", "python:../mine.py:wide", *NOISE, "--tests", "moments", "--out", "o"),
    "plain": ("audit", "python:../mine.py:wide", *NOISE),
    "every format": ("audit", "python:../mine.py:wide", *NOISE, *ALL_FORMATS),
    # these once all is ready: does anything come late that is needed for them only?
    "no finding": ("audit", "python:../mine.py:good", *NOISE, *ALL_FORMATS),
    "sequential": (
        "audit",
        "python:../mine.py:wide",
        *NOISE,
        "--sequential",
        *ALL_FORMATS,
        "--format",
        "json",
    ),
    "a command": ("audit", "command:head -c {bytes} /dev/urandom", *NOISE),
    "learned scores": (
        *("mechanism", "python:../mine.py:two", "--neighbours", "0,1", "--claim-epsilon", "1"),
        *("--samples", "5e3", "--seed", "1"),
    ),
    "a mechanism": (
        *("mechanism", "python:../mine.py:release", "--neighbours", "0,1", "--claim-epsilon", "1"),
        *("--samples", "5e3", "--seed", "1", *ALL_FORMATS),
    ),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Per call: the exit code, the programs started, the modules imported after the first start.

    One process imports the command line; each call is a fork of it.
    """
    folder = tmp_path_factory.mktemp("watched")
    (folder / "mine.py").write_text(SAMPLER)
    run = subprocess.run(
        [sys.executable, "-c", WATCH],
        input=json.dumps(CALLS),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr

    def of(how):
        assert (folder / how / "late.json").exists(), (folder / how / "err").read_text()
        return json.loads((folder / how / "late.json").read_text())

    return of


@pytest.mark.parametrize("how", [how for how in CALLS if how != "unready"])
def test_nothing_is_imported_late(how, seen):
    found = seen(how)
    assert found["code"] in (0, 1, 3)
    assert found["started"] >= 1
    assert found["late"] == []


def test_an_audit_of_noise_starts_without_what_audits_of_mechanisms_need(seen):
    assert seen("plain")["needless"] == []
    assert "dpaudit.audit.mechanism.run" in seen("a mechanism")["needless"]


def test_the_watch_sees_what_is_late(seen):
    late = seen("unready")["late"]
    assert "dpaudit.render.charts.draw" in late
    assert any(name.startswith("matplotlib") for name in late)
