"""One step of DP-SGD by Opacus: a batch's clipped gradient, released by a ``DPOptimizer``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.queries.gradients.query import ImageQuery, check_choice, positive
from dpaudit.randomness import KeyedStream
from dpaudit.training.models import make_model
from dpaudit.training.plain_training import train

Vector = npt.NDArray[np.float64]

__all__ = ["DpSgdStep", "attach_gradients", "sample_gradients"]

_ROUNDING = 1e-5


@dataclass(frozen=True)
class BatchPair:
    """Two neighbouring batches as record numbers, in the order in which they enter the step."""

    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class DpSgdStep(ImageQuery):
    """The sum (or mean) of a batch's clipped per-sample gradients, released by Opacus' optimizer.

    A step takes ``batch`` records, computes their gradients (``GradSampleModule``), clips each to
    L2 norm ``clip``, adds them up, adds N(0, (noise multiplier · clip)²) in float32 and, under
    ``reduction="mean"``, divides by ``batch``. The release is ``p.grad`` of every parameter after
    ``DPOptimizer.pre_step()``, flattened and joined in the model's order. Neighbours: ``remove``
    (one record fewer, what Opacus accounts for; Δ = clip) or ``replace`` (Δ = 2·clip), over
    ``batch`` for a mean.

    Threat model. The attacker knows the weights, ``clip``, the noise multiplier, ``batch`` and
    ``reduction``, all records of the batch and their order except one record, and two candidates
    for that one (or whether it is there), and sees the noisy gradient of every parameter: what a
    client of distributed or federated training shares. It computes both candidate sums by
    :meth:`value`, the same code on the same kind of machine with the same number of threads: bit
    for bit what the step adds its noise to. In another order of the batch about half of LeNet-5's
    coordinates, a quarter of the small network's, still agree in every bit.

    An attacker who sees updated weights only (:meth:`updates`) sees ``w − lr·g`` rounded to the
    weights' grid: the low bits of g are gone wherever |w| is well above |lr·g|, and all there where
    it is not (:meth:`gradients_of`).

    Not claimed: anything about other hardware or a Poisson batch of unknown records.

    Raises:
        UsageError: an option that is not known or out of range, data that is not there or of
            another shape than the network's.
    """

    model: str = "lenet5"
    data: str = "synthetic"
    batch: int = 64
    """Records of a batch, from 2 to what there are less one."""
    clip: float = 1.0
    neighbour: str = "remove"
    reduction: str = "mean"
    steps: int = 0
    """Of plain SGD on the same data before, from the weights of ``seed``; 0: untrained."""

    def __post_init__(self) -> None:
        check_choice("neighbour", self.neighbour, ("remove", "replace"))
        check_choice("reduction", self.reduction, ("mean", "sum"))
        super().__post_init__()
        if not 2 <= self.batch < len(self.images):
            raise UsageError(
                f"batch={self.batch}: must lie in 2 … {len(self.images) - 1}, "
                f"the records of {self.data} less one"
            )
        network = make_model(self.model, seed=self.seed)
        train(network, self.images, steps=self.steps, seed=self.seed)
        self._model = GradSampleModule(network, loss_reduction=self.reduction)
        self._loss = nn.CrossEntropyLoss(reduction=self.reduction)
        self._parameters = [p for p in self._model.parameters() if p.requires_grad]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values per parameter tensor, in the release's order; each has its own draw of noise."""
        return tuple(p.numel() for p in self._parameters)

    @property
    def dim(self) -> int:
        return sum(self.sizes)

    @property
    def divisor(self) -> int:
        """What the noisy sum is divided by: ``batch``, or 1 for a sum."""
        return self.batch if self.reduction == "mean" else 1

    @property
    def sensitivity(self) -> float:
        """Δ plus 10⁻⁵ of it, as clipping and summing in float32 may exceed the real-number bound.

        Measured, not proven: of 1,000 pairs of the small network and 500 of LeNet-5 none was
        further apart than Δ by more than 2.5·10⁻⁶ of it.
        """
        return (1 if self.neighbour == "remove" else 2) * self.clip / self.divisor * (1 + _ROUNDING)

    def pair(self, *, stream: Stream) -> BatchPair:
        """A random batch and its neighbour, which has another record in one place, or lacks it."""
        rng = stream.numpy()
        *first, other = (
            int(i) for i in rng.choice(len(self.images), self.batch + 1, replace=False)
        )
        place = int(rng.integers(self.batch))
        instead = [other] if self.neighbour == "replace" else []
        return BatchPair(tuple(first), (*first[:place], *instead, *first[place + 1 :]))

    def value(self, records: Sequence[int]) -> npt.NDArray[np.float64]:
        """The clipped and summed gradient of a batch, shape (d,), before noise and division.

        float32 values, computed afresh from the images by Opacus' own ``clip_and_accumulate``.
        """
        optimizer = self._optimizer(1.0)
        attach_gradients(self._parameters, self._gradients(records))
        optimizer.clip_and_accumulate()
        gradient = self._flat([p.summed_grad for p in self._parameters])
        optimizer.zero_grad()
        return gradient

    def releases(
        self,
        records: Sequence[int],
        n: int,
        *,
        noise_multiplier: float,
        secure_mode: bool,
        stream: Stream,
    ) -> npt.NDArray[np.float64]:
        """``n`` noisy gradients of one batch, shape (n, d), float32 values, by ``pre_step()``.

        Per-sample gradients are computed once, everything after them in each step. Noise comes from
        one torch generator, seeded with 32 bits of ``stream`` (it keeps no more) and not seeded
        again, as in training. ``secure_mode`` is the optimizer's own: half the sum of four normals.
        Under it Opacus asks the user for a cryptographic generator, which changes neither the sum
        nor its rounding; here both modes use torch's.

        Raises:
            UsageError: n below 1, or a noise multiplier that is not a finite number above 0.
        """
        optimizer = self._optimizer(noise_multiplier, secure_mode=secure_mode, stream=stream)
        out = np.empty((_at_least_one(n), self.dim))
        gradients = self._gradients(records)
        for row in out:
            attach_gradients(self._parameters, gradients)
            optimizer.pre_step()
            row[:] = self._flat([p.grad for p in self._parameters])
            optimizer.zero_grad()
        return out

    def updates(
        self,
        records: Sequence[int],
        n: int,
        *,
        lr: float,
        noise_multiplier: float,
        secure_mode: bool,
        stream: Stream,
    ) -> npt.NDArray[np.float64]:
        """The weights after ``DPOptimizer.step()`` over plain SGD, ``n`` times, shape (n, d).

        For an attacker who sees no gradient. Each step starts from the same weights, which are not
        changed. Otherwise as :meth:`releases`.

        Raises:
            UsageError: as there, or a learning rate that is not a finite number above 0.
        """
        optimizer = self._optimizer(
            noise_multiplier, secure_mode=secure_mode, stream=stream, lr=positive("lr", lr)
        )
        out = np.empty((_at_least_one(n), self.dim))
        gradients = self._gradients(records)
        before = [p.detach().clone() for p in self._parameters]
        for row in out:
            attach_gradients(self._parameters, gradients)
            optimizer.step()
            row[:] = self._flat(self._parameters)
            optimizer.zero_grad()
            for p, old in zip(self._parameters, before, strict=True):
                p.data.copy_(old)
        return out

    def gradients_of(
        self, updated: npt.NDArray[np.float64], *, lr: float
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The noisy gradients (n, d) that led to the weights ``updated`` (n, d), and certainty.

        See :func:`~dpaudit.queries.gradients.step.recover_gradients`.
        """
        before = [p.detach() for p in self._parameters]
        gradients = [
            recover_gradients(before, row, lr=lr) for row in np.asarray(updated, dtype=np.float32)
        ]
        return np.stack([g for g, _ in gradients]), np.stack([certain for _, certain in gradients])

    def neighbours(self, n: int, *, stream: Stream) -> torch.Tensor:
        """``n`` random pairs of noiseless results, float32 sums over ``divisor``.

        Shape (n, 2, d), float64.
        """
        pairs = np.empty((n, 2, self.dim))
        for i in range(n):
            pair = self.pair(stream=stream.child("pair", i))
            pairs[i] = self.value(pair.first), self.value(pair.second)
        return torch.from_numpy(pairs / self.divisor)

    def differences(self, direction: Vector) -> Vector:
        """⟨q(D) − q(D′), direction⟩ for a fixed batch D and each of its records removed.

        Under ``replace``, each is replaced by one fixed other record.
        """
        pair = self.pair(stream=KeyedStream.from_seed("dpsgd-step").child("differences"))
        known = set(pair.first)
        other = next(i for i in range(len(self.images)) if i not in known)
        rows = torch.cat(
            [g.reshape(len(g), -1) for g in self._gradients((*pair.first, other))], 1
        ).double()
        norms = torch.linalg.vector_norm(rows, dim=1)
        factors = (self.clip / (norms + 1e-6)).clamp(max=1.0) / self.divisor
        along: Vector = ((rows @ torch.from_numpy(direction)) * factors).numpy()
        return along[:-1] - along[-1] if self.neighbour == "replace" else along[:-1]

    def slack(self, _: Vector, /) -> float:
        """Δ: by the clipping alone, a neighbour's change may be any vector of the ball."""
        return self.sensitivity

    def _gradients(self, records: Sequence[int]) -> list[torch.Tensor]:
        """Per-sample gradients of each parameter, shapes (b, …)."""
        x, y = self.images.batch(records)
        self._model.zero_grad(set_to_none=True)
        return sample_gradients(self._loss, self._model, x, y)

    def _optimizer(
        self,
        noise_multiplier: float,
        *,
        secure_mode: bool = False,
        stream: Stream | None = None,
        lr: float = 1.0,
    ) -> DPOptimizer:
        """Opacus' own; without ``stream`` only for clipping and summing."""
        positive("noise_multiplier", noise_multiplier)
        seed = 0 if stream is None else int.from_bytes(stream.entropy()[:4], "big")
        return DPOptimizer(
            torch.optim.SGD(self._parameters, lr=lr),
            noise_multiplier=noise_multiplier,
            max_grad_norm=self.clip,
            expected_batch_size=self.batch,
            loss_reduction=self.reduction,
            generator=torch.Generator().manual_seed(seed),
            secure_mode=secure_mode,
        )

    @staticmethod
    def _flat(tensors: Sequence[torch.Tensor]) -> npt.NDArray[np.float64]:
        joined = torch.cat([t.detach().reshape(-1) for t in tensors]).double().numpy()
        return np.asarray(joined, dtype=np.float64)


def sample_gradients(
    loss: nn.Module, model: nn.Module, x: torch.Tensor, y: torch.Tensor
) -> list[torch.Tensor]:
    """Per-sample gradients by each trainable parameter, shapes (b, …); leaves nothing behind."""
    # torch warns of every backward hook of a first layer; Opacus depends on them
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        loss(model(x), y).backward()
    parameters: list[Any] = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad_sample for p in parameters]
    for p in parameters:
        p.grad_sample = p.grad = None
    return gradients


