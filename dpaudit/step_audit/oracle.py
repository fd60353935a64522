"""The clipped sum by its definition: a plain copy of the model, one backward per record."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from dpaudit.audit.training.records import whole
from dpaudit.errors import UsageError
from dpaudit.ranks import Ranks
from dpaudit.step_audit.observe import Observed, Steps, content

__all__ = ["CLIPPED", "RAW", "Oracle", "plain_copy"]

Array = npt.NDArray[np.float64]

CLIPPED, RAW, ALONE = "clipped", "no record is clipped", "each parameter is clipped alone"
SHARD = "each process's shard is clipped alone"
_FACTORS = tuple(sign * 4.0**k for k in range(1, 6) for sign in (1, -1))
_OUTLIER = 4.0
"""The norm that some record's gradient should have, in clipping bounds."""
_NOT_COPIED = ("hook", "composable", "compiled", "activations")


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy of the model with whole parameters, without hooks, shards or compiled code.

    All processes of a sharded model must call it together.
    """
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        own = whole(parameter).detach().clone()
        memo[id(parameter)] = nn.Parameter(own, requires_grad=parameter.requires_grad)
    for module in reversed(list(model.modules())):  # children first
        cls = type(module)
        if "FSDPModule" in {base.__name__ for base in cls.__bases__}:
            cls = cls.__bases__[1]
        memo[id(module)] = plain = cls.__new__(cls)
        nn.Module.__init__(plain)
        copied = {n: v for n, v in vars(module).items() if not any(w in n for w in _NOT_COPIED)}
        vars(plain).update(copy.deepcopy(copied, memo))
    result: nn.Module = memo[id(model)]
    return result


def _mapped(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    batch = dict(batch) if isinstance(batch, Mapping) else batch
    return tree_map_only(torch.Tensor, lambda t: change(t) if t.ndim else t, batch)


def _tensors(batch: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    _mapped(batch, lambda t: tensors.append(t) or t)  # type: ignore[func-returns-value]
    return tensors


def _norm(parts: Mapping[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float(g.square().sum()) for g in parts.values()))


def _factor(bound: float, norm: float) -> float:
    return min(1.0, bound / max(norm, 1e-300))


class Oracle:
    """Per-record gradients of a plain copy, by the user's loss; their clipped sum.

    After :meth:`add_up`, ``sums`` has CLIPPED and what wrong ways to clip would give, each (n,), at
    the numbers that are looked at; ``records`` is their number on all processes, ``largest`` the
    largest norm of a gradient.
    """

    def __init__(self, steps: Steps, loss: Callable[[Any, Any], Any] | None, bound: float) -> None:
        self._model, self._loss, self._bound = plain_copy(steps.model), loss, bound
        parameters = dict(self._model.named_parameters())
        self._wanted = {name: parameters[name] for name in steps.held}
        self.sums: dict[str, Array] = {}
        self.records, self.largest = 0, 0.0

    def _gradient(self, batch: Any, at: int) -> tuple[dict[str, torch.Tensor], float]:
        """The whole gradient of one record in float64, and its norm."""
        record = _mapped(batch, lambda t: t[at : at + 1])
        if self._loss is None and not isinstance(record, Mapping):
            raise UsageError("loss=None: give loss(model, record), for a batch of one record")
        value = self._loss(self._model, record) if self._loss else self._model(**record).loss
        wanted = list(self._wanted.values())
        found = torch.autograd.grad(value.sum(), wanted, allow_unused=True)
        pairs = zip(self._wanted.items(), found, strict=True)
        grads = {n: (torch.zeros_like(p) if g is None else g).double() for (n, p), g in pairs}
        return grads, _norm(grads)

    def outlying(self, batch: Any) -> Any:
        """The batch; with a larger first record where no gradient is well above the bound."""
        sizes = {len(t) for t in _tensors(batch)}
        if len(sizes) != 1:
            raise UsageError(
                f"batch={type(batch).__name__} of {sorted(sizes)} rows: must be a tensor, or a "
                "tuple, list or dictionary of tensors with one record in each row"
            )
        enough = _OUTLIER * self._bound
        if all(self._gradient(batch, i)[1] < enough for i in range(*sizes)) and sizes != {0}:
            for factor in _FACTORS:
                larger = _mapped(batch, torch.clone)
                for t in filter(torch.is_floating_point, _tensors(larger)):
                    t[:1] *= factor
                if enough <= self._gradient(larger, 0)[1] < float("inf"):
                    return larger
        return batch

    def add_up(self, batch: Any, seen: Observed, ranks: Ranks) -> None:
        """The sums over the records of all processes; equal batches are the same records."""
        tensors = _tensors(batch)
        said = ranks.exchange(lambda: hashlib.blake2b(b"".join(map(content, tensors))).digest())
        records = len(tensors[0]) if said.index(said[ranks.rank]) == ranks.rank else 0
        shards = list({tuple(own.items()): own for own in seen.layouts}.values())
        ways = (CLIPPED, RAW, ALONE, SHARD) if len(shards) > 1 else (CLIPPED, RAW, ALONE)
        zeros = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in self._wanted.items()}
        sums = {way: copy.deepcopy(zeros) for way in ways}

        def work() -> bytes:
            for i in range(records):
                grads, norm = self._gradient(batch, i)
                self.largest = max(self.largest, norm)
                for n, g in grads.items():
                    sums[CLIPPED][n] += g * _factor(self._bound, norm)
                    sums[RAW][n] += g
                    sums[ALONE][n] += g * _factor(self._bound, float(g.norm()))
                for own in shards if SHARD in sums else ():
                    pieces = {n: own[n].part(g) for n, g in grads.items()}
                    factor = _factor(self._bound, _norm(pieces))
                    for piece in pieces.values():
                        piece *= factor
                for n, total in sums.get(SHARD, {}).items():
                    total += grads[n]
            looked = [o.chosen(o.part(sums[w][n])) for w in ways for n, _, o in seen.parts]
            return np.concatenate([*looked, [records, self.largest]]).tobytes()

        own = ranks.together("loss", work)
        every = np.stack([np.frombuffer(part) for part in ranks.exchange(lambda: own)])
        self.sums = dict(zip(ways, every[:, :-2].sum(0).reshape(len(ways), -1), strict=True))
        self.records, self.largest = int(every[:, -2].sum()), float(every[:, -1].max())
