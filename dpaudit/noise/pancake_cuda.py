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

from dpaudit.protocols import Stream
from dpaudit.vectors.conditioning import condition_

if TYPE_CHECKING:
    from dpaudit.noise.pancake_triton import Parts

__all__ = ["draw"]


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
