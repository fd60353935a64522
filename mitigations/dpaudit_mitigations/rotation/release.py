"""What all rotations share at a release's two ends: the source's noise drawn, the turned noise added on a lattice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.interfaces import NoiseSource, Stream
from dpaudit.noise.lattice import add_on_lattice, in_dtype, lattice_step

__all__ = ["draw", "publish", "wide"]


def wide(dtype: torch.dtype) -> torch.dtype:
    """What noise for a query of ``dtype`` is drawn and turned in: float64 for float64, float32 for all narrower ones."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def draw(query: torch.Tensor, source: NoiseSource, *, stream: Stream) -> torch.Tensor:
    """The source's noise for ``query`` (n, d), not turned yet."""
    n, d = query.shape
    return source.sample(n, d, stream=stream.child("source"), dtype=wide(query.dtype), device=query.device)


def publish(
    query: torch.Tensor, turned: torch.Tensor, *, sigma: float, factors: npt.NDArray[np.float64] | None = None
) -> torch.Tensor:
    """g·(K + Z) in ``query``'s dtype, with g = ``lattice_step(sigma)``, Z the nearest integers to factor·turned/g.

    ``turned`` (n, d) is used up.

    Raises:
        UsageError: values beyond σ·2^28, or that the dtype cannot hold.
    """
    fitting = query.to(turned.dtype)
    released = add_on_lattice(fitting, turned, granularity=lattice_step(sigma), name="a rotation", factors=factors)
    return released if released.dtype == query.dtype else in_dtype(released, query.dtype, query.device)
