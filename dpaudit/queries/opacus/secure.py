"""Secure noise for Opacus in one line: exact lattice Gaussian noise from a cryptographic stream."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import distributed
from torch.distributed.tensor import DTensor

from dpaudit.errors import UsageError
from dpaudit.numeric.lattice import NORMAL_REACH, add_lattice_noise, lattice_step
from dpaudit.queries.opacus.attach import replace_noise
from dpaudit.queries.opacus.draw import JointDraw
from dpaudit.queries.opacus.sharded import Place, local, total

__all__ = ["secure_noise"]

_SMALL = 1 << 16  # numbers: below it a call costs more than its noise


def secure_noise(optimizer: DPOptimizer) -> DPOptimizer:
    """Make an Opacus optimizer draw exact Gaussian noise from the system's randomness.

    One line after ``PrivacyEngine().make_private(...)``; no ``secure_mode``, no torchcsprng::

        optimizer = dpaudit.secure_noise(optimizer)

    The optimizer is changed in place and returned. It may be flat, per-layer, ghost or AdaClip; in
    one process, under ``DistributedDataParallel`` or Opacus' own, with ``fully_shard`` (1-D or
    HSDP, with CPU offload, with tensor parallelism), or with DTensors alone. Every process must
    make this call, and takes every logical step together with the others.

    **A step** releases g·(K + Z): K is the sum of clipped gradients over all processes in steps of
    g, rounded; Z is discrete Gaussian noise of scale σ/g; g is σ·2⁻²⁴ rounded down to a power of
    two; σ = noise_multiplier × max_grad_norm as they are then. Where ``fully_shard`` has divided
    the sum, σ is divided by the same number. (Opacus divides by the number of all processes if
    ``loss_reduction="mean"``, which is another number with tensor parallelism.)

    **Shards.** One 32-byte key per step comes from the operating system of the first process and is
    sent to the others; a number of Z depends on that key and on its position in the whole gradient.
    So a process draws what its own shards hold and no more, replicas are equal, nothing is drawn
    twice, and all shards together are what one process would draw. Under DDP the sums are reduced
    before the noise, and not again. AdaClip's unclipped count gets noise of the same kind.

    **Formal guarantee.** If the sum of clipped gradients moves by at most C = max_grad_norm in ℓ₂
    between neighbours, rounding it to the lattice moves it by at most C + g√d (each coordinate by
    g/2 on either side). So a run of T steps over d parameters has the privacy of Gaussian noise of
    multiplier z/(1 + (g/C)√d), by any accountant (RDP, PRV, GDP), up to a total variation of
    η = √(T·d·κ/2), κ ≤ (g/σ)⁴/300: at (ε, δ) of that multiplier it is
    (ε, δ + (1 + e^ε)·η)-DP. :func:`dpaudit.accounting.lattice_slack` has the numbers and the proof:
    with d = 25 million, T = 10,000 and z = 1 the multiplier is 0.9997 and η = 7.3·10⁻¹¹. All this
    holds against an adversary who cannot tell the key stream from uniform bits.

    Parameters in bf16 or fp16 hold the release rounded to their dtype, which is post-processing, as
    is every later division.

    **Not claimed.** That C bounds the sum in floating point: Opacus clips and adds in the
    gradient's dtype, and the rounding errors of a sum over many records can move it further, in
    bf16 visibly; accumulate in float32 (``MixedPrecisionPolicy(reduce_dtype=torch.float32)``). That
    batches are sampled as the accountant assumes. That key or gradients are secret on the network:
    both travel in the same way. That the state between steps (``p.summed_grad``) is private.

    A process that dies elsewhere than here leaves the others waiting until the group's timeout.

    Raises:
        UsageError: in every process if in one. What ``use_noise_source`` refuses of an optimizer or
            its processes; and at a step: parameters frozen or added since; a gradient that is NaN,
            infinite or beyond the lattice; ``PrivacyEngineAdaptiveClipping``, whose loss draws
            other noise of torch's.
    """
    made: DPOptimizer = replace_noise(optimizer, lambda _: LatticeNoise())
    return made


_Row = tuple[torch.Tensor, torch.nn.Parameter, Place]


def _joined(row: _Row) -> tuple[torch.dtype, torch.device] | None:
    """What small gradients must share to be released at once; None for a shard or a large one."""
    gradient, p, _ = row
    alone = isinstance(p, DTensor) or gradient.numel() > _SMALL
    return None if alone else (gradient.dtype, gradient.device)


@dataclass
class LatticeNoise:
    """Exact noise by position, drawn for the shards that a process holds."""

    name: str = "secure_noise"
    observe: None = None

    def scale(self, sigma: float) -> float:
        return sigma

    def check(self, optimizer: Any, sums: Sequence[torch.Tensor], *, sigma: float) -> None:
        """Refuse sums that ``add_lattice_noise`` would, summed over processes; and other noise."""
        if hasattr(optimizer, "_adjusted_noise_multiplier"):
            raise UsageError(
                "_adjusted_noise_multiplier: PrivacyEngineAdaptiveClipping's loss draws the noise "
                "of its clipped fraction by torch.normal, out of the optimizer's reach; take "
                "PrivacyEngine with clipping='adaptive'"
            )
        step = lattice_step(sigma)
        held = [part for one in sums if (part := local(one)).numel()]
        if not held:
            return
        most = min(step * 2.0**53, *(torch.finfo(part.dtype).max for part in held))
        most = (most - NORMAL_REACH * sigma) / getattr(optimizer, "world_size", 1)
        norms = [torch.stack(part.aminmax()).abs().amax().double() for part in held]
        largest = float(torch.stack([norm.to(norms[0].device) for norm in norms]).amax())
        if not largest <= most:
            raise UsageError(
                f"gradient={largest}: NaN, infinite or beyond {most:.3g}, where the lattice of the "
                "noise ends; lower the loss scale or look for a division by zero"
            )

    @torch.no_grad()
    def release(
        self, sums: Sequence[torch.Tensor], draw: JointDraw, *, sigma: float, key: bytes
    ) -> list[torch.Tensor]:
        """The sums over all processes with their noise, on the lattice; see ``secure_noise``."""
        released: list[torch.Tensor] = []
        rows = zip(sums, draw.parameters, draw.places, strict=True)
        for together, run in itertools.groupby(rows, _joined):
            parts = list(run)
            if together:
                released += self._at_once(parts, reduce=draw.reduces, sigma=sigma, key=key)
                continue
            for one, p, place in parts:
                released.append(total(one, p, reduce=draw.reduces))
                for block in place.blocks:
                    part = local(released[-1])[block.where]
                    flat = part.reshape(block.rows, -1).contiguous()
                    start = place.base + block.start
                    add_lattice_noise(flat, sigma=sigma, key=key, start=start, stride=block.stride)
                    if flat.data_ptr() != part.data_ptr():
                        part.copy_(flat.view(part.shape))
        return released

    def _at_once(
        self, parts: Sequence[_Row], *, reduce: bool, sigma: float, key: bytes
    ) -> list[torch.Tensor]:
        """Small parameters that follow each other: one reduction, one draw, memory for each."""
        flat = torch.cat([one.detach().reshape(-1) for one, _, _ in parts])
        if reduce:
            distributed.all_reduce(flat)
        add_lattice_noise(flat, sigma=sigma, key=key, start=parts[0][2].base)
        pieces = torch.split(flat, [p.numel() for _, p, _ in parts])
        return [piece.clone().view(p.shape) for piece, (_, p, _) in zip(pieces, parts, strict=True)]

    def count(self, optimizer: Any, draw: JointDraw, *, key: bytes) -> None:
        """Add noise of ``unclipped_num_std``, at the position after those of the parameters."""
        count = torch.tensor([float(optimizer.unclipped_num)], dtype=torch.float64)
        end = sum(p.numel() for p in draw.parameters)
        add_lattice_noise(count, sigma=float(optimizer.unclipped_num_std), key=key, start=end)
        device = draw.parameters[0].device
        optimizer.unclipped_num = count[0].to(device, torch.float32)