def attach_gradients(parameters: Sequence[Any], gradients: Sequence[torch.Tensor]) -> None:
    """Give ``parameters`` the per-sample ``gradients`` that an optimizer clips and sums."""
    for p, g in zip(parameters, gradients, strict=True):
        p.grad_sample = g.detach()  # over the same memory: the optimizer marks those it has used


def _at_least_one(n: int) -> int:
    if n < 1:
        raise UsageError(f"n={n}: at least one release")
    return n


_STEPS = 4


def recover_gradients(
    before: Sequence[torch.Tensor], after: npt.NDArray[np.float32], *, lr: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The float32 gradient (d,) that one step of plain SGD went by, and where it is certain, (d,).

    ``before`` are the weights, tensor by tensor, ``after`` (d,) all of them afterwards. Each of the
    nine floats around (before − after) / lr is put through torch's own update. The update never
    increases as the gradient increases, so the gradients that lead to one weight are neighbours on
    the grid: a single hit inside the nine is the only one there is. Elsewhere, where the weight's
    rounding has swallowed low bits, the value means nothing.
    """
    gradients, certain = [], []
    start = 0
    for weights in before:
        end = start + weights.numel()
        target = torch.from_numpy(after[start:end]).view_as(weights)
        start = end
        guess = (weights - target) / lr
        grid = [guess]
        for towards in (-np.inf, np.inf):
            step, limit = guess, torch.tensor(towards)
            for _ in range(_STEPS):
                step = torch.nextafter(step, limit)
                grid.append(step)
        tried = torch.stack(grid)
        hits = torch.stack([torch.add(weights, g, alpha=-lr) == target for g in grid])
        inside = ~(hits[_STEPS] | hits[2 * _STEPS])
        gradient = tried.gather(0, hits.to(torch.uint8).argmax(0, keepdim=True))[0]
        gradients.append(gradient.reshape(-1))
        certain.append(((hits.sum(0) == 1) & inside).reshape(-1))
    return torch.cat(gradients).double().numpy(), torch.cat(certain).numpy()
