"""Small DP-SGD over gloo with one bug of sharded training at a time, and honest kinds.

Data parallel (each process has the whole model and its part of the batch) or sharded (each has a
part of every parameter as a DTensor). Plain code: nothing of what it is audited with.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call, grad, vmap

import dpaudit
from dpaudit.randomness import KeyedStream
from dpaudit.step_audit.result import StepResult

SIGMA, BOUND, RECORDS, ALPHA = 1.0, 1.0, 16, 0.01


def loss(model: Any, record: Any) -> torch.Tensor:
    x, y = record
    return nn.functional.cross_entropy(model(x), y)


class LoRA(nn.Module):
    """A linear layer with an adapter of rank 2; all of it is trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(16, width)
        self.lora_a = nn.Parameter(torch.randn(2, 16) / 4)
        self.lora_b = nn.Parameter(torch.randn(width, 2) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base(x)
        return y + x @ self.lora_a.T @ self.lora_b.T


class Unused(nn.Linear):
    """A layer with a parameter that no record uses."""

    def __init__(self) -> None:
        super().__init__(16, 32)
        self.unused = nn.Parameter(torch.ones(40))


@dataclass
class Loop:
    """One step of DP-SGD on all processes; the defaults are right, a bug changes one of them.

    Attributes:
        sharded: parameters are DTensors, split over processes.
        noise: the noise of a process: ``share`` (σ/√W on each), ``whole`` (σ on each), ``first`` (σ
            on rank 0), ``twice`` (a share, divided by W before the reduction averages), ``after``
            (σ on each, after the reduction), ``micro`` (a share in each micro-step).
        clip: ``all``, ``shard`` or ``lora``.
        draw: ``own`` generator, the ``same`` seed on all processes, or by ``dtensor``.
    """

    sharded: bool = False
    noise: str = "share"
    clip: str = "all"
    draw: str = "own"
    layer: str = "linear"
    dtype: torch.dtype = torch.float32
    noise_dtype: torch.dtype = torch.float32
    micro: int = 1
    cached: bool = False
    rate_of: str = "all"
    seed: int = 1
    kept: dict[Any, torch.Tensor] = field(default_factory=dict)

    def build(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(self.seed)
        first = {"linear": lambda: nn.Linear(16, 32), "lora": lambda: LoRA(32), "unused": Unused}
        model = nn.Sequential(first[self.layer](), nn.ReLU(), nn.Linear(32, 4)).to(self.dtype)
        self.model, self.mesh = model, None
        x, y = torch.randn(RECORDS, 16).to(self.dtype), torch.randint(0, 4, (RECORDS,))
        own = slice(self.rank, None, self.world)
        self.batch = x[own], y[own]
        if self.sharded:
            self._shard()
        lr = {"lr": 0.1, "momentum": 0.9}
        self.optimizer = torch.optim.SGD(model.parameters(), **lr)  # type: ignore[arg-type]
        stream = KeyedStream.from_seed(f"sharded steps {self.seed}").child("noise")
        if self.draw == "own":
            stream = stream.child(self.rank)
        drawn = int(stream.numpy().integers(2**63))  # torch's CPU generator takes 32 bits of it
        self.generator = torch.Generator().manual_seed(drawn)
        torch.manual_seed(drawn)
        self.add = torch.compile(self._add, backend="eager") if self.cached else self._add

    def _shard(self) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        self.mesh = init_device_mesh("cpu", (self.world,))
        for module in self.model.modules():
            for name, p in list(module.named_parameters(recurse=False)):
                part = distribute_tensor(p.detach(), self.mesh, [Shard(0)])
                setattr(module, name, nn.Parameter(part))

    def whole(self) -> dict[str, torch.Tensor]:
        named = self.model.named_parameters()
        return {n: (p.full_tensor() if self.sharded else p).detach() for n, p in named}

    def clipped(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """The sum of this process's clipped gradients, without noise."""

        def of(parameters: Any, one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            out = functional_call(self.model, parameters, (one[None],))
            return nn.functional.cross_entropy(out, label[None])

        each = vmap(grad(of), (None, 0, 0))(self.whole(), x, y)
        groups = [list(each)]
        if self.clip == "lora":
            groups = [[n for n in each if "lora" in n]]
        sums = {name: g.sum(0) for name, g in each.items()}
        for names in groups:
            if self.clip == "shard":
                factors = self._shard_factors(each)
            else:
                norms = torch.stack([each[n].flatten(1).norm(dim=1) for n in names]).norm(dim=0)
                factors = {n: (BOUND / norms).clamp(max=1.0) for n in names}
            for n in names:
                if factors[n].ndim == 1:
                    sums[n] = torch.einsum("i,i...->...", factors[n].to(each[n].dtype), each[n])
                else:
                    rows = factors[n].to(each[n].dtype)  # (records, rows)
                    sums[n] = torch.einsum("ij,ij...->j...", rows, each[n])
        return sums

    def _shard_factors(self, each: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Of each record and row: clipped by the norm of the process's rows alone."""
        pieces = {n: g.flatten(2) if g.ndim > 2 else g[..., None] for n, g in each.items()}
        chunks = {n: g.chunk(self.world, dim=1) for n, g in pieces.items()}
        norms = [
            torch.stack([chunks[n][r].flatten(1).norm(dim=1) for n in each]).norm(dim=0)
            for r in range(self.world)
        ]
        return {
            n: torch.cat(
                [
                    (BOUND / norms[r]).clamp(max=1.0)[:, None].expand(-1, chunks[n][r].shape[1])
                    for r in range(self.world)
                ],
                dim=1,
            )
            for n in each
        }

    def draw_noise(self, like: torch.Tensor, times: float) -> torch.Tensor:
        if self.cached:
            if like.shape not in self.kept:
                self.kept[like.shape] = torch.randn(like.shape) * times * SIGMA * BOUND
            return self.kept[like.shape]
        noise = torch.randn(like.shape, generator=self.generator, dtype=torch.float32)
        return (noise.to(self.noise_dtype) * (times * SIGMA * BOUND)).float()

    def _add(self, g: torch.Tensor, times: float) -> torch.Tensor:
        return (g.float() + self.draw_noise(g, times)).to(g.dtype)

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        times = {"share": self.world**-0.5, "micro": self.world**-0.5, "whole": 1.0}
        times |= {"first": float(self.rank == 0), "twice": self.world**-1.5, "after": 0.0}
        sums: dict[str, torch.Tensor] = {}
        for x, y in zip(batch[0].chunk(self.micro), batch[1].chunk(self.micro), strict=True):
            for name, g in self.clipped(x, y).items():
                noisy = self.add(g, times["micro"]) if self.noise == "micro" else g
                sums[name] = sums[name] + noisy if name in sums else noisy
        whole = torch.cat([g.float().reshape(-1) for g in sums.values()])
        if not self.sharded and times[self.noise]:
            whole = whole if self.noise == "micro" else self.add(whole, times[self.noise])
        dist.all_reduce(whole)
        if self.noise == "after":
            whole = self.add(whole, 1.0)
        flat = whole.split([g.numel() for g in sums.values()])
        for (name, g), piece in zip(sums.items(), flat, strict=True):
            p, g = self.model.get_parameter(name), piece.view(g.shape)
            if not name.endswith("unused"):
                p.grad = (self._own(p, g) if self.sharded else g / RECORDS).to(self.dtype)
        self.optimizer.step()

    def _own(self, p: Any, g: torch.Tensor) -> Any:
        from torch.distributed.tensor import DTensor, Shard, distribute_tensor

        if self.draw == "dtensor":
            noise = torch.randn_like(p) * (SIGMA * BOUND)
            return (distribute_tensor(g, self.mesh, [Shard(0)]) + noise) / RECORDS
        part = g.chunk(self.world)[self.rank]
        local = (part + self.draw_noise(part, 1.0)) / RECORDS
        return DTensor.from_local(local, self.mesh, [Shard(0)], shape=g.shape, stride=g.stride())

    def audit(self, **options: Any) -> StepResult:
        self.build()
        data = 20 * RECORDS
        rate = RECORDS / data / (1 if self.rate_of == "all" else self.world)
        claim = {"noise_multiplier": SIGMA, "max_grad_norm": BOUND, "divisor": RECORDS}
        rates = {"data_records": data, "sample_rate": rate, "alpha": ALPHA}
        return dpaudit.audit_optimizer(
            self.optimizer, model=self.model, step=self.step, batch=self.batch, loss=loss,
            **(claim | rates | options),
        )  # fmt: skip


SHARDED = Loop(sharded=True)
BUGS: dict[str, tuple[Loop, str, str]] = {
    "noise per process instead of in total": (
        Loop(noise="whole"), "noise in total", "each of {world} processes adds the whole noise"),
    "the same seed on all processes": (
        replace(SHARDED, draw="same"), "equal noise", "processes draw the same noise"),
    "noise before the reduction, divided twice": (
        Loop(noise="twice"), "noise in total", "by the number of processes, {world}, twice"),
    "DTensors that draw equal values": (
        replace(SHARDED, draw="dtensor"), "equal noise", "a DTensor on the CPU"),
    "clipping per shard": (
        replace(SHARDED, clip="shard"), "clipping", "each process's shard is clipped alone"),
    "an unused parameter without noise": (
        Loop(layer="unused"), "parameters without noise", "0.unused"),
    "noise in bf16": (
        replace(SHARDED, noise_dtype=torch.bfloat16), "noise precision", "drawn in bfloat16"),
    "a compiled step that caches noise": (
        Loop(cached=True, noise="share"), "noise repeats", "it is cached"),
    "LoRA weights clipped, base weights not": (
        Loop(clip="lora", layer="lora"), "clipping", "while LoRA weights are"),
    "noise in each micro-step": (
        Loop(noise="micro", micro=4), "noise in total", "each of 4 micro-steps"),
    "replicas that drift": (Loop(noise="after"), "replicas", "gradients handed on differ"),
    "world size left out in the accountant": (
        Loop(rate_of="one"), "sample rate", "the number of processes, {world}"),
}  # fmt: skip
HONEST = {
    "data parallel, a share on each": Loop(),
    "data parallel, noise on rank 0": Loop(noise="first"),
    "sharded": SHARDED,
    "sharded, 2 micro-steps": replace(SHARDED, micro=2),
    "LoRA, data parallel": Loop(layer="lora"),
    "bf16 parameters, sharded": replace(SHARDED, dtype=torch.bfloat16),
}
