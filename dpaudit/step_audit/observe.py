"""Steps of a user's own loop from one state: what the inner optimizer is handed, what changes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.ranks import Ranks
from dpaudit.step_audit.restore import Saved, local, restored_randomness

__all__ = ["Layout", "Observed", "Part", "Steps", "content", "listed", "observe"]

Array = npt.NDArray[np.float64]

_MOST_COORDINATES = 65_536
_WRAPPERS = {
    "AbstractGradSampleModule": "_module",
    "DifferentiallyPrivateDistributedDataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Which part of a parameter a process holds, and how many numbers of it are looked at."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    count: int

    @classmethod
    def of(cls, p: Any, share: float) -> Layout:
        """The layout of a tensor or DTensor; ``share`` of a large part is looked at."""
        shape, offset = tuple(p.shape), (0,) * p.ndim
        if hasattr(p, "placements"):
            from torch.distributed.tensor import _utils

            shape, offset = _utils.compute_local_shape_and_global_offset(
                p.shape, p.device_mesh, p.placements
            )
        size = math.prod(shape)
        return cls(tuple(offset), tuple(shape), min(size, max(64, int(size * share))))

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """This part of what has the whole parameter's shape."""
        return whole[tuple(slice(o, o + n) for o, n in zip(self.offset, self.shape, strict=True))]

    def chosen(self, part: torch.Tensor) -> Array:
        """Of a part: half of the numbers from its beginning, half at even distances, (count,)."""
        size, first = math.prod(self.shape), self.count // 2
        rest = np.linspace(first, size - 1, self.count - first).astype(np.int64)
        places = torch.from_numpy(np.concatenate([np.arange(first), rest]))
        return np.asarray(part.reshape(-1)[places.to(part.device)].double().cpu())


Part = tuple[str, int, Layout]
"""Of a parameter: its name, the first rank that holds it, and where it lies."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Observed:
    """What K steps from one state showed on all processes.

    ``x`` (K, n) is what inner optimizers were handed, part by part; ``certain`` are findings (name,
    effect, cause), ``layouts`` those of each process.
    """

    parts: list[Part]
    x: Array
    certain: list[tuple[str, str, str]]
    layouts: list[dict[str, Layout]]
    seeds: list[int]
    equal_states: bool


def content(tensor: torch.Tensor) -> Any:
    """A tensor's bytes."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data


