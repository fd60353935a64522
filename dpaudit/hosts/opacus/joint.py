"""The mix-in that makes an Opacus optimizer draw one vector of noise for all its parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

from opacus.optimizers import DPOptimizer
from opacus.optimizers.ddpoptimizer import DistributedDPOptimizer
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import (
    DistributedDPOptimizerFastGradientClipping,
)
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

from dpaudit.hosts.opacus.draw import JointDraw, noise_scale

__all__ = ["JointNoise", "joint_class"]


class JointNoise(DPOptimizer):  # type: ignore[misc]
    """Overrides the draw of the optimizer class that it is mixed with, and nothing else."""

    joint_draw: JointDraw

    @property
    def params(self) -> list[Any]:
        """The trainable parameters; none while Opacus' own ``add_noise`` runs for other noise."""
        return [] if self.joint_draw.aside else super().params

    def add_noise(self) -> None:
        """Set every ``p.grad`` to its part of one release of all ``p.summed_grad`` joined.

        In distributed training the first process alone draws, as in Opacus. AdaClip's noise on its
        unclipped count stays Opacus' own.

        Raises:
            UsageError: other parameters than at the beginning; no σ above 0; a seed under
                secure_mode; or what the source or the mitigation refuses (a gradient that is NaN or
                infinite, for one).
            ValueError: gradients of an earlier step, by Opacus: ``zero_grad`` was not called.
        """
        draw, parameters = self.joint_draw, self.params
        draw.check_parameters(parameters)
        if not _draws(self):
            super().add_noise()
            return
        for p in parameters:
            _check_processed_flag(p.summed_grad)
        pieces = draw.release(
            [p.summed_grad for p in parameters],
            sigma=noise_scale(self),
            secure=bool(self.secure_mode),
        )
        for p, piece in zip(parameters, pieces, strict=True):
            p.grad = piece.view_as(p)
            _mark_as_processed(p.summed_grad)
        draw.aside = True
        try:
            super().add_noise()
        finally:
            draw.aside = False


def _draws(optimizer: Any) -> bool:
    distributed = isinstance(
        optimizer, (DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping)
    )
    return not distributed or optimizer.rank == 0


@cache
def joint_class(cls: Any) -> type:
    """``cls`` with its draw replaced: a subclass of both, one for each class."""
    return type(
        f"{cls.__name__}WithJointNoise",
        (JointNoise, cls),
        {"__module__": __name__, "__doc__": cls.__doc__},
    )
