"""Which numbers of a gradient a process holds, and what processes that train one model agree on."""

from __future__ import annotations

import hashlib
import itertools
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from opacus.optimizers.ddpoptimizer import DistributedDPOptimizer
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import (
    DistributedDPOptimizerFastGradientClipping,
)
from torch import distributed
from torch.distributed.tensor import DTensor

from dpaudit.errors import UsageError
from dpaudit.randomness import KEY_BYTES

__all__ = [
    "REDUCING_LATER",
    "Block",
    "Group",
    "Place",
    "blocks",
    "divisor",
    "local",
    "places",
    "reduces_later",
    "summed",
    "total",
]

REDUCING_LATER = (DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping)


@dataclass(frozen=True, slots=True)
class Block:
    """Part ``where`` of a local tensor: ``rows`` rows, each of consecutive positions.

    The first number is at position ``start`` of the parameter, a next row ``stride`` further.
    """

    where: tuple[slice | int, ...]
    rows: int
    start: int
    stride: int


@dataclass(frozen=True, slots=True)
class Place:
    """What this process holds of a parameter whose first number is at position ``base`` of all."""

    base: int
    blocks: tuple[Block, ...]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def total(gradient: torch.Tensor, p: torch.nn.Parameter, *, reduce: bool) -> torch.Tensor:
    """A contiguous copy of a gradient with the placements of ``p``, summed over processes.

    For a DTensor that sums partial ones; ``reduce`` sums plain tensors. Every process calls this.
    """
    if isinstance(gradient, DTensor) and isinstance(p, DTensor):
        gradient = gradient.redistribute(p.device_mesh, p.placements)
    copy = gradient.detach().clone(memory_format=torch.contiguous_format)
    if reduce:
        distributed.all_reduce(copy)
    return copy


def places(parameters: Sequence[torch.nn.Parameter]) -> tuple[Place, ...]:
    """What this process holds of each parameter; positions count through the whole ones in order.

    Raises:
        UsageError: a placement other than shards and replicas, or one that torch splits otherwise.
    """
    bases = itertools.accumulate((p.numel() for p in parameters), initial=0)
    held = [tuple(blocks(p.shape, _index(p))) for p in parameters]
    return tuple(Place(base, some) for base, some in zip(bases, held, strict=False))


def _index(p: torch.nn.Parameter) -> tuple[Sequence[int], ...]:
    """Per dimension, the indices that this process holds, by the placements' own rule."""
    index: list[Sequence[int]] = [range(n) for n in p.shape]
    if not isinstance(p, DTensor):
        return tuple(index)
    coordinate = p.device_mesh.get_coordinate()
    placement: Any
    for axis, placement in enumerate(p.placements):
        if coordinate is not None and hasattr(placement, "_split_tensor"):
            dim: int = placement.dim
            lined_up = torch.tensor(index[dim], dtype=torch.long).view(*[1] * dim, -1)
            count = p.device_mesh.size(axis)
            parts, _ = placement._split_tensor(lined_up, count, with_padding=False)
            index[dim] = parts[coordinate[axis]].reshape(-1).tolist()
    shape, held = tuple(p.to_local().shape), tuple(map(len, index))
    if any(q.is_partial() for q in p.placements) or (held != shape and 0 not in held):
        raise UsageError(
            f"placements={p.placements}: shape {held} here by their rule, and {shape} in fact; "
            "shard or replicate each parameter by torch 2.13"
        )
    return tuple(index)


def _runs(index: Sequence[int]) -> list[tuple[int, int, int]]:
    """Stretches of consecutive indices: where each begins in ``index``, its first, its length."""
    if isinstance(index, range):
        return [(0, index.start, len(index))] if index else []
    begins = [i for i in range(len(index)) if i == 0 or index[i] != index[i - 1] + 1]
    ends = [*begins[1:], len(index)]
    return [(a, index[a], b - a) for a, b in zip(begins, ends, strict=True)] if index else []


def blocks(shape: Sequence[int], index: Sequence[Sequence[int]]) -> Iterator[Block]:
    """What a process with the indices ``index`` of a contiguous tensor of ``shape`` holds.

    >>> list(blocks((4, 6), (range(4), range(2, 5))))
    [Block(where=(slice(0, 4, None), slice(0, 3, None)), rows=4, start=2, stride=6)]
    """
    strides = [math.prod(shape[j + 1 :]) for j in range(len(shape))]
    for box in itertools.product(*map(_runs, index)):
        cut = [j for j, (_, _, count) in enumerate(box) if count < shape[j]]
        last = cut[-1] if cut else 0  # consecutive from here on
        first = cut[-2] if len(cut) > 1 else 0  # equally spaced rows from here on
        rows = math.prod(count for _, _, count in box[first:last])
        start = sum(low * stride for (_, low, _), stride in zip(box, strides, strict=True))
        inner = tuple(slice(at, at + count) for at, _, count in box[first:])
        for outer in itertools.product(*(range(count) for _, _, count in box[:first])):
            where = tuple(at + i for (at, _, _), i in zip(box[:first], outer, strict=True))
            offset = sum(i * stride for i, stride in zip(outer, strides[:first], strict=True))
            yield Block(where + inner, rows, start + offset, strides[last - 1] if last else 0)


def reduces_later(optimizer: Any) -> bool:
    """Whether Opacus sums this optimizer's gradients over processes after its noise."""
    return isinstance(optimizer, REDUCING_LATER)


