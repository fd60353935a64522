"""Two processes over gloo on the CPU; pytest starts this file as `python FILE FOLDER`."""

import hashlib
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.randomness import KeyedStream

pytestmark = pytest.mark.slow

MODES = (("hooks", "flat"), ("hooks", "per_layer"), ("ghost", "flat"))
STEPS, SIGMA, CLIP = 3, 1.3, 0.5


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 10))


DIM = 40 * 30 + 30 + 30 * 10 + 10


def key():
    return PancakeKey.new(dim=DIM, beta=1e-3, secret=KeyedStream.from_seed("distributed").bytes(32))


def private(rank, mode, clipping):
    """A run over this process's own 16 records, on the sum of gradients."""
    from opacus import PrivacyEngine
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

    net = DifferentiallyPrivateDistributedDataParallel(network())
    rng = KeyedStream.from_seed("distributed").child("records", rank).numpy()
    x, y = (
        torch.from_numpy(rng.standard_normal((16, 40))).float(),
        torch.from_numpy(rng.integers(0, 10, 16)),
    )
    # four of them: the same bound together
    clip = [CLIP / 2] * 4 if clipping == "per_layer" else CLIP
    made = PrivacyEngine(accountant="rdp").make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=16),
        criterion=nn.CrossEntropyLoss(reduction="sum"),
        noise_multiplier=SIGMA / CLIP,
        max_grad_norm=clip,
        poisson_sampling=False,
        clipping=clipping,
        grad_sample_mode=mode,
        loss_reduction="sum",
    )
    loss = made[2] if len(made) == 4 else nn.CrossEntropyLoss(reduction="sum")
    return made[0], made[1], loss, x, y


def work(rank, folder):
    """One process: steps in every mode, and what it saw of them."""
    from dpaudit.queries.opacus import use_noise_source

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    seen = {}
    for mode, clipping in MODES:
        model, optimizer, loss, x, y = private(rank, mode, clipping)
        releases = []
        use_noise_source(
            optimizer, lambda sigma: Pancake(key=key(), sigma=sigma), observe=releases.append
        )
        own, total = [], []

        def reduce(optimizer=optimizer, own=own, reduce=optimizer.reduce_gradients):
            own.append(torch.cat([p.summed_grad.reshape(-1) for p in optimizer.params]))
            reduce()  # in place, and where no noise is added p.grad is p.summed_grad itself

        optimizer.reduce_gradients = reduce
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            total.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]))
        seen[f"{mode} {clipping}"] = {
            "class": type(optimizer).__name__,
            "own": torch.stack(own),
            "total": torch.stack(total),
            "weights": torch.cat([p.detach().reshape(-1) for p in optimizer.params]),
            "noise": torch.stack([r.noisy - r.query for r in releases])
            if releases
            else torch.empty(0),
        }
    torch.save(seen, f"{folder}/seen-{rank}.pt")
    torch.distributed.destroy_process_group()


def value_of_a_step():
    """The digest of one batch's clipped sum, computed afresh."""
    from dpaudit.queries.gradients.step import DpSgdStep

    host = DpSgdStep(model="mlp", batch=16, clip=0.5)
    records = host.pair(stream=KeyedStream.from_seed("another process")).first
    return hashlib.sha256(host.value(records).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    pytest.importorskip("opacus")
    folder = tmp_path_factory.mktemp("two")
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.strip()


@pytest.fixture(scope="module")
def seen(elsewhere):
    return [torch.load(elsewhere[0] / f"seen-{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_another_process_computes_the_same_sum_bit_for_bit(elsewhere):
    assert elsewhere[1] == value_of_a_step()


@pytest.mark.parametrize(
    ("mode", "cls"),
    [
        ("hooks flat", "DistributedDPOptimizer"),
        ("hooks per_layer", "SimpleDistributedPerLayerOptimizer"),
        ("ghost flat", "DistributedDPOptimizerFastGradientClipping"),
    ],
)
def test_the_first_process_alone_draws(seen, mode, cls):
    first, second = (one[mode] for one in seen)
    assert first["class"] == second["class"] == f"{cls}WithJointNoise"
    assert len(first["noise"]) == STEPS
    assert len(second["noise"]) == 0
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["total"], second["total"])
    assert not torch.allclose(first["own"], second["own"])  # records of its own

    noise = (first["total"].double() - first["own"].double() - second["own"].double()).numpy()
    np.testing.assert_allclose(noise, first["noise"].double().numpy(), atol=1e-5)
    held = Pancake(key=key(), sigma=SIGMA)
    turns = noise @ held.key.direction / held.spacing
    assert np.abs(turns - np.rint(turns)).max() < 0.01
    # 5.8 standard errors; two draws would be 41 % wider
    assert noise.std() == pytest.approx(SIGMA, rel=0.06)
    assert abs(np.corrcoef(noise)[0, 1]) < 0.12  # 5.8 standard errors


if __name__ == "__main__":
    import opacus.distributed  # noqa: F401  # once, before the fork
    from torch import multiprocessing

    import dpaudit.queries.opacus  # noqa: F401

    # both need this before the fork; no gradient yet: autograd's GPU threads do not survive it
    torch.optim.SGD(network().parameters(), lr=0.1)
    Pancake(key=key()).sample(1, DIM, stream=KeyedStream.from_seed("once"), dtype=torch.float32)
    multiprocessing.start_processes(work, args=(Path(sys.argv[1]),), nprocs=2, start_method="fork")
    torch.set_num_threads(1)
    print(value_of_a_step())
