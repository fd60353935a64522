"""The joint draw: from tensors to one flat release of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from torch import nn

from dpaudit.errors import UsageError
from dpaudit.hosts.opacus.supply import Supply
from dpaudit.protocols import Mitigation
from dpaudit.randomness import KeyedStream

__all__ = ["JointDraw", "Release", "check_alike", "check_opacus", "noise_scale"]


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """One logical step's draw, before Opacus divides or sums over processes.

    Attributes:
        step: how many draws the façade made before this one.
        sigma: what the source was asked for, noise multiplier × clipping bound, in the gradient's
            unit; a mitigation may add to it (``mitigation.scale(sigma)``).
        query: this process's sum of clipped gradients, flattened and joined in the optimizer's
            order, shape (d,).
        noisy: ``query`` as released, shape (d,). Both are copies of their own, and no part of a
            graph.
    """

    step: int
    sigma: float
    query: torch.Tensor
    noisy: torch.Tensor


def noise_scale(optimizer: Any) -> float:
    """Noise multiplier × clipping bound as they are now, in the gradient's unit.

    AdaClip's multiplier is the adjusted one, (z⁻² − (2·σ_u)⁻²)^(−1/2) (arXiv 1905.03871, Theorem
    1), with σ_u the standard deviation of its unclipped count's noise; so is that of ghost clipping
    under ``PrivacyEngineAdaptiveClipping``.

    Raises:
        UsageError: a multiplier or a bound that is not a finite number above 0.
    """
    multiplier = _above_zero("noise_multiplier", optimizer.noise_multiplier)
    if isinstance(optimizer, AdaClipDPOptimizer):
        rest = multiplier**-2 - (2 * optimizer.unclipped_num_std) ** -2
        if not rest > 0:
            raise UsageError(
                f"noise_multiplier={multiplier}: must be below 2·unclipped_num_std = "
                f"{2 * optimizer.unclipped_num_std}; raise unclipped_num_std"
            )
        multiplier = rest**-0.5
    elif isinstance(optimizer, DPOptimizerFastGradientClipping):
        multiplier = _above_zero(
            "_adjusted_noise_multiplier",
            getattr(optimizer, "_adjusted_noise_multiplier", multiplier),
        )
    return multiplier * _above_zero("max_grad_norm", optimizer.max_grad_norm)


def _above_zero(name: str, value: Any) -> float:
    """The value as a float: a number, or a tensor of one (AdaClip's bound becomes one)."""
    if not (float(value) > 0 and math.isfinite(value)):
        raise UsageError(
            f"{name}={float(value)}: there is noise to draw only for a finite number above 0; "
            "give one"
        )
    return float(value)


def check_opacus(optimizer: Any) -> str:
    """Return the name of the optimizer's class.

    Raises:
        UsageError: it is none of Opacus' optimizers.
    """
    name = type(optimizer).__name__
    if not isinstance(optimizer, DPOptimizer):
        raise UsageError(
            f"optimizer={name}: is not Opacus'; give the optimizer that "
            "PrivacyEngine().make_private(...) returned"
        )
    return name


def check_alike(parameters: Sequence[nn.Parameter]) -> None:
    """Refuse parameters that one flat vector cannot hold.

    Raises:
        UsageError: different dtypes, or different devices.
    """
    for name, kinds, remedy in (
        (
            "dtype",
            {str(p.dtype) for p in parameters},
            "convert the model to one, e.g. model.float()",
        ),
        (
            "device",
            {str(p.device) for p in parameters},
            "move the model to one, e.g. model.to('cuda:0')",
        ),
    ):
        if len(kinds) > 1:
            raise UsageError(
                f"{name}={', '.join(sorted(kinds))}: the noise of all parameters is one vector of "
                f"one {name}; {remedy}"
            )


@dataclass
class JointDraw:
    """State for an optimizer with replaced noise.

    Attributes:
        parameters: the trainable ones when the noise was replaced, in the optimizer's order.
        step: draws made so far.
        aside: whether Opacus' own code is running, for what it draws besides the parameters' noise.
    """

    supply: Supply
    mitigation: Mitigation
    seed: int | str | None
    observe: Callable[[Release], object] | None
    parameters: tuple[nn.Parameter, ...]
    step: int = 0
    aside: bool = False

    def check_parameters(self, now: Sequence[nn.Parameter]) -> None:
        """Refuse a step over other parameters than those at the beginning.

        Raises:
            UsageError: one was frozen, made trainable, added or removed since; or their dtypes or
                devices now differ.
        """
        if len(now) != len(self.parameters) or any(
            a is not b for a, b in zip(now, self.parameters, strict=True)
        ):
            before, after = (sum(p.numel() for p in some) for some in (self.parameters, now))
            held = {id(p) for p in now}
            gone = [
                f"number {i}, shape {tuple(p.shape)}"
                for i, p in enumerate(self.parameters)
                if id(p) not in held
            ]
            raise UsageError(
                f"parameters={after}: the façade was put on for {before}"
                + (
                    f", and parameter {gone[0]}, was frozen or removed since"
                    if gone
                    else ", and others came in since"
                )
                + "; freeze first, then make_private, then use_noise_source"
            )
        check_alike(now)

    def stream(self, *, secure: bool) -> KeyedStream:
        """This step's randomness; without a seed fresh from the operating system.

        Raises:
            UsageError: a seed under ``secure``.
        """
        if self.seed is None:
            return KeyedStream.fresh()
        if secure:
            raise UsageError(
                "seed: under secure_mode each step's noise comes from the operating system, and "
                "must not be repeatable; leave seed out"
            )
        return KeyedStream.from_seed(self.seed).child("release", self.step)

    @torch.no_grad()
    def release(
        self, summed: Sequence[torch.Tensor], *, sigma: float, secure: bool
    ) -> list[torch.Tensor]:
        """The noisy sums, each flat and in its own memory, from one draw over all of them joined.

        Holds at most three vectors of that length besides the sums. A draw counts as made whatever
        happens to it: where an observer fails, the next draw is another.
        """
        step, stream = self.step, self.stream(secure=secure)
        self.step += 1
        query = torch.cat([g.reshape(-1) for g in summed]).unsqueeze(0)
        noisy = self.mitigation.release(query, self.supply.at(sigma), stream=stream)[0]
        if self.observe is not None:
            self.observe(Release(step=step, sigma=sigma, query=query[0], noisy=noisy))
        del query
        return [piece.clone() for piece in torch.split(noisy, [g.numel() for g in summed])]
