"""Windows and macOS, simulated (``other_system.py``), and an installation without torch."""

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

from dpaudit import registry
from dpaudit.noise.pancake import Pancake

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


# ------------------------------------------------ a light installation: no torch is needed

WITHOUT = """
import sys
sys.modules["torch"] = None  # import torch fails
import numpy as np
from dpaudit import registry
from dpaudit.noise.key import PancakeKey
from dpaudit.randomness import KeyedStream
stream = KeyedStream.from_seed(1)
key = PancakeKey.new(dim=64, beta=1e-3, gamma="2sqrtd", secret=bytes(32))
"""
SOURCES = """
for name in registry.plugins("sources"):
    keyed = {"key": key} if name in ("pancake", "norm-channel", "seed-in-noise") else {}
    noise = registry.load("sources", name)(**keyed).sample(3, 64, stream=stream)
    assert type(noise) is np.ndarray and noise.shape == (3, 64), name
"""
DEMO = """
from dataclasses import replace
from dpaudit.experiments.placement.work import run_cell
from dpaudit.experiments.spec_file import load_spec
for cell in load_spec("demo").cells():
    if cell.kind == "attack":
        small = replace(cell, settings={**cell.settings, "trials": 40})
        arm = (cell.settings[part]["name"] for part in ("source", "mitigation"))
        print(*arm, run_cell(small).outcome["successes"])
"""


def without_torch(code):
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_every_source_draws_arrays():
    without_torch(SOURCES)


@pytest.mark.slow
def test_the_demos_key_holders_read_what_no_defence_covers():
    rows = [line.split() for line in without_torch(DEMO).splitlines()]
    won = {(source, mitigation): int(right) for source, mitigation, right in rows}
    assert won.pop(("pancake", "none")) == won.pop(("seed-in-noise", "none")) == 40
    assert won.pop(("seed-in-noise", "smoothing")) >= 27  # 87 % on average
    assert len(won) == 4
    assert all(right < 36 for right in won.values())  # by chance once in 10 million


@pytest.mark.parametrize("name", ["likelihood-ratio", "nearest-peak"])
def test_scores_of_arrays_are_those_of_tensors(name, make_key, stream):
    import torch

    key = make_key(dim=64, beta=1e-3, directions=2)
    attack = registry.load("attacks", name)(key=key, sigma=2.0)
    noise = Pancake(key=key, sigma=2.0).sample(50, 64, stream=stream)
    candidates = stream.child("candidates").numpy().standard_normal((3, 64))
    arrays = attack.score(noise + candidates[1], candidates)
    tensors = attack.score(*map(torch.from_numpy, (noise + candidates[1], candidates)))
    assert type(arrays) is np.ndarray
    assert type(tensors) is torch.Tensor
    np.testing.assert_allclose(arrays, tensors.numpy(), rtol=1e-9, atol=1e-6)
