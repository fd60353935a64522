"""The clipped sum by its definition: a plain copy of the model, one backward per record."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.step_audit.observe import Layout, Steps
from dpaudit.step_audit.ranks import Ranks

__all__ = ["Oracle", "clipped_sums", "plain_copy", "with_outlier"]

Array = npt.NDArray[np.float64]

_FACTORS = tuple(sign * 4.0**k for k in range(1, 6) for sign in (1, -1))
_OUTLIER = 4.0
"""The norm that one record of each process should have, in clipping bounds."""
CLIPPED = "clipped"


@dataclass(frozen=True, eq=False, slots=True)
class Oracle:
    """Sums of per-record gradients at the numbers that are looked at, keyed by how they are clipped.

    ``sums`` has CLIPPED and wrong ways, each (n,); ``records`` is their number on all processes,
    ``largest`` the largest norm of a record's gradient.
    """

    sums: dict[str, Array]
    records: int
    largest: float


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy of the model with whole parameters, without hooks, shards or compiled code.

    All processes of a sharded model must call it together.
    """
    memo: dict[int, Any] = {}
    for p in model.parameters():
        whole = p.full_tensor() if hasattr(p, "full_tensor") else p  # type: ignore[operator]
        memo[id(p)] = nn.Parameter(whole.detach().clone(), requires_grad=p.requires_grad)
    for module in reversed(list(model.modules())):
        cls = type(module)
        if "FSDPModule" in {base.__name__ for base in cls.__bases__}:
            cls = cls.__bases__[1]
        plain = cls.__new__(cls)
        nn.Module.__init__(plain)
        memo[id(module)] = plain
        for name, value in vars(module).items():
            if not any(word in name for word in ("hook", "composable", "compiled", "activations")):
                vars(plain)[name] = copy.deepcopy(value, memo)
    result: nn.Module = memo[id(model)]
    return result


def _records(batch: Any) -> int:
    sizes = {len(t) for t in _tensors(batch) if t.ndim}
    if len(sizes) != 1:
        raise UsageError(
            f"batch={type(batch).__name__}: must be a tensor, or a tuple, list or dictionary of "
            f"tensors with one record in each row; the first sizes are {sorted(sizes)}"
        )
    return int(sizes.pop())


def _tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    values = batch.values() if isinstance(batch, Mapping) else batch
    return [t for v in values if isinstance(v, (torch.Tensor, list, tuple)) for t in _tensors(v)]


def _mapped(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(batch, torch.Tensor):
        return change(batch) if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {name: _mapped(value, change) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)([_mapped(value, change) for value in batch])
    return batch


class Gradients:
    """Per-record gradients of a plain model, by the user's loss."""

    def __init__(self, steps: Steps, loss: Callable[[Any, Any], torch.Tensor] | None) -> None:
        self._model, self._loss, self._names = plain_copy(steps.inner), loss, list(steps.held)

    def of(self, record: Any) -> dict[str, torch.Tensor]:
        """The whole gradient of one record, in the parameters' shapes."""
        parameters = dict(self._model.named_parameters())
        if self._loss is not None:
            value = self._loss(self._model, record)
        elif isinstance(record, Mapping):
            value = self._model(**record).loss
        else:
            raise UsageError("loss: give loss(model, record), the loss of a batch of one record")
        wanted = [parameters[name] for name in self._names]
        found = torch.autograd.grad(value.sum(), wanted, allow_unused=True)
        return {
            name: (torch.zeros_like(p) if g is None else g).double()
            for name, p, g in zip(self._names, wanted, found, strict=True)
        }

    def norm(self, record: Any) -> float:
        """Its norm over all trainable parameters."""
        return float(sum(g.square().sum() for g in self.of(record).values()) ** 0.5)


def with_outlier(gradients: Gradients, batch: Any, bound: float) -> Any:
    """The batch; with its first record enlarged if no record's gradient exceeds the bound well."""
    size = _records(batch)
    norms = [gradients.norm(_mapped(batch, lambda t, i=i: t[i : i + 1])) for i in range(size)]
    if not norms or max(norms) >= _OUTLIER * bound:
        return batch
    for factor in _FACTORS:
        larger = _mapped(batch, lambda t, f=factor: _enlarged(t, f))
        norm = gradients.norm(_mapped(larger, lambda t: t[:1]))
        if _OUTLIER * bound <= norm < float("inf"):
            return larger
    return batch


def _enlarged(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    larger = tensor.clone()
    larger[0] *= factor
    return larger


def clipped_sums(
    steps: Steps,
    gradients: Gradients,
    batch: Any,
    bound: float,
    places: list[tuple[str, Layout]],
    layouts: tuple[dict[str, Layout], ...],
    ranks: Ranks,
) -> Oracle:
    """The sums over the records of all processes; equal batches are the same records.

    Besides the clipped sum: what wrong ways to clip would give.
    """
    digest = hashlib.blake2b()
    for t in _tensors(batch):
        digest.update(t.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)
    digests = ranks.gather(digest.digest())
    counts = digests.index(digests[ranks.rank]) == ranks.rank
    shards = list({tuple(sorted(own.items())): own for own in layouts}.values())
    sums: dict[str, dict[str, torch.Tensor]] = {}
    largest = 0.0

    def add(way: str, name: str, value: torch.Tensor) -> None:
        own = sums.setdefault(way, {})
        own[name] = own[name] + value if name in own else value.clone()

    size = _records(batch)
    for i in range(size if counts else 0):
        whole = gradients.of(_mapped(batch, lambda t, i=i: t[i : i + 1]))
        squares = {name: float(g.square().sum()) for name, g in whole.items()}
        norm = sum(squares.values()) ** 0.5
        largest = max(largest, norm)
        for name, g in whole.items():
            add(CLIPPED, name, g * _factor(bound, norm))
            add("no record is clipped", name, g)
            add("each parameter is clipped alone", name, g * _factor(bound, squares[name] ** 0.5))
        if len(shards) > 1:
            for name, g in _by_shard(whole, shards, bound).items():
                add("each process's shard is clipped alone", name, g)
    flat = {way: _chosen(own, places) for way, own in sums.items()}
    every = ranks.gather((flat, size if counts else 0, largest))
    ways = dict.fromkeys(way for one in every for way in one[0])
    return Oracle(
        sums={way: np.sum([one[0][way] for one in every if way in one[0]], axis=0) for way in ways},
        records=sum(one[1] for one in every),
        largest=max(one[2] for one in every),
    )


def _factor(bound: float, norm: float) -> float:
    return min(1.0, bound / max(norm, 1e-300))


def _by_shard(
    whole: dict[str, torch.Tensor], shards: list[dict[str, Layout]], bound: float
) -> dict[str, torch.Tensor]:
    clipped = {name: torch.zeros_like(g) for name, g in whole.items()}
    for own in shards:
        norm = float(sum(own[n].part(g).square().sum() for n, g in whole.items())) ** 0.5
        for name, g in whole.items():
            own[name].part(clipped[name]).copy_(own[name].part(g) * _factor(bound, norm))
    return clipped


def _chosen(whole: dict[str, torch.Tensor], places: list[tuple[str, Layout]]) -> Array:
    return np.concatenate([layout.chosen(layout.part(whole[name])) for name, layout in places])
