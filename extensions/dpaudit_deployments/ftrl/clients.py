"""Simulated clients: whose records are whose, and what a client computes from the weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.training.data import Images

__all__ = ["SHARDS", "ClientUpdates", "shards"]

SHARDS = ("iid", "labels")
_CHUNK = 64  # clients at a time


def shards(images: Images, *, records: int, how: str, stream: Stream) -> npt.NDArray[np.int64]:
    """Each client's record numbers, shape (clients, records); what does not fit is left out.

    ``iid``: at random. ``labels``: sorted by class and then cut, as in McMahan et al. 2017, so that
    a client has one class or two.

    Raises:
        UsageError: another ``how``, or more records per client than there are.
    """
    if how not in SHARDS:
        raise UsageError(f"shards={how}: must be {' or '.join(SHARDS)}")
    if not 1 <= records <= len(images):
        raise UsageError(f"records={records}: must lie in 1 … {len(images)}, the records there are")
    order = stream.numpy().permutation(len(images))
    if how == "labels":
        order = order[np.argsort(images.labels[order], kind="stable")]
    clients = len(images) // records
    return np.asarray(order[: clients * records].reshape(clients, records))


class ClientUpdates:
    """What clients send: their weights before less those after local training, over its rate.

    Local training is ``steps`` steps of gradient descent on all of a client's records; for one step
    the update is the gradient of their mean loss, as in FedSGD, and for one record DP-SGD's.
    """

    def __init__(self, model: nn.Module, *, steps: int, lr: float) -> None:
        """``lr`` is the rate of local training; ``model`` is not changed."""
        self._model, self._steps, self._lr = model, steps, lr
        self._names = {k: p.shape for k, p in model.named_parameters()}
        self.dim = sum(shape.numel() for shape in self._names.values())

    def weights(self) -> torch.Tensor:
        """The model's own weights as one vector (d,), float32."""
        return torch.cat([p.detach().reshape(-1) for p in self._model.parameters()])

    def logits(self, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """What the model says of ``x`` (b, …) with ``weights`` (d,)."""
        with torch.no_grad():
            out: torch.Tensor = functional_call(self._model, self._named(weights), (x,))
        return out

    def clipped(
        self,
        weights: torch.Tensor,
        images: Images,
        records: npt.NDArray[np.int64],
        *,
        clip: float,
    ) -> Iterator[torch.Tensor]:
        """One row of norm at most ``clip`` per client, in order: tensors (chunk, d), float32.

        ``records`` (c, r) are the clients'. The norm is float32's, off by about 1e-6 of it.
        """
        for low in range(0, len(records), _CHUNK):
            found = self._some(weights, images, records[low : low + _CHUNK])
            norms = torch.linalg.vector_norm(found, dim=1, keepdim=True)
            yield found.mul_(torch.clamp(clip / norms, max=1.0))

    def _some(
        self, weights: torch.Tensor, images: Images, records: npt.NDArray[np.int64]
    ) -> torch.Tensor:
        x, y = images.batch(records.reshape(-1))
        x = x.reshape(*records.shape, *x.shape[1:])
        y = y.reshape(records.shape)

        def loss(flat: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(
                functional_call(self._model, self._named(flat), (x,)), y
            )

        found: torch.Tensor = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        for _ in range(self._steps - 1):
            moved = weights - self._lr * found
            found = found + vmap(grad(loss))(moved, x, y)
        return found

    def _named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = torch.split(flat, [shape.numel() for shape in self._names.values()])
        return {
            k: part.reshape(shape)
            for (k, shape), part in zip(self._names.items(), parts, strict=True)
        }
