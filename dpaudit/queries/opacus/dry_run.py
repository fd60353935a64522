"""Steps of an Opacus optimizer on gradients of our own, which leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping

from dpaudit.errors import UsageError
from dpaudit.queries.opacus.draw import check_alike, check_opacus, noise_scale
from dpaudit.randomness import KeyedStream
from dpaudit.step_audit.restore import Saved, restored_randomness

__all__ = ["DryRun", "DryStep", "dry_run"]


@dataclass(frozen=True, eq=False, slots=True)
class DryStep:
    """One step: the sum of ``clipped`` gradients, and what was ``released`` to the inner optimizer.

    Both have shape (d,) and the gradient's dtype. ``scale`` times ``released`` is in the unit of
    the sum: Opacus divides by the expected batch size.
    """

    clipped: torch.Tensor
    released: torch.Tensor
    scale: float


class DryRun:
    """A step of the optimizer's own code for any per-sample gradients, up to its inner optimizer.

    Attributes:
        sizes: numbers in each trainable parameter, in the optimizer's order; their sum is d.
        max_grad_norm: the clipping bound, as the optimizer has it.
        sigma: noise multiplier × clipping bound, as the optimizer has them.
    """

    def __init__(self, optimizer: Any, parameters: tuple[Any, ...]) -> None:
        self._optimizer, self._parameters = optimizer, parameters
        self.sizes = tuple(p.numel() for p in parameters)
        self.max_grad_norm = float(optimizer.max_grad_norm)
        self.sigma = noise_scale(optimizer)
        mean = optimizer.loss_reduction == "mean"
        self._divisor = float(optimizer.expected_batch_size) if mean else 1.0
        # what adaptive clipping changes at each step
        names = ("max_grad_norm", "sample_size", "unclipped_num")
        self._bound = {name: vars(optimizer)[name] for name in names if name in vars(optimizer)}
        self._handed: torch.Tensor | None = None
        optimizer.original_optimizer.step = self._take

    @property
    def dim(self) -> int:
        """d, the numbers in a whole gradient."""
        return sum(self.sizes)

    def added(self, sigma: float) -> float:
        """The σ of what a step adds if its source has ``sigma``: a mitigation may add to it."""
        draw = vars(self._optimizer).get("joint_draw")
        return sigma if draw is None else draw.noise.scale(sigma)

    @staticmethod
    def joined(*gradients: torch.Tensor) -> torch.Tensor:
        """Batches of per-sample gradients as one."""
        return torch.cat(gradients)

    @property
    def precision(self) -> float:
        """The relative rounding error of the parameters' dtype."""
        return float(torch.finfo(self._parameters[0].dtype).eps)

    def zeros(self, rows: int) -> torch.Tensor:
        """Per-sample gradients of zero (rows, d), of the parameters' dtype and device."""
        first = self._parameters[0]
        return torch.zeros(rows, self.dim, dtype=first.dtype, device=first.device)

    @torch.no_grad()
    def step(self, gradients: torch.Tensor) -> DryStep:
        """One step on per-sample ``gradients`` (b, d).

        Raises:
            UsageError: the optimizer handed no gradient on.
        """
        pieces = torch.split(gradients, list(self.sizes), dim=1)
        for p, piece in zip(self._parameters, pieces, strict=True):
            p.grad = p.summed_grad = None
            p.grad_sample = piece.reshape(-1, *p.shape)
        vars(self._optimizer).update(self._bound, _step_skip_queue=[], _is_last_step_skipped=False)
        self._handed = None
        self._optimizer.step()
        if self._handed is None:
            raise UsageError(
                f"optimizer={type(self._optimizer).__name__}: its step did not reach the inner "
                "optimizer with a gradient of every parameter; audit it after make_private"
            )
        clipped = torch.cat([p.summed_grad.reshape(-1) for p in self._parameters])
        return DryStep(clipped, self._handed, self._divisor)

    def _take(self, *_: object, **__: object) -> None:
        if all(p.grad is not None for p in self._parameters):
            self._handed = torch.cat([p.grad.reshape(-1) for p in self._parameters])


@contextmanager
def dry_run(optimizer: DPOptimizer, *, seed: str) -> Iterator[DryRun]:
    """Steps of ``optimizer`` that its parameters, its state and its accountant do not notice.

    The step is the optimizer's own, whatever was replaced in it, from clipping to the call of the
    inner optimizer, which is not made; nor is the step hook called, by which the accountant counts.
    Afterwards these are as before: parameters and their gradients, the attributes of both
    optimizers, the random state of torch on all devices, of numpy and of Python, and of the
    optimizer's generator. Within, ``seed`` determines the random state of torch. An ``observe``
    of :func:`~dpaudit.queries.opacus.use_noise_source` is not called. Not restored: what somebody's
    own optimizer keeps elsewhere, such as in a list that it appends to.

    Raises:
        UsageError: not an Opacus optimizer that clips in its own step, in one process, with
            trainable parameters of one dtype and device and a noise multiplier above 0.
    """
    _check(optimizer)
    parameters = tuple(optimizer.params)
    if not parameters:
        raise UsageError("parameters=0: none is trainable; set requires_grad first")
    check_alike(parameters)
    noise_scale(optimizer)
    saved = Saved(parameters, (optimizer, optimizer.original_optimizer))
    fixed = KeyedStream.from_seed(seed).child("dry run").numpy().integers(2**63)
    with restored_randomness([optimizer.generator], int(fixed)):
        try:
            optimizer.step_hook = None
            if "joint_draw" in vars(optimizer):
                draw = optimizer.joint_draw
                optimizer.joint_draw = replace(draw, noise=replace(draw.noise, observe=None))
            yield DryRun(optimizer, parameters)
        finally:
            saved.put_back()


def _check(optimizer: Any) -> None:
    name = check_opacus(optimizer)
    if isinstance(optimizer, DPOptimizerFastGradientClipping):
        raise UsageError(
            f"optimizer={name}: with ghost clipping the loss clips and not the optimizer, whose "
            "step alone shows half of it; audit it with grad_sample_mode='hooks'"
        )
    if hasattr(optimizer, "world_size"):
        raise UsageError(
            f"optimizer={name}: takes its steps together with other processes; audit the one that "
            "make_private returns in a single process"
        )
