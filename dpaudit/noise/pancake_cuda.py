"""The pancake on CUDA devices: one fused Triton kernel where it fits, the torch path otherwise.

The fused kernel draws, measures and corrects a block in registers and shared memory: one write of
the noise, one read of the key. Not claimed: the same numbers as on the CPU (another generator),
only the same law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.numeric import BLOCK
from dpaudit.protocols import Stream

if TYPE_CHECKING:
    from dpaudit.noise.pancake_triton import Parts

__all__ = ["condition_", "draw"]

_AT_ONCE = 1 << 20  # coordinates whose float64 copies exist at the same time


def condition_(
    noise: torch.Tensor,
    w: npt.NDArray[np.int16],
    *,
    shares: npt.NDArray[np.float64],
    inverse: npt.NDArray[np.float64],
) -> torch.Tensor:
    """Correct N(0, σ²) noise (n, d), in place, so that each block's ``w @ block`` is its share.

    ``w`` (k, d), ``shares`` (n, blocks, k), ``inverse`` (blocks, k, k) pseudo-inverses of
    ``w_b w_bᵀ``: g becomes ``g + w_bᵀ (w_b w_bᵀ)⁺ (share − w_b g)``, Gaussian noise conditioned on
    its share. Inner products are in float64.
    """
    d = noise.shape[1]
    step = max(1, _AT_ONCE // (BLOCK * len(noise))) * BLOCK
    for low in range(0, d, step):
        high = min(d, low + step)
        part = torch.from_numpy(w[:, low:high].astype(np.float64)).to(noise.device)
        for block_low in range(low, high, BLOCK):
            block_high, b = min(high, block_low + BLOCK), block_low // BLOCK
            rows = part[:, block_low - low : block_high - low]
            view = noise[:, block_low:block_high]
            target = torch.from_numpy(shares[:, b]).to(noise.device)
            own = torch.from_numpy(inverse[b]).to(noise.device)
            factor = (target - view.double() @ rows.T) @ own
            view += (factor @ rows).to(noise.dtype)
    return noise


def draw(
    source: Parts,
    start: int,
    stop: int,
    shares: npt.NDArray[np.float64],
    *,
    stream: Stream,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """Coordinates ``start`` to ``stop`` (block borders) on a CUDA device.

    ``shares`` is (n, blocks of the shard, k).
    """
    w, inverse = source.key.vectors[:, start:stop], source.block_inverse(start, stop)
    if dtype == torch.float32 and source.key.directions == 1:
        from dpaudit.noise.pancake_triton import fused

        return fused(
            source,
            start,
            stop,
            shares,
            seed=int.from_bytes(stream.child("fused").bytes(8), "little") >> 1,
            device=device,
        )
    noise = torch.randn(
        (len(shares), stop - start),
        dtype=dtype,
        device=device,
        generator=stream.child("shard", start).torch(device),
    )
    return condition_(noise.mul_(source.sigma), w, shares=shares, inverse=inverse)
