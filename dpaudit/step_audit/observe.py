"""Steps of a user's own loop from one state: what the inner optimizer is handed, what changes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.step_audit.ranks import Ranks
from dpaudit.step_audit.restore import Saved, local, restored_randomness

__all__ = ["Block", "Layout", "Observed", "Steps", "inner_model", "observe"]

Array = npt.NDArray[np.float64]

_MOST_COORDINATES = 65_536
_WRAPPERS = {
    "AbstractGradSampleModule": "_module",
    "DifferentiallyPrivateDistributedDataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}


def inner_model(model: nn.Module) -> nn.Module:
    """The model within DistributedDataParallel, torch.compile and Opacus' wrappers."""
    names = [cls.__name__ for cls in type(model).__mro__]
    wrapped = next((_WRAPPERS[name] for name in names if name in _WRAPPERS), None)
    return model if wrapped is None else inner_model(getattr(model, wrapped))


@dataclass(frozen=True, slots=True)
class Layout:
    """Which part of a parameter a process holds, and which numbers of it are looked at."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    count: int

    @property
    def coordinates(self) -> npt.NDArray[np.int64]:
        """Places in the flat part: the first of them, and others at even distances."""
        size = math.prod(self.shape)
        if self.count >= size:
            return np.arange(size)
        first = self.count // 2
        rest = np.linspace(first, size - 1, self.count - first).astype(np.int64)
        return np.concatenate([np.arange(first), rest])

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """This part of a whole parameter, or of what has its shape."""
        return whole[tuple(slice(o, o + n) for o, n in zip(self.offset, self.shape, strict=True))]

    def chosen(self, part: torch.Tensor) -> Array:
        """The numbers that are looked at, of a part, shape (count,)."""
        flat = part.reshape(-1)[torch.from_numpy(self.coordinates).to(part.device)]
        return np.asarray(flat.double().cpu())


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """A part of a parameter in all steps: ``values`` (steps, n), as the first ``rank`` has it."""

    name: str
    rank: int
    layout: Layout
    values: Array


@dataclass(frozen=True, eq=False, slots=True)
class Observed:
    """What K steps from one state showed, the same on all processes.

    ``certain`` are findings (name, effect, likeliest cause) that need no statistics. ``counted`` is
    what the accountant was told in a step (noise multiplier, sample rate, steps), None without one.
    """

    blocks: tuple[Block, ...]
    certain: tuple[tuple[str, str, str], ...]
    layouts: tuple[dict[str, Layout], ...]
    micro_steps: int
    low_precision: bool
    low_gradients: bool
    counted: tuple[float, float, int] | None
    seeds: tuple[int, ...]
    equal_states: bool
    divided_by: float | None


def chain(optimizer: Any) -> tuple[Any, ...]:
    """An optimizer and those within it, the one that torch made last."""
    links = [optimizer]
    while True:
        own = vars(links[-1])
        within = own.get("original_optimizer", own.get("optimizer"))
        if not hasattr(within, "param_groups"):
            return tuple(links)
        links.append(within)


def _layout(p: torch.Tensor, share: float) -> Layout:
    shape, offset = tuple(p.shape), (0,) * p.ndim
    if hasattr(p, "placements"):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        tensor: Any = p
        shape, offset = compute_local_shape_and_global_offset(
            p.shape, tensor.device_mesh, tensor.placements
        )
    size = math.prod(shape)
    return Layout(tuple(offset), tuple(shape), min(size, max(64, int(size * share))))


class Steps:
    """Takes the steps of one process and remembers what they release."""

    def __init__(
        self, model: nn.Module, optimizer: Any, step: Callable[[Any], object], rate: float
    ) -> None:
        self.inner, self._step, self._rate = inner_model(model), step, rate
        self.links = () if optimizer is None else chain(optimizer)
        named = dict(self.inner.named_parameters())
        if optimizer is None:
            held = {name: p for name, p in named.items() if p.requires_grad}
        else:
            ids = {id(p) for group in self.links[-1].param_groups for p in group["params"]}
            held = {name: p for name, p in named.items() if id(p) in ids and p.requires_grad}
            if ids - {id(p) for p in named.values()}:
                raise UsageError(
                    "model: the optimizer holds parameters that it has not; give the model that "
                    "the step trains, and build the optimizer after sharding it"
                )
        if not held:
            raise UsageError("parameters=0: none is trainable; set requires_grad first")
        self.named, self.held = named, held
        share = min(1.0, _MOST_COORDINATES / sum(p.numel() for p in held.values()))
        self.layouts = {name: _layout(p, share) for name, p in held.items()}
        self.rows: list[dict[str, Array]] = []
        self._hashes = {name: [hashlib.blake2b() for _ in range(3)] for name in held}
        self.bare: set[str] = set()
        self.outside: set[str] = set()
        self.statistics: set[str] = set()
        self.micro_steps = self._handed = 0
        self.autocast, self.accumulated = False, 1
        hooks = [getattr(link, "step_hook", None) for link in self.links]
        cells = [c.cell_contents for h in hooks for c in getattr(h, "__closure__", None) or ()]
        self.accountants = [cell for cell in cells if hasattr(cell, "history")]
        self.counted: tuple[float, float, int] | None = None

    @property
    def generators(self) -> list[Any]:
        """The optimizers' own generators."""
        own = [getattr(link, "generator", None) for link in self.links]
        return [g for g in own if g is not None]

    @property
    def digests(self) -> dict[str, tuple[bytes, ...]]:
        """Of each parameter: its part at first, the gradients handed on, its part after steps."""
        return {name: tuple(h.digest() for h in own) for name, own in self._hashes.items()}

    @contextmanager
    def watched(self) -> Iterator[Saved]:
        """Hooks on the model and the inner optimizer, dropout off; all restored at the end."""
        drops = [m for m in self.inner.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        rates = [m.p for m in drops]
        handles = [self.inner.register_forward_pre_hook(self._count)]
        if self.links:
            handles.append(self.links[-1].register_step_pre_hook(self._take))
        saved = Saved(self.inner, self.links, self.accountants)
        with restored_randomness(self.generators):
            try:
                for m in drops:
                    m.p = 0.0
                yield saved
            finally:
                for handle in handles:
                    handle.remove()
                for m, p in zip(drops, rates, strict=True):
                    m.p = p
                saved.put_back()

    def take(self, batch: Any, saved: Saved) -> None:
        """One step on ``batch`` from the saved state."""
        saved.put_back()
        before = {name: local(p).clone() for name, p in self.named.items()}
        buffers = {name: b.clone() for name, b in _statistics(self.inner)}
        told = [len(a.history) and a.history[-1][2] for a in self.accountants]
        self.micro_steps = self._handed = 0
        self._step(batch)
        if not self.links:
            self._take_change(before)
        if self._handed != 1:
            raise UsageError(
                f"step: reached the inner optimizer {self._handed} times; one call of step must "
                "take one step of it"
            )
        after = {name: local(p) for name, p in self.named.items()}
        changed = {name for name, was in before.items() if not torch.equal(was, after[name])}
        self.outside |= changed - (self.held.keys() - self.bare)
        self.statistics |= {n for n, b in _statistics(self.inner) if not torch.equal(b, buffers[n])}
        for name, (first, _, last) in self._hashes.items():
            if len(self.rows) == 1:
                first.update(_bytes(before[name]))
            last.update(_bytes(after[name]))
        for a, was in zip(self.accountants, told, strict=True):
            entry = a.history[-1] if a.history else (math.nan, math.nan, 0)
            fresh = len(a.history) != len(saved._histories[0][1])
            self.counted = (entry[0], entry[1], int(entry[2]) - (0 if fresh else int(was)))

    def _count(self, *_: object) -> None:
        self.micro_steps += torch.is_grad_enabled()
        self.autocast |= torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")

    def _take(self, *_: object) -> None:
        self._handed += 1
        self.accumulated = max(
            [getattr(link, "accumulated_iterations", 1) for link in self.links[:-1]] or [1]
        )
        row = {}
        for name, p in self.held.items():
            layout = self.layouts[name]
            if p.grad is None:
                self.bare.add(name)
                row[name] = np.zeros(len(layout.coordinates))
                continue
            grad: Any = p.grad.detach()
            if hasattr(grad, "placements") and grad.placements != p.placements:  # type: ignore[attr-defined]
                grad = grad.redistribute(grad.device_mesh, p.placements)  # type: ignore[attr-defined]
            row[name] = layout.chosen(local(grad))
            self._hashes[name][1].update(_bytes(local(grad)))
        self.rows.append(row)

    def _take_change(self, before: dict[str, torch.Tensor]) -> None:
        self._handed += 1
        row = {}
        for name, p in self.held.items():
            change = (before[name] - local(p)) / self._rate
            row[name] = self.layouts[name].chosen(change)
            self._hashes[name][1].update(_bytes(change))
        self.rows.append(row)


def _statistics(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Running statistics of normalisation layers: they hold the data, and get no noise."""
    return [
        (f"{name}.{own}", buffer)
        for name, m in model.named_modules()
        if isinstance(m, nn.modules.batchnorm._NormBase)
        for own, buffer in m.named_buffers(recurse=False)
        if buffer.is_floating_point()
    ]


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data


def observe(steps: Steps, ranks: Ranks) -> Observed:
    """Join what all processes saw: each part of a parameter once, and what is certain."""
    mine = (
        steps.layouts,
        steps.digests,
        sorted(steps.bare),
        sorted(steps.outside),
        sorted(steps.statistics),
        torch.get_rng_state().numpy().tobytes(),
        [torch.initial_seed(), *(g.initial_seed() for g in steps.generators)],
    )
    every = ranks.gather(mine)
    layouts = tuple(one[0] for one in every)
    owner: dict[tuple[str, Any], int] = {}
    certain: list[tuple[str, str, str]] = []
    kinds = ("parameters before the step", "gradients handed on", "parameters after the step")
    for name in steps.held:
        for rank, own in enumerate(layouts):
            first = owner.setdefault((name, own[name]), rank)
            differs = [a != b for a, b in zip(every[first][1][name], every[rank][1][name], strict=True)]
            if any(differs):
                kind = kinds[differs.index(True)]
                certain.append(("replicas", f"{name}: {kind} differ on ranks {first} and {rank}", ""))
    for (at, name), cause in _CERTAIN.items():
        if names := sorted({n for one in every for n in one[at]}):
            certain.append((name, _few(names), cause))
    values = {
        name: np.stack([row[name] for row in steps.rows])
        for name in steps.held
        if owner[name, steps.layouts[name]] == ranks.rank
    }
    arrays = ranks.gather(values)
    blocks = [
        Block(name, rank, layout, arrays[rank][name])
        for (name, layout), rank in owner.items()
        if arrays[rank][name].size
    ]
    dtypes = {p.dtype for p in steps.held.values()}
    half = any(d.itemsize < 4 for d in dtypes)
    return Observed(
        blocks=tuple(blocks),
        certain=tuple(certain),
        layouts=layouts,
        micro_steps=max(1, steps.micro_steps),
        low_precision=half or steps.autocast or _half_policy(steps.inner),
        low_gradients=half,
        counted=steps.counted,
        seeds=tuple(sorted({seed for one in every for seed in one[6]})),
        equal_states=ranks.size > 1 and len({one[5] for one in every}) == 1,
        divided_by=_divisor(steps, ranks),
    )


_CERTAIN = {
    (2, "parameters without noise"): "the step hands no gradient of them to the optimizer",
    (3, "changes outside the optimizer"): (
        "frozen, or in no group of the private optimizer, and changed by the step all the same"
    ),
    (4, "statistics without noise"): "running statistics of normalisation layers hold the data",
}


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _half_policy(model: nn.Module) -> bool:
    states = [m._get_fsdp_state() for m in model.modules() if hasattr(m, "_get_fsdp_state")]
    kinds = [state._mp_policy.param_dtype for state in states]
    return any(kind is not None and kind.itemsize < 4 for kind in kinds)


def _divisor(steps: Steps, ranks: Ranks) -> float | None:
    """What an Opacus optimizer divides the sum over all processes by; None if it is another."""
    link = next((o for o in steps.links if hasattr(o, "expected_batch_size")), None)
    if link is None:
        return None
    if link.loss_reduction != "mean":
        return 1.0
    own = float(link.expected_batch_size) * steps.accumulated
    return own * ranks.size if hasattr(link, "world_size") else own
