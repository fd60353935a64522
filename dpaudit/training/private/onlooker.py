"""Canaries, and what an attacker who knows the records computes from a DP-SGD run's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.queries.gradients.step import attach_gradients, sample_gradients
from dpaudit.queries.opacus import Release
from dpaudit.training.data import Images

__all__ = ["Canaries", "Onlooker", "Sight", "mislabelled"]


@dataclass(frozen=True)
class Sight:
    """One step as an attacker may see it: flat float32 vectors over all parameters.

    Sums are before the division by the batch. Tensors are on the network's device.

    Attributes:
        step: from 0.
        sigma: noise multiplier · clip, of one coordinate of ``noisy``.
        query: the sum of the batch's clipped gradients (d,). No attacker knows it: it knows
            candidates for it.
        noisy: what was released (d,): Opacus' ``p.grad`` except for the division, which is public.
        gradients: each canary's clipped gradient (K, d) at the weights of this step, known to all
            from earlier releases.
        present: which canaries are in the batch (K,), bool.
        pair: two candidate sums (2, d) whose batches differ in one record; None at steps without.
        truth: which of them is the true one.
    """

    step: int
    sigma: float
    query: torch.Tensor
    noisy: torch.Tensor
    gradients: torch.Tensor
    present: torch.Tensor
    pair: torch.Tensor | None
    truth: int


class Onlooker:
    """Computes the :class:`Sight` of a step.

    Call ``before`` its backward pass, ``after_backward``, and ``sight`` once it is released.
    Canaries get a backward pass of their own. Both candidate sums are computed by Opacus' own
    ``clip_and_accumulate``, one from the batch's per-sample gradients, one from the same with a
    random record's replaced by that of a record which is not in the batch. So the true one is bit
    for bit what the step adds its noise to, as for an attacker who runs the same code on the same
    kind of machine; the other is what it would have been, up to the last bits of one record's
    gradient.
    """

    def __init__(
        self,
        model: GradSampleModule,
        *,
        loss: nn.Module,
        images: Images,
        records: torch.Tensor,
        canaries: Canaries,
        clip: float,
        stream: Stream,
    ) -> None:
        """Observe ``model``, trained on ``records`` (n,) of ``images``; ``loss`` is a mean."""
        self._model, self._loss, self._images, self._clip = model, loss, images, clip
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._records, self._canaries, self._rng = records, canaries, stream.numpy()
        # Opacus' own sum on the same parameters; it never takes a step
        self._adder = DPOptimizer(
            torch.optim.SGD(self._parameters, lr=1.0),
            noise_multiplier=1.0,
            max_grad_norm=clip,
            expected_batch_size=1,
        )
        self._numbers = np.empty(0, np.int64)
        self._gradients = torch.empty(0)
        self._other: list[torch.Tensor] | None = None
        self._pair: torch.Tensor | None = None
        self._truth = 0

    def before(self, numbers: torch.Tensor, *, pair: bool) -> None:
        """Compute the canaries' gradients, and, for a pair, that of a record outside the batch."""
        self._numbers = numbers.numpy()
        other = self._outsider() if pair and len(numbers) else None
        rows = [*self._canaries.records.tolist(), *([] if other is None else [other])]
        gradients = self._per_sample(rows)
        count = len(self._canaries.records)
        self._gradients = self._clip_gradients([g[:count] for g in gradients])
        self._other = None if other is None else [g[count] for g in gradients]

    def after_backward(self) -> None:
        """Compute the two candidate sums, in an order that a coin decides."""
        self._pair = None
        if self._other is None:
            return
        place = int(self._rng.integers(len(self._numbers)))
        self._truth = int(self._rng.integers(2))
        own = [p.grad_sample for p in self._parameters]
        true = self._sum(own)
        swapped = [g.clone() for g in own]
        for g, instead in zip(swapped, self._other, strict=True):
            g[place] = instead
        false = self._sum(swapped)
        attach_gradients(self._parameters, own)
        self._pair = torch.stack([false, true] if self._truth else [true, false])

    def sight(self, release: Release) -> Sight:
        """The step's sight, once it is released."""
        return Sight(
            step=release.step,
            sigma=release.sigma,
            query=release.query,
            noisy=release.noisy,
            gradients=self._gradients,
            present=torch.from_numpy(np.isin(self._canaries.records, self._numbers)).to(
                self._gradients.device
            ),
            pair=self._pair,
            truth=self._truth,
        )

    def _outsider(self) -> int | None:
        """A random training record outside the batch; None if there is none."""
        outside = np.setdiff1d(self._records.numpy(), self._numbers, assume_unique=True)
        return int(outside[self._rng.integers(len(outside))]) if len(outside) else None

    def _per_sample(self, records: Sequence[int]) -> list[torch.Tensor]:
        """Gradients of some records by each parameter, shapes (b, …); leaves nothing behind."""
        if not records:
            return [p.new_empty((0, *p.shape)) for p in self._parameters]
        x, y = self._images.batch(records, device=self._parameters[0].device)
        return sample_gradients(self._loss, self._model, x, y)

    def _clip_gradients(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Flat and clipped as Opacus clips, shape (b, d)."""
        flat = torch.cat([g.flatten(1) for g in gradients], 1)
        factor = (self._clip / (torch.linalg.vector_norm(flat, dim=1) + 1e-6)).clamp(max=1.0)
        return flat.mul_(factor.unsqueeze(1))

    def _sum(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        attach_gradients(self._parameters, gradients)
        self._adder.clip_and_accumulate()
        out = torch.cat([p.summed_grad.reshape(-1) for p in self._parameters])
        for p in self._parameters:
            p.summed_grad = None
        return out


_CLASSES = 10


@dataclass(frozen=True)
class Canaries:
    """Record numbers (K,), and whether each is a member of the training set (K,)."""

    records: npt.NDArray[np.int64]
    member: npt.NDArray[np.bool_]

    @classmethod
    def draw(cls, number: int, *, of: int, stream: Stream) -> Canaries:
        """``number`` different random records of ``of``, each a member by a fair coin of its own.

        Raises:
            UsageError: a negative number, or more than half the records.
        """
        if not 0 <= number <= of // 2:
            raise UsageError(f"canaries={number}: must lie in 0 … {of // 2}, half the records")
        rng = stream.numpy()
        return cls(
            rng.choice(of, number, replace=False).astype(np.int64), rng.integers(0, 2, number) == 1
        )

    @classmethod
    def none(cls) -> Canaries:
        """No canary: all records are trained on."""
        return cls(np.empty(0, np.int64), np.empty(0, np.bool_))

    def training_records(self, of: int) -> npt.NDArray[np.int64]:
        """All of ``of`` records except canaries that are no members, shape (n,), ascending."""
        mask = np.ones(of, np.bool_)
        mask[self.records[~self.member]] = False
        return np.flatnonzero(mask)


def mislabelled(images: Images, records: npt.NDArray[np.int64], *, stream: Stream) -> Images:
    """``images`` with a random wrong class for each of ``records`` (m,).

    Such a record stays hard, and its gradient long.
    """
    labels = images.labels.copy()
    labels[records] = (
        labels[records] + stream.numpy().integers(1, _CLASSES, len(records))
    ) % _CLASSES
    return replace(images, labels=labels)
