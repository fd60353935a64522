"""Per-sample gradients as flat vectors, and one batch's clipped mean with many neighbours."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from dpaudit.errors import UsageError

__all__ = ["Exchange", "GradientBlock", "PerSampleGradients", "clip_factors", "room"]

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_CHUNK = 128


def room(device: torch.device, *, cpu: int, part: int) -> int:
    """Bytes that some work may take: ``cpu`` on the CPU, one ``part``-th of a CUDA device."""
    return (
        cpu
        if device.type == "cpu"
        else int(torch.cuda.get_device_properties(device).total_memory) // part
    )


class PerSampleGradients:
    """The gradient of each record's loss by all trainable parameters, as one flat vector.

    Parameters are joined in the model's order. Records go through ``vmap(grad(...))`` in chunks;
    where not even two fit in ``memory``, one by one through plain autograd, which writes into one
    flat vector: then only the weights, the gradient, and the activations of one record are held.
    The model given is not changed.

    Formal guarantee: chunks depend on the model, the shape of a record and ``memory`` only, so one
    machine repeats itself. Not claimed: equal last bits for other chunks or on other hardware; in
    float64 they agree to about 1e-15 of the norm.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
        loss: Loss = functional.cross_entropy,
        memory: int | None = None,
    ) -> None:
        """Works on a copy of ``model`` in ``dtype`` on ``device``.

        ``loss`` takes logits (1, c) and classes (1,). ``memory`` in bytes is what a chunk may take,
        by default an eighth of a CUDA device, and 32 MiB on the CPU, where only small networks gain
        by chunks.

        Raises:
            UsageError: no trainable parameter, or a layer that mixes records (BatchNorm) or is not
                a function of the record (dropout) as the model stands.
        """
        for name, layer in model.named_modules():
            if isinstance(layer, (_BatchNorm, _DropoutNd)) and layer.training:
                raise UsageError(
                    f"model: {name} is a {type(layer).__name__} in training mode, so records have "
                    "no gradients of their own; convert it with "
                    "dpaudit.training.models.networks.with_norm, or call eval()"
                )
        self.dtype, self.device, self._loss = dtype, torch.device(device), loss
        self._memory = room(self.device, cpu=32 << 20, part=8) if memory is None else memory
        self._sizes: dict[torch.Size, int] = {}
        self._model = copy.deepcopy(model).to(device=self.device, dtype=dtype)
        self._parameters = {k: p for k, p in self._model.named_parameters() if p.requires_grad}
        if not self._parameters:
            raise UsageError(
                "model: has no parameter with requires_grad; unfreeze what shall be trained"
            )
        self.dim = sum(p.numel() for p in self._parameters.values())

    def chunks(self, x: torch.Tensor, y: torch.Tensor) -> Iterator[torch.Tensor]:
        """Gradients of records ``x`` (b, …) of classes ``y`` (b,), in order.

        Tensors (chunk, d), together (b, d).
        """
        if not len(x):
            return
        x, y = x.to(device=self.device, dtype=self.dtype), y.to(self.device)
        size = self._size(x[:1], y[:1])
        for rows in (slice(low, low + size) for low in range(0, len(x), size)):
            with self._exact():
                gradients = (
                    self._one(x[rows], y[rows]) if size == 1 else self._several(x[rows], y[rows])
                )
            yield gradients

    def all(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The same as one tensor (b, d), which must fit in memory with one chunk."""
        out = torch.empty((len(x), self.dim), dtype=self.dtype, device=self.device)
        low = 0
        for chunk in self.chunks(x, y):
            out[low : low + len(chunk)] = chunk
            low += len(chunk)
        return out

    def _size(self, x: torch.Tensor, y: torch.Tensor) -> int:
        """Records per chunk: two flat gradients each, and what autograd keeps of a forward pass."""
        if x.shape not in self._sizes:
            gradients = 2 * self.dim * x.element_size()
            saved = self._saved_bytes(x, y) if gradients < self._memory // 2 else 0
            self._sizes[x.shape] = max(1, min(_CHUNK, self._memory // (gradients + saved)))
        return self._sizes[x.shape]

    def _saved_bytes(self, x: torch.Tensor, y: torch.Tensor) -> int:
        """Bytes that autograd keeps of a forward pass, without the weights."""
        own = {p.data_ptr() for p in self._model.parameters()}
        size = 0

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal size
            size += 0 if tensor.data_ptr() in own else tensor.numel() * tensor.element_size()
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            self._loss(self._model(x), y)
        return size

    def _several(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = {k: p.detach() for k, p in self._parameters.items()}

        def loss(
            weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> torch.Tensor:
            return self._loss(
                functional_call(self._model, weights, (x.unsqueeze(0),)), y.unsqueeze(0)
            )

        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        return torch.cat([gradients[name].reshape(len(x), -1) for name in self._parameters], 1)

    def _one(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        flat = torch.zeros((1, self.dim), dtype=self.dtype, device=self.device)
        parts = torch.split(flat[0], [p.numel() for p in self._parameters.values()])
        for p, part in zip(self._parameters.values(), parts, strict=True):
            p.grad = part.view(p.shape)  # where there is a gradient autograd adds to it in place
        try:
            self._loss(self._model(x), y).backward()  # type: ignore[no-untyped-call]
        finally:
            for p in self._parameters.values():
                p.grad = None
        return flat

    def _exact(self) -> AbstractContextManager[object]:
        """On CUDA: float32 without TensorFloat-32's ten bits, and deterministic algorithms."""
        if self.device.type != "cuda":
            return nullcontext()
        flags: AbstractContextManager[object] = torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        )
        return flags


