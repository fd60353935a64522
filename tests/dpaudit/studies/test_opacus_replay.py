"""From one step of an Opacus run to all later ones."""

import numpy as np
import pytest
import torch

from dpaudit.randomness import KeyedStream
from dpaudit.studies import opacus_replay
from dpaudit.studies.opacus_replay import OpacusReplayGrid, state_from_noise

pytest.importorskip("opacus")


@pytest.mark.slow
@pytest.mark.parametrize("size", [4096, 4100])
def test_the_generator_goes_on_as_torch_does(size):
    made = torch.Generator().manual_seed(7)
    torch.rand(777, generator=made)
    noise = torch.normal(0.0, 1.3, (size,), generator=made)
    twister = state_from_noise(noise.double().numpy(), std=1.3)
    twister.random_raw(size + (16 if size % 16 else 0))
    again = opacus_replay._as_torch(twister)
    assert (torch.rand(1000, generator=again) == torch.rand(1000, generator=made)).all()
    assert state_from_noise(np.random.default_rng(1).standard_normal(4096), std=1.0) is None


def test_one_step_tells_all_later_ones_and_a_secure_source_nothing():
    recipe = {
        "model": "mlp", "steps": 3, "batch": 128, "noise_multiplier": 1.1, "clip": 1.0,
        "delta": 1e-5, "data": "synthetic",
    }  # fmt: skip
    stream = KeyedStream.from_seed(5)
    read = opacus_replay._run(OpacusReplayGrid(noise="opacus", **recipe), stream)
    assert read["batches"] == 2
    assert read["predicted"] == read["compared"] == 2 * read["d"]
    assert read["error"] < 1e-5
    safe = opacus_replay._run(OpacusReplayGrid(noise="secure-gaussian", **recipe), stream)
    assert (safe["batches"], safe["predicted"], safe["error"]) == (0, 0, None)