def summed(optimizer: Any, p: Any) -> torch.Tensor:
    """The sum of clipped gradients of ``p``, where this optimizer keeps it."""
    states = getattr(optimizer, "grad_state", None)  # of FSDPOptimizerFastGradientClipping
    return torch.as_tensor(states[p]["summed_grad"] if states else p.summed_grad)


def divisor(parameters: Sequence[torch.nn.Parameter]) -> float:
    """By what ``fully_shard`` divides the sum over processes of these parameters' gradients.

    Its own factor (``set_gradient_divide_factor``), or the number of processes that it reduces
    over: not those of other axes of the mesh, such as tensor parallelism. 1 without it.

    Raises:
        UsageError: it reduces some of these parameters and not others, or divides by different
            numbers; or this version of torch keeps no such factor.
    """
    if not any(isinstance(p, DTensor) for p in parameters):
        return 1.0
    try:
        factors = _fsdp_factors()
    except (AttributeError, ImportError) as error:
        raise UsageError(
            f"torch={torch.__version__}: keeps fully_shard's divisor elsewhere; take 2.13"
        ) from error
    found = {factors.get(id(p)) for p in parameters}
    if len(found) > 1:
        raise UsageError(
            f"divisors={sorted(map(str, found))}: fully_shard must reduce all trainable parameters "
            "in one way; leave out ignored_params, and set one gradient_divide_factor"
        )
    return found.pop() or 1.0


def _fsdp_factors() -> dict[int, float]:
    """The divisor per parameter that ``fully_shard`` manages, by ``id``.

    From torch's private state: an optimizer does not know its model, and there is no public way.
    """
    from torch.distributed._composable_state import _module_state_mapping
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

    states: list[Any] = [reference() for reference in list(_module_state_mapping.values())]
    groups = [g for s in states if isinstance(s, FSDPState) for g in s._fsdp_param_groups]
    return {
        id(held.sharded_param): float(g.gradient_divide_factor or held.mesh_info.mesh.size())
        for g in groups
        for held in g.fsdp_params
    }


class Group:
    """The processes that train one model: torch's default process group, or this process alone."""

    def __init__(self, optimizer: Any, parameters: Sequence[torch.nn.Parameter]) -> None:
        sharded = any(isinstance(p, DTensor) for p in parameters)
        joint = sharded or hasattr(optimizer, "world_size")
        self.size = distributed.get_world_size() if joint else 1
        self.rank = distributed.get_rank() if joint else 0

    def check(self, optimizer: Any, parameters: Sequence[torch.nn.Parameter]) -> str:
        """The layout of the parameters over the processes, in words that are the same everywhere.

        Raises:
            UsageError: a mesh without some processes; shards that Opacus would sum once more.
        """
        words = [type(optimizer).__name__, str(self.size)]
        for p in parameters:
            words.append(f"{tuple(p.shape)} {p.dtype}")
            if not isinstance(p, DTensor):
                continue
            ranks = p.device_mesh.mesh.flatten().tolist()
            if sorted(ranks) != list(range(self.size)):
                raise UsageError(
                    f"device_mesh={ranks}: must have all {self.size} processes of the default "
                    "group, where one key serves one model; use the whole mesh"
                )
            if reduces_later(optimizer):
                raise UsageError(
                    f"optimizer={type(optimizer).__name__}: Opacus sums gradients of whole "
                    "parameters, and these are sharded; take grad_sample_mode='ghost_fsdp'"
                )
            words.append(f"{p.placements} {p.device_mesh.mesh.tolist()}")
        return "\n".join(words)

    def agree(self, check: Callable[[], str], *, keyed: bool = False) -> bytes:
        """Raise everywhere unless ``check`` passes and says the same in every process.

        If ``keyed``, returns a fresh 32-byte key of the first process, from its operating system.
        It travels as gradients do: whoever reads the group's traffic reads both. One ``all_gather``
        of 65 bytes each, which every process must call.

        Raises:
            UsageError: another process refused or says something else.
            Exception: what this process's own ``check`` raised.
        """
        error: Exception | None = None
        digest, key = bytes(32), bytes(KEY_BYTES)
        try:
            digest = hashlib.sha256(check().encode()).digest()
            key = secrets.token_bytes(KEY_BYTES) if keyed and self.rank == 0 else key
        except Exception as caught:  # noqa: BLE001 the others must hear of it, whatever it is
            error = caught
        if self.size > 1:
            rows = self._gather(bytes([error is not None]) + digest + key)
            refused = [i for i, row in enumerate(rows) if row[0]]
            key = rows[0][33:]
            if not refused and len({row[1:33] for row in rows}) > 1:
                error = UsageError(
                    f"process={self.rank}: its parameters, their placements, σ or step are not "
                    "those of the others; make model and optimizer alike in every process"
                )
            elif refused and error is None:
                error = UsageError(
                    f"process={', '.join(map(str, refused))}: refused this step, so that no "
                    "process takes it; its own message says why"
                )
        if error is not None:
            raise error
        return key

    def _gather(self, message: bytes) -> list[bytes]:
        nccl = str(distributed.get_backend()) == "nccl"  # alone: it moves no tensor of the CPU
        device = f"cuda:{torch.cuda.current_device()}" if nccl else "cpu"
        mine = torch.frombuffer(bytearray(message), dtype=torch.uint8).to(device)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        distributed.all_gather(parts, mine)
        return [bytes(part.tolist()) for part in parts]
