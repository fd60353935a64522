"""What processes of the tests of real steps do: together, and each on its own."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dpaudit
from dpaudit.errors import SamplerError, UsageError
from support import wrong_steps

loss = wrong_steps.loss
CLAIM = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 4))
        return model, torch.randn(8, 16), torch.randint(0, 4, (8,))


def names(result):
    return {test.name for test in result.findings}


def work(rank, world, store, function, *arguments):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    function(*arguments)
    dist.destroy_process_group()


def find_bugs(bugs):
    for bug in bugs:
        loop, name, words = wrong_steps.BUGS[bug]
        found = replace(loop, kept={}).audit().findings
        texts = [f"{t.effect} {t.cause}" for t in found if t.name == name]
        words = words.format(world=dist.get_world_size())
        assert any(words in text for text in texts), f"{bug}: {found}"


def find_nothing(kinds):
    for kind in kinds:
        result = replace(wrong_steps.HONEST[kind], kept={}).audit()
        assert result.verdict == "no-finding", f"{kind}: {result}"


def raise_on_one():
    loop = wrong_steps.Loop()
    loop.step = lambda batch: 1 / 0 if loop.rank else wrong_steps.Loop.step(loop, batch)
    with pytest.raises(SamplerError, match="rank 1 of 2: step raised ZeroDivisionError"):
        loop.audit(time_limit=8)


def differ():
    with pytest.raises(UsageError, match="differ between processes"):
        wrong_steps.Loop().audit(divisor=16.0 + dist.get_rank())
    with pytest.raises(UsageError, match="repeats=3"):
        wrong_steps.Loop().audit(repeats=3 if dist.get_rank() else 32)


def two_processes():
    find_bugs(["the same seed on all processes"])
    differ()
    raise_on_one()


def opacus_of(wrap, mode, *, seed):
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    model, x, y = network()
    rank, world = dist.get_rank(), dist.get_world_size()
    model = wrap(model)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        data_loader=DataLoader(TensorDataset(x.repeat(8, 1), y.repeat(8)), batch_size=8),
        criterion=nn.CrossEntropyLoss(),
        grad_sample_mode=mode,
        **CLAIM,
    )
    private, optimizer = made[:2]
    criterion = made[2] if len(made) == 4 else nn.CrossEntropyLoss()

    def step(batch):
        optimizer.zero_grad()
        criterion(private(batch[0]), batch[1]).backward()
        optimizer.step()

    torch.manual_seed(seed)
    own = slice(rank, None, world)
    return dpaudit.audit_optimizer(
        optimizer, model=private, step=step, batch=(x[own], y[own]), loss=loss, data_records=64
    )


def opacus_everywhere():
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from opacus.utils.fsdp_utils import FSDP2Wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, world = dist.get_rank(), dist.get_world_size()
    seed = 2**40 + 2_500_000_001 + 1_000_003 * rank
    for mode in ("hooks", "ghost"):
        result = opacus_of(DifferentiallyPrivateDistributedDataParallel, mode, seed=seed)
        assert result.verdict == "no-finding", str(result)
    result = opacus_of(FSDP2Wrapper, "ghost_fsdp", seed=seed)
    assert result.verdict == "no-finding", str(result)
    result = opacus_of(FSDP2Wrapper, "ghost_fsdp", seed=1337 + rank)  # Opacus' own example
    assert names(result) == {"predictable noise"}, str(result)
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))

        def hybrid(model):
            for layer in model:
                fully_shard(layer, mesh=mesh)
            return fully_shard(model, mesh=mesh)

        result = opacus_of(hybrid, "ghost_fsdp", seed=seed)
        assert "replicas" in names(result), str(result)
