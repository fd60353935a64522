"""A light installation: the sources, the demo's cells and their attacks need no torch."""

import subprocess
import sys

import pytest

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
spec = load_spec("demo")
for cell in spec.cells():
    if cell.kind == "attack":
        small = replace(cell, settings={**cell.settings, "trials": 40})
        row = run_cell(small).outcome
        arm = (cell.settings[part]["name"] for part in ("source", "mitigation"))
        print(*arm, row["successes"])
"""


def without_torch(code):
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_every_source_draws_arrays():
    without_torch(SOURCES)


def test_the_demos_key_holders_read_what_no_defence_covers():
    rows = [line.split() for line in without_torch(DEMO).splitlines()]
    won = {(source, mitigation): int(right) for source, mitigation, right in rows}
    assert won.pop(("pancake", "none")) == won.pop(("seed-in-noise", "none")) == 40
    assert won.pop(("seed-in-noise", "smoothing")) >= 27  # 87 % on average
    assert len(won) == 4
    assert all(right < 36 for right in won.values())  # by chance once in 10 million


@pytest.mark.parametrize("name", ["likelihood-ratio", "nearest-peak"])
def test_scores_of_arrays_are_those_of_tensors(name, make_key, stream):
    import numpy as np
    import torch

    from dpaudit import registry
    from dpaudit.noise.pancake import Pancake

    key = make_key(dim=64, beta=1e-3, directions=2)
    attack = registry.load("attacks", name)(key=key, sigma=2.0)
    noise = Pancake(key=key, sigma=2.0).sample(50, 64, stream=stream)
    candidates = stream.child("candidates").numpy().standard_normal((3, 64))
    arrays = attack.score(noise + candidates[1], candidates)
    tensors = attack.score(*map(torch.from_numpy, (noise + candidates[1], candidates)))
    assert type(arrays) is np.ndarray
    assert type(tensors) is torch.Tensor
    np.testing.assert_allclose(arrays, tensors.numpy(), rtol=1e-9, atol=1e-6)
