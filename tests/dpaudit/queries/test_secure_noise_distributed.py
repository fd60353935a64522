"""Noise under DDP, FSDP2, HSDP and tensor parallelism, on 2 and 4 processes over gloo on the CPU.

pytest starts this file as `python FILE FOLDER PROCESSES`.
"""

import hashlib
import json
import math
import secrets
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.errors import UsageError
from dpaudit.noise.key import PancakeKey
from dpaudit.noise.pancake import Pancake
from dpaudit.numeric.lattice import add_lattice_noise, lattice_step
from dpaudit.randomness import KeyedStream

pytestmark = pytest.mark.slow

STEPS, SIGMA, CLIP, RECORDS = 2, 1.3, 0.5, 8
DDP = ("ddp hooks", "ddp per_layer", "ddp ghost", "ddp ghost sum", "ddp torch", "ddp torch ghost")
FSDP = ("fsdp", "fsdp sum", "fsdp divide 1", "fsdp offload", "fsdp bf16", "fsdp accumulate")
TP = ("tp", "tp partial")
MESH = ("hsdp", "fsdp tp", "fsdp tp shard 1")  # two axes: four processes
HONEST = {2: (*DDP, *FSDP, *TP), 4: ("ddp ghost", "fsdp", "tp", *MESH)}
OPACUS = {2: ("opacus fsdp", "opacus fsdp sum", "opacus tp"), 4: ("opacus hsdp", "opacus fsdp tp")}
SOURCES = {2: ("source ddp hooks", "source fsdp", "source tp"), 4: ("source hsdp",)}
CASES = [(n, m) for n in (2, 4) for m in HONEST[n]]


class Norm(nn.LayerNorm):
    """Whole in every process, in a model with tensor parallelism."""