Gradients = Callable[[Sequence[int]], Iterator[torch.Tensor]]

# float64 vectors per pair while it is attacked: gradients, candidates, noise, differences
_VECTORS = 8


def clip_factors(gradients: torch.Tensor, clip: float) -> torch.Tensor:
    """min(1, clip/‖g‖) per row of ``gradients`` (n, d), shape (n,), float64; 1 for a zero row."""
    norms = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
    return torch.where(norms > clip, clip / norms, torch.ones_like(norms))


@dataclass(frozen=True)
class Exchange:
    """Some pairs: in each, one record's gradient is replaced by another's, or removed.

    ``gone`` and ``come`` have shape (g, d) and are not clipped; ``first`` is the number of the
    first pair in its block.
    """

    block: GradientBlock
    first: int
    gone: torch.Tensor
    come: torch.Tensor | None

    def __len__(self) -> int:
        return len(self.gone)

    def changes(self, clip: float, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """q(D′) − q(D) of each pair under ``clip`` (``inf``: none), shape (g, d), float64.

        Written into ``out`` if it is given.
        """
        out = (
            torch.empty(self.gone.shape, dtype=torch.float64, device=self.gone.device)
            if out is None
            else out
        )
        if self.come is None:
            out.zero_()
        else:
            torch.mul(self.come, self._weights(self.come, clip), out=out)
        return out.addcmul_(self.gone.to(torch.float64), self._weights(self.gone, clip), value=-1)

    def candidates(self, clip: float) -> torch.Tensor:
        """q(D) and q(D′) of each pair, shape (g, 2, d), float64; ``clip`` is one of the block's."""
        out = torch.empty(
            (len(self), 2, self.gone.shape[1]), dtype=torch.float64, device=self.gone.device
        )
        query = self.block.query(clip)
        self.changes(clip, out=out[:, 1]).add_(query)
        out[:, 0] = query
        return out

    def _weights(self, gradients: torch.Tensor, clip: float) -> torch.Tensor:
        return clip_factors(gradients, clip).div_(self.block.batch).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class GradientBlock:
    """A batch D, and a neighbour D′ for each of its first ``pairs`` records, replaced or removed.

    All pairs have the batch except one record in common; their differences come from distinct
    records. One pass over the batch serves all ``clips`` and any noise. Where gradients are few and
    short they are kept; otherwise those of a pair are computed again when needed (the same up to
    the rounding of another chunk).

    Attributes:
        records: the batch, in random order.
        others: what replaces the first records; empty where records are removed.
        pairs: how many neighbours there are.
        clips: the clipping norms that q(D) is there for; ``inf`` clips nothing.
    """

    gradients: Gradients = field(repr=False)
    records: tuple[int, ...]
    others: tuple[int, ...]
    pairs: int
    clips: tuple[float, ...]
    dim: int
    device: torch.device
    _sums: dict[float, torch.Tensor] = field(init=False, repr=False, default_factory=dict)
    _exchanged: dict[str, torch.Tensor] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for clip in self.clips:
            self._sums[clip] = torch.zeros(self.dim, dtype=torch.float64, device=self.device)
        gone = []
        low, keep = 0, room(self.device, cpu=1 << 30, part=8) // (16 * self.dim) >= self.pairs
        for chunk in self.gradients(self.records):
            for clip, total in self._sums.items():
                total.addmv_(chunk.to(torch.float64).T, clip_factors(chunk, clip))
            if keep and low < self.pairs:
                gone.append(chunk[: self.pairs - low])
            low += len(chunk)
        for total in self._sums.values():
            total.div_(self.batch)
        if keep:
            self._exchanged["gone"] = torch.cat(gone)
            if self.others:
                self._exchanged["come"] = torch.cat(list(self.gradients(self.others)))

    @property
    def batch(self) -> int:
        return len(self.records)

    def query(self, clip: float) -> torch.Tensor:
        """q(D): the mean of the clipped gradients, shape (d,), float64; do not write to it."""
        return self._sums[clip]

    def exchanges(self) -> Iterator[Exchange]:
        """All pairs in order, as many at a time as fit in memory."""
        step = max(1, room(self.device, cpu=256 << 20, part=4) // (8 * _VECTORS * self.dim))
        for first in range(0, self.pairs, step):
            yield self._exchange(first, min(self.pairs, first + step))

    def _exchange(self, first: int, last: int) -> Exchange:
        if self._exchanged:
            come = self._exchanged["come"][first:last] if self.others else None
            return Exchange(self, first, self._exchanged["gone"][first:last], come)
        gone = self._rows(self.records[first:last])
        return Exchange(
            self, first, gone, self._rows(self.others[first:last]) if self.others else None
        )

    def _rows(self, records: Sequence[int]) -> torch.Tensor:
        chunks = list(self.gradients(records))
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)