def listed(names: list[str]) -> str:
    """The first four of them, each once."""
    names = list(dict.fromkeys(names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


class Steps:
    """Takes the steps of one process, and remembers what they release.

    ``links`` are the optimizer and those within it, torch's own last; ``held`` the parameters that
    it trains. ``counted`` is what the accountant was told in a step: noise multiplier, sample rate
    and steps.
    """

    def __init__(self, model: Any, optimizer: Any, step: Callable[[Any], object], rate: Any):
        while names := {c.__name__ for c in type(model).__mro__} & set(_WRAPPERS):
            model = getattr(model, _WRAPPERS[names.pop()])
        self.model, self._step, self._rate = model, step, rate
        self.links: list[Any] = [] if optimizer is None else [optimizer]
        while self.links:
            own = vars(self.links[-1])
            within = own.get("original_optimizer", own.get("optimizer"))
            if not hasattr(within, "param_groups"):
                break
            self.links.append(within)
        self.named: dict[str, Any] = dict(model.named_parameters())
        ids = {id(p) for o in self.links[-1:] for g in o.param_groups for p in g["params"]}
        if ids - {id(p) for p in self.named.values()}:
            raise UsageError(
                "model: lacks parameters that the optimizer holds; give the model that the step "
                "trains, and make the optimizer after sharding it"
            )
        trained = {n: p for n, p in self.named.items() if p.requires_grad}
        self.held = {n: p for n, p in trained.items() if id(p) in ids or not self.links}
        if not self.held:
            raise UsageError("parameters=0: none is trainable; set requires_grad first")
        share = min(1.0, _MOST_COORDINATES / sum(p.numel() for p in self.held.values()))
        self.layouts = {name: Layout.of(p, share) for name, p in self.held.items()}
        self.rows: list[Array] = []
        self.hashes = {name: [hashlib.blake2b() for _ in range(3)] for name in self.held}
        self.bare: set[str] = set()
        self.outside: set[str] = set()
        self.micro_steps, self._handed, self._accumulated, self.autocast = 0, 0, 1, False
        cells = [getattr(getattr(o, "step_hook", None), "__closure__", None) for o in self.links]
        contents = [cell.cell_contents for some in cells for cell in some or ()]
        self.accountants = [own for own in contents if hasattr(own, "history")]
        self.counted: tuple[float, float, int] | None = None
        self.generators = [o.generator for o in self.links if getattr(o, "generator", None)]

    def claimed(self, name: str, given: float | None) -> float:
        """What is ``given``, or an Opacus optimizer's own."""
        own = [getattr(o, name) for o in self.links if hasattr(o, name)]
        value = given or (own[0] if own else None)
        if value is None or isinstance(value, (list, tuple)) or not float(value) > 0:
            raise UsageError(f"{name}={value}: give the claimed one, a number above 0")
        return float(value)

    @property
    def low_gradients(self) -> bool:
        """Whether gradients are of half precision."""
        return any(p.dtype.itemsize < 4 for p in self.held.values())

    @property
    def low_precision(self) -> bool:
        """Whether half precision is involved anywhere."""
        fsdp = [m._get_fsdp_state() for m in self.model.modules() if hasattr(m, "_get_fsdp_state")]
        kinds = [state._mp_policy.param_dtype for state in fsdp]
        return self.low_gradients or self.autocast or any(k and k.itemsize < 4 for k in kinds)

    def divisor(self, processes: int) -> float | None:
        """What an Opacus optimizer divides the sum over all processes by."""
        for o in self.links[:-1]:
            if hasattr(o, "expected_batch_size"):
                size = float(o.expected_batch_size or 0) * self._accumulated
                together = processes if hasattr(o, "world_size") else 1
                return size * together if o.loss_reduction == "mean" else 1.0
        return None

    @contextmanager
    def watched(self) -> Iterator[Saved]:
        """Hooks on model and inner optimizer, dropout off; everything is restored at the end."""
        drops = [m for m in self.model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        handles = [self.model.register_forward_pre_hook(self._forward)]
        handles += [o.register_step_pre_hook(self._handed_on) for o in self.links[-1:]]
        tensors = (*self.model.parameters(), *self.model.buffers())
        outer, inner = self.links[:-1], self.links[-1:]
        saved = Saved(tensors, outer, inner=inner, accountants=self.accountants)
        with restored_randomness(self.generators), ExitStack() as stack:
            stack.callback(saved.put_back)
            for handle in handles:
                stack.callback(handle.remove)
            for m in drops:
                stack.callback(setattr, m, "p", m.p)
                m.p = 0.0
            yield saved

    def repeat(self, times: int, batch: Any, saved: Saved) -> None:
        """Steps on ``batch``, each from the saved state, which is put back."""
        for _ in range(times):
            self._take(batch, saved)
        saved.put_back()

    def _take(self, batch: Any, saved: Saved) -> None:
        saved.put_back()
        before = {name: local(p).clone() for name, p in self.named.items()}
        self.micro_steps = self._handed = 0
        self._step(batch)
        if not self.links:
            self._release({n: (before[n] - local(p)) / self._rate for n, p in self.held.items()})
        if self._handed != 1:
            raise UsageError(
                f"step: reached the inner optimizer {self._handed} times; one call must take one "
                "step of it"
            )
        still = {n: p for n, p in self.named.items() if n not in self.held or n in self.bare}
        self.outside |= {n for n, p in still.items() if not torch.equal(before[n], local(p))}
        for name, (first, _, last) in self.hashes.items():
            first.update(content(before[name]))
            last.update(content(local(self.held[name])))
        for accountant, was in saved.histories[:1]:
            noise, rate, steps = [*was, (math.nan, math.nan, 0), *accountant.history][-1]
            grown = len(accountant.history) == len(was) and bool(was)
            self.counted = float(noise), float(rate), int(steps) - (was[-1][2] if grown else 0)

    def _forward(self, *_: object) -> None:
        self.micro_steps += torch.is_grad_enabled()
        self.autocast |= any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))

    def _handed_on(self, *_: object) -> None:
        self._accumulated = max([1, *(getattr(o, "accumulated_iterations", 1) for o in self.links)])
        self.bare |= {name for name, p in self.held.items() if p.grad is None}
        grads = {}
        for name, p in self.held.items():
            g: Any = torch.zeros_like(p) if p.grad is None else p.grad
            g = g.redistribute(placements=p.placements) if hasattr(g, "placements") else g
            grads[name] = local(g)
        self._release(grads)

    def _release(self, grads: dict[str, torch.Tensor]) -> None:
        self._handed += 1
        self.rows.append(np.concatenate([self.layouts[n].chosen(g) for n, g in grads.items()]))
        for name, g in grads.items():
            self.hashes[name][1].update(content(g))


_KINDS = ("parameters before the step", "gradients handed on", "parameters after the step")


def observe(steps: Steps, ranks: Ranks) -> Observed:
    """Join what all processes saw: each part of a parameter once, and what is certain."""
    every = [json.loads(said) for said in ranks.exchange(lambda: json.dumps(_own(steps)).encode())]
    layouts = [
        {n: Layout(tuple(o), tuple(s), count) for n, (o, s, count) in one["layouts"].items()}
        for one in every
    ]
    owner: dict[tuple[str, Layout], int] = {}
    certain = []
    for name in steps.held:
        for rank, one in enumerate(every):
            first = owner.setdefault((name, layouts[rank][name]), rank)
            both = zip(_KINDS, every[first]["digests"][name], one["digests"][name], strict=True)
            if kinds := [kind for kind, a, b in both if a != b]:
                text = f"{name}: {kinds[0]} differ on ranks {first} and {rank}"
                certain.append(("replicas", text, "replicas of one parameter drift apart"))
    for key, finding, cause in (
        ("bare", "parameters without noise", "no gradient of them reaches the optimizer"),
        ("outside", "changes outside the optimizer",
         "frozen, or in no group of the private optimizer"),
    ):  # fmt: skip
        if names := sorted({n for one in every for n in one[key]}):
            certain.append((finding, listed(names), cause))
    parts = [(name, rank, layout) for (name, layout), rank in owner.items() if layout.count]
    x, ends = np.stack(steps.rows), np.cumsum([0, *(o.count for o in steps.layouts.values())])
    own = {name: x[:, a:b] for name, a, b in zip(steps.held, ends[:-1], ends[1:], strict=True)}
    mine = [own[name] for name, rank, _ in parts if rank == ranks.rank]
    sent = ranks.exchange(np.concatenate([x[:, :0], *mine], axis=1).tobytes)
    arrays = [np.frombuffer(one).reshape(len(x), -1) for one in sent if one]
    return Observed(
        parts=sorted(parts, key=lambda part: part[1]),
        x=np.concatenate(arrays, axis=1),
        certain=certain,
        layouts=layouts,
        seeds=sorted({seed for one in every for seed in one["seeds"]}),
        equal_states=ranks.size > 1 and all(one["states"] == every[0]["states"] for one in every),
    )


def _own(steps: Steps) -> dict[str, Any]:
    """What the others must know of this process."""
    states = [torch.get_rng_state(), *(g.get_state() for g in steps.generators)]
    return {
        "layouts": {n: (own.offset, own.shape, own.count) for n, own in steps.layouts.items()},
        "digests": {n: [h.hexdigest() for h in own] for n, own in steps.hashes.items()},
        "bare": [*steps.bare],
        "outside": [*steps.outside],
        "seeds": [torch.initial_seed(), *(g.initial_seed() for g in steps.generators)],
        "states": [hashlib.blake2b(content(state)).hexdigest() for state in states],
    }