def network(parallel=False):
    """Uneven and empty shards, or (``parallel``) sizes that four processes can divide."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        if parallel:
            last = nn.Linear(32, 8, bias=False)
            return nn.Sequential(nn.Linear(40, 32), nn.Tanh(), last, nn.LayerNorm(8))
        return nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))


def records(rank):
    rng = KeyedStream.from_seed("sharded").child("records", rank).numpy()
    x = torch.from_numpy(rng.standard_normal((RECORDS, 40))).float()
    return x, torch.from_numpy(rng.integers(0, 3, RECORDS))


@dataclass
class Run:
    """A training; ``ranks`` are those whose records differ, ``clip`` is per record or None."""

    optimizer: Any
    gradients: Any  # a backward pass on records
    ranks: list
    parallel: bool = False
    clip: Any = CLIP
    divisor: float = 1.0
    micro: int = 1


def engine(net, *, mode="ghost_fsdp", clipping="flat", reduction="mean", clip=CLIP):
    from opacus import PrivacyEngine

    x, y = records(0)
    criterion = nn.CrossEntropyLoss(reduction=reduction)
    made = PrivacyEngine(accountant="rdp").make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=RECORDS),
        criterion=criterion,
        noise_multiplier=SIGMA / CLIP,
        max_grad_norm=clip,
        poisson_sampling=False,
        clipping=clipping,
        grad_sample_mode=mode,
        loss_reduction=reduction,
    )
    loss = made[2] if len(made) == 4 else criterion
    dtype = next(net.parameters()).dtype
    return made[1], lambda x, y: loss(made[0](x.to(dtype)), y).backward()


def ddp(name, rank, world):
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as wrapper

    mode = "ghost" if "ghost" in name else "hooks"
    clipping = "per_layer" if "per_layer" in name else "flat"
    clip = [CLIP / 2] * 4 if clipping == "per_layer" else CLIP  # the same together
    wrapper = nn.parallel.DistributedDataParallel if "torch" in name else wrapper
    net = wrapper(network())
    reduction = "sum" if "sum" in name else "mean"
    made = engine(net, mode=mode, clipping=clipping, clip=clip, reduction=reduction)
    return Run(*made, list(range(world)), clip=clip)


def fsdp(name, rank, world):
    from opacus.utils.fsdp_utils import FSDP2Wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, fully_shard

    net = network().to(torch.bfloat16 if "bf16" in name else torch.float32)
    options = {}
    if "hsdp" in name:
        options["mesh"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    if "offload" in name:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if options:  # the wrapper has neither
        for layer in net:
            if list(layer.parameters()):
                fully_shard(layer, **options)
        net = fully_shard(net, **options)
    else:
        net = FSDP2Wrapper(net)
    divisor = float(world)
    if "divide 1" in name:
        for module in net.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(divisor := 1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo has no other way
    made = engine(net, reduction="sum" if "sum" in name else "mean")
    micro = 2 if "accumulate" in name else 1
    return Run(*made, list(range(world)), divisor=divisor, micro=micro)


def tp(name, rank, world):
    """Tensor parallelism by Opacus' hooks, which ``make_private`` cannot put on."""
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping_tp import (
        GradSampleModuleFastGradientClippingTP,
    )
    from opacus.optimizers import FSDPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Partial, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    both = "fsdp" in name
    sizes = (2, 2) if both else (1, world)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data", "tensor"))
    axis = mesh["tensor"] if both else init_device_mesh("cpu", (world,))
    net = network(parallel=True)
    if both:
        net[3] = nn.Identity()  # fully_shard would give it another mesh than the rest
    net = parallelize_module(net, axis, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    ranks = [0]
    if both:
        other = (lambda p: Shard(1) if p.ndim == 2 else Shard(0)) if "shard 1" in name else None
        fully_shard(net, mesh=mesh["data"], shard_placement_fn=other)
        ranks = [0, 1]
    model = net if both else GradSampleModuleFastGradientClippingTP(net, max_grad_norm=CLIP)
    optimizer = FSDPOptimizerFastGradientClipping(
        torch.optim.SGD(net.parameters(), lr=0.1),
        noise_multiplier=SIGMA / CLIP,
        max_grad_norm=CLIP,
        expected_batch_size=RECORDS,
    )
    criterion = nn.CrossEntropyLoss()
    loss = None if both else DPLossFastGradientClipping(model, optimizer, criterion)

    def gradients(x, y):
        if both:  # Opacus clips neither here; a plain sum
            nn.functional.cross_entropy(net(x), y, reduction="sum").backward()
        else:
            loss(model(x), y).backward()
        for p in optimizer.params if "partial" in name else ():
            if isinstance(p, DTensor):  # a sum that is not reduced yet
                whole = p.grad.full_tensor() / world
                p.grad = DTensor.from_local(whole, p.device_mesh, [Partial()])

    clip = None if both else CLIP
    return Run(optimizer, gradients, ranks, parallel=True, clip=clip, divisor=2.0 if both else 1.0)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def joined(tensors):
    return torch.cat([whole(t).detach().reshape(-1).clone() for t in tensors])


def take_steps(name, rank, world):
    """What a mode released, with the sums before and the keys that the first process drew."""
    from dpaudit.queries.opacus import secure_noise, use_noise_source
    from dpaudit.queries.opacus.sharded import reduces_later, summed

    make = next(f for word, f in (("ddp", ddp), ("tp", tp), ("sdp", fsdp)) if word in name)
    run, keys, observed = make(name, rank, world), [], []
    optimizer = run.optimizer
    if name.startswith("source"):
        key = PancakeKey.new(
            dim=sum(p.numel() for p in optimizer.params),
            beta=1e-3,
            secret=KeyedStream.from_seed("distributed").bytes(32),
        )
        use_noise_source(
            optimizer, lambda sigma: Pancake(key=key, sigma=sigma), observe=observed.append
        )
    elif not name.startswith("opacus"):
        secure_noise(optimizer)

    def token_bytes(n):
        keys.append(hashlib.sha256(f"{name} {len(keys)}".encode()).digest())
        return keys[-1]

    seen: dict[str, Any] = {"sums": [], "released": []}

    def add_noise(plain=optimizer.add_noise):
        sums = [summed(optimizer, p) for p in optimizer.params]
        if reduces_later(optimizer):
            at_once = name in HONEST[world]  # secure_noise joins them
            sums = [joined(sums)] if at_once else [one.clone() for one in sums]
            for one in sums:  # as it does: the order of additions depends on the size
                distributed.all_reduce(one)
        sums = joined(sums)
        plain()
        seen["sums"].append(sums)
        seen["released"].append(joined(p.grad for p in optimizer.params))

    optimizer.add_noise = add_noise
    original, secrets.token_bytes = secrets.token_bytes, token_bytes
    torch.manual_seed(rank)  # as processes are without a seed
    x, y = records(
        run.ranks.index(rank // 2 if "fsdp tp" in name else rank) if len(run.ranks) > 1 else 0
    )
    before = joined(optimizer.params)
    try:
        for _ in range(STEPS):
            for part in range(run.micro):
                optimizer.zero_grad()
                optimizer.signal_skip_step(part < run.micro - 1)
                some = slice(part * RECORDS // run.micro, (part + 1) * RECORDS // run.micro)
                run.gradients(x[some], y[some])
                optimizer.step()
            seen.setdefault("handed", []).append(joined(p.grad for p in optimizer.params))
    finally:
        secrets.token_bytes = original
    seen |= {
        "class": type(optimizer).__name__,
        "keys": [k.hex() for k in keys],
        "before": before,
        "after": joined(optimizer.params),
        "divisor": run.divisor,
        "sizes": [p.numel() for p in optimizer.params],
        "reference": reference(run),
        "observed": len(observed),
        "batch": float(optimizer.expected_batch_size),
        "mean": optimizer.loss_reduction == "mean",
        "later": reduces_later(optimizer),
    }
    return seen


def reference(run):
    """The sum of clipped gradients at the first step, in one process and a record at a time."""
    net = network(run.parallel).double()
    if run.clip is None:
        net[3] = nn.Identity()
    total = 0
    for rank in run.ranks:
        for x, y in zip(*records(rank), strict=True):
            net.zero_grad()
            nn.functional.cross_entropy(net(x.double())[None], y[None]).backward()
            parts = [p.grad.reshape(-1) for p in net.parameters()]
            if isinstance(run.clip, list):
                parts = [g * min(1, c / g.norm()) for g, c in zip(parts, run.clip, strict=True)]
            gradient = torch.cat(parts)
            if isinstance(run.clip, float):
                gradient = gradient * min(1, run.clip / gradient.norm())
            total = total + gradient
    return total


def refusals(rank, world):
    """What each process raised where the last one had reason to."""
    from dpaudit.queries.opacus import secure_noise

    last, raised = rank == world - 1, {}
    for name in ("ddp hooks", "fsdp"):
        run = (ddp if "ddp" in name else fsdp)(name, rank, world)
        optimizer = secure_noise(run.optimizer)
        p = optimizer.params[0]

        def step(run=run, optimizer=optimizer, spoil=lambda: None):
            optimizer.zero_grad()
            run.gradients(*records(rank))
            spoil()
            optimizer.step()

        def nan(p=p):
            (p.grad.to_local() if p.grad_sample is None else p.grad_sample)[0] = torch.nan

        for what, spoil in (
            ("nan", nan),
            ("sigma", lambda o=optimizer: setattr(o, "noise_multiplier", 9.0)),
            ("frozen", lambda p=p: p.requires_grad_(False)),
        ):
            try:
                step(spoil=spoil if last else lambda: None)
            except UsageError as error:
                raised[f"{name} {what}"] = str(error)
            optimizer.noise_multiplier = SIGMA / CLIP
            p.requires_grad_(True)
        optimizer._is_last_step_skipped = False
        step()  # and goes on
    for name, optimizer in unfit(world).items():
        try:
            secure_noise(optimizer)
        except UsageError as error:
            raised[name] = str(error)
    other = ddp("ddp ghost", rank, world).optimizer
    if last:
        other.params[0].requires_grad_(False)
    try:
        secure_noise(other)
    except UsageError as error:
        raised["other parameters"] = str(error)
    return raised


def unfit(world):
    """Optimizers whose gradients are not those of one model, reduced in one way."""
    from opacus.optimizers import DistributedDPOptimizer, FSDPOptimizerFastGradientClipping
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    def over(mesh):
        return nn.Parameter(distribute_tensor(torch.ones(8), mesh, [Shard(0)]))

    def private(cls, parameters):
        inner = torch.optim.SGD(parameters, lr=0.1)
        return cls(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=1)

    net = network()
    fully_shard(net, ignored_params={net[0].bias})
    everyone = init_device_mesh("cpu", (world,))
    made = {
        "ignored parameter": private(FSDPOptimizerFastGradientClipping, net.parameters()),
        "reduced once more": private(DistributedDPOptimizer, [over(everyone)]),
    }
    if world > 2:
        halves = [DeviceMesh("cpu", half) for half in ([0, 1], [2, 3])]
        mine = halves[distributed.get_rank() // 2]
        made["other models"] = private(FSDPOptimizerFastGradientClipping, [over(mine)])
    return made


def placements(rank):
    """Positions that each process says it holds, put together by torch."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    from dpaudit.queries.opacus.sharded import places

    mesh, wrong = init_device_mesh("cpu", (2, 2)), []
    for shape in ((7, 5, 3), (3, 4, 6), (1, 2, 9), (5, 1, 2)):
        for a in (Replicate(), Shard(0), Shard(1), Shard(2)):
            for b in (Replicate(), Shard(0), Shard(1), Shard(2), _StridedShard(0, split_factor=2)):
                if a.is_shard() and shape[a.dim] % 2 and a != Shard(0):
                    continue
                whole = torch.arange(math.prod(shape), dtype=torch.float64).view(shape)
                made = DTensor.from_local(whole, mesh, [Replicate()] * 2, run_check=False)
                try:
                    made = made.redistribute(mesh, [a, b])
                except (NotImplementedError, RuntimeError, ValueError):
                    continue
                (place,) = places([nn.Parameter(made)])
                got = torch.full_like(made.to_local(), -1)
                for block in place.blocks:
                    part = got[block.where]
                    row = torch.arange(block.rows)[:, None] * block.stride
                    numbers = block.start + row + torch.arange(part.numel() // block.rows)
                    part.copy_(numbers.view(part.shape))
                wrong.append([str(shape), str((a, b)), bool(torch.equal(got, made.to_local()))])
    return wrong


def work(rank, world, folder):
    """One process: steps in every mode, and what it saw of them."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    names = (*HONEST[world], *OPACUS[world], *SOURCES[world])
    seen = {name: take_steps(name, rank, world) for name in names}
    torch.save(seen, f"{folder}/seen-{rank}.pt")
    rest = {"refusals": refusals(rank, world)}
    if world == 4:
        rest["placements"] = placements(rank)
    Path(f"{folder}/rest-{rank}.json").write_text(json.dumps(rest))
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    pytest.importorskip("opacus")
    found = {}
    for world in (2, 4):
        folder = tmp_path_factory.mktemp(f"processes{world}")
        command = [sys.executable, __file__, str(folder), str(world)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        ranks = range(world)
        found[world] = [torch.load(folder / f"seen-{i}.pt", weights_only=True) for i in ranks]
        found[world, "rest"] = [json.loads((folder / f"rest-{i}.json").read_text()) for i in ranks]
    return found


def sigma_of(run):
    return SIGMA / run["divisor"]


def noise_of(run):
    """In σ, shape (steps, d)."""
    pairs = zip(run["released"], run["sums"], strict=True)
    return torch.stack([r.double() - s.double() for r, s in pairs]) / sigma_of(run)


def is_as_one_process_draws(run):
    """Bit for bit, from the whole sums and the step's key."""
    if not run["keys"]:
        return False
    for total, released, key in zip(run["sums"], run["released"], run["keys"], strict=True):
        expected = total.clone()
        start = 0
        for piece in expected.split(run["sizes"]):
            add_lattice_noise(piece, sigma=sigma_of(run), key=bytes.fromhex(key), start=start)
            start += len(piece)
        if not torch.equal(expected, released):
            return False
    return True


def has_variance_one(noise):
    """Within 5 standard errors."""
    return abs(float(noise.square().mean()) - 1) < 5 * math.sqrt(2 / noise.numel())


def is_equal_everywhere(runs):
    return all(
        torch.equal(one[what][step], runs[0][what][step])
        for one in runs
        for what in ("released", "handed")
        for step in range(STEPS)
    ) and all(torch.equal(one["after"], runs[0]["after"]) for one in runs)


@pytest.mark.parametrize(("world", "mode"), CASES)
def test_shards_together_are_what_one_process_draws(seen, world, mode):
    runs = [one[mode] for one in seen[world]]
    first = runs[0]
    assert is_as_one_process_draws(first)
    assert [run["keys"] for run in runs[1:]] == [[]] * (world - 1)  # one key a step, by the first
    assert len(first["keys"]) == STEPS
    assert is_equal_everywhere(runs)
    noise = noise_of(first)
    assert has_variance_one(noise)
    assert abs(np.corrcoef(noise.numpy())[0, 1]) < 5 / math.sqrt(noise.shape[1])
    if "bf16" not in mode:
        steps = first["released"][0].double() / lattice_step(sigma_of(first))
        near = steps.abs() < 2**23  # float32 rounds beyond
        assert torch.equal(steps[near], steps[near].round())
        assert near.sum() > len(steps) / 4


@pytest.mark.parametrize(("world", "mode"), CASES)
def test_a_step_is_the_clipped_sum_of_all_records_and_noise_and_nothing_else(seen, world, mode):
    run = seen[world][0][mode]
    near = {"rtol": 0.05, "atol": 0.02} if "bf16" in mode else {"rtol": 1e-4, "atol": 1e-5}
    total = run["sums"][0].double() * run["divisor"]
    torch.testing.assert_close(total, run["reference"], **near)
    for released, handed in zip(run["released"], run["handed"], strict=True):
        over = run["batch"] if run["mean"] else 1.0
        over *= world if run["later"] and run["mean"] else 1
        torch.testing.assert_close(
            handed, released / over, rtol=0.01 if "bf16" in mode else 1e-6, atol=0
        )
    moved = run["before"].double() - 0.1 * sum(h.double() for h in run["handed"])
    torch.testing.assert_close(run["after"].double(), moved, **near)


def test_modes_have_their_own_optimizers(seen):
    classes = {run["class"].removesuffix("WithJointNoise") for run in seen[2][0].values()}
    distributed_ones = {f"DistributedDPOptimizer{k}" for k in ("", "FastGradientClipping")}
    others = {"SimpleDistributedPerLayerOptimizer", "FSDPOptimizerFastGradientClipping"}
    assert classes == distributed_ones | others


def test_what_opacus_itself_releases_is_found(seen):
    """The same measures: right under plain FSDP on means; wrong elsewhere."""
    variances = {
        (world, mode): float(noise_of(seen[world][0][mode]).square().mean())
        for world in (2, 4)
        for mode in OPACUS[world]
    }
    wrong = {k for k, v in variances.items() if abs(v - 1) > 0.2}
    assert wrong == {(2, "opacus fsdp sum"), (2, "opacus tp"), (4, "opacus fsdp tp")}
    assert variances[2, "opacus fsdp sum"] == pytest.approx(4, rel=0.2)  # σ twice too large
    assert variances[2, "opacus tp"] == pytest.approx(1 / 4, rel=0.2)  # and too small
    assert variances[4, "opacus fsdp tp"] == pytest.approx(1 / 4, rel=0.2)
    drifting = {
        (world, mode)
        for world in (2, 4)
        for mode in OPACUS[world]
        if not is_equal_everywhere([one[mode] for one in seen[world]])
    }
    assert drifting == {(2, "opacus tp"), (4, "opacus hsdp")}
    assert not is_as_one_process_draws(seen[2][0]["opacus fsdp"])


def test_a_wrong_position_is_found(seen):
    run = dict(seen[4][0]["hsdp"])
    first, *rest = run["sizes"]
    assert is_as_one_process_draws(run)
    run["sizes"] = [first - 1, 1, *rest]
    assert is_as_one_process_draws(run)  # positions run through all parameters
    swapped = [run["released"][0].clone(), run["released"][1]]
    swapped[0][:2] = swapped[0][[1, 0]]
    assert not is_as_one_process_draws(run | {"released": swapped})


@pytest.mark.parametrize(("world", "mode"), [(n, m) for n in (2, 4) for m in SOURCES[n]])
def test_a_source_serves_the_whole_gradient(seen, world, mode):
    runs = [one[mode] for one in seen[world]]
    assert is_equal_everywhere(runs)
    assert [run["observed"] for run in runs] == [STEPS] + [0] * (world - 1)
    noise = noise_of(runs[0]).numpy()
    assert has_variance_one(torch.from_numpy(noise))
    d = noise.shape[1]
    key = PancakeKey.new(dim=d, beta=1e-3, secret=KeyedStream.from_seed("distributed").bytes(32))
    held = Pancake(key=key, sigma=sigma_of(runs[0]))
    turns = noise * sigma_of(runs[0]) @ held.key.direction / held.spacing
    assert np.abs(turns - np.rint(turns)).max() < 0.01


@pytest.mark.parametrize("world", [2, 4])
def test_all_processes_refuse_together(seen, world):
    each = [rest["refusals"] for rest in seen[world, "rest"]]
    kinds = ("nan", "sigma", "frozen")
    names = {f"{mode} {kind}" for mode in ("ddp hooks", "fsdp") for kind in kinds}
    unfit = {"ignored parameter": "divisors=", "reduced once more": "sums gradients of whole"}
    if world > 2:
        unfit["other models"] = "must have all 4 processes"
    assert all(set(one) == names | {"other parameters", *unfit} for one in each)
    assert all(says in one[name] for one in each for name, says in unfit.items())
    for name in names:
        own = each[-1][name]
        if "sigma" in name:
            assert all("not those of the others" in one[name] for one in each)
            continue
        assert ("NaN" if "nan" in name else "was frozen") in own
        assert all(f"process={world - 1}: refused this step" in one[name] for one in each[:-1])
    assert all("not those of the others" in one["other parameters"] for one in each)


def test_positions_under_every_placement(seen):
    found = [entry for rest in seen[4, "rest"] for entry in rest["placements"]]
    assert all(right for _, _, right in found)
    kinds = {pair for _, pair, _ in found}
    assert len(found) > 100
    assert any("_StridedShard" in pair for pair in kinds)


if __name__ == "__main__":
    import opacus.distributed  # noqa: F401  # once, before the fork
    from torch import multiprocessing

    import dpaudit.queries.opacus  # noqa: F401

    torch.optim.SGD(network().parameters(), lr=0.1)  # needs this before the fork
    world = int(sys.argv[2])
    multiprocessing.start_processes(
        work, args=(world, Path(sys.argv[1])), nprocs=world, start_method="fork"
    )
