"""What all rotations share: drawing the source's noise, and releasing turned noise on a lattice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from dpaudit.interfaces import NoiseSource, Stream
from dpaudit.vectors.lattice import add_on_lattice, lattice_step

__all__ = ["WIDE", "draw", "narrow", "publish"]

WIDE = torch.float64
"""Noise is turned in float64 whatever the query's type: see ``add_on_lattice`` on narrow noise."""


def draw(
    query: torch.Tensor, source: NoiseSource, *, stream: Stream, dtype: torch.dtype = WIDE
) -> torch.Tensor:
    """The source's noise for ``query`` (n, d), not turned yet."""
    n, d = query.shape
    return source.sample(n, d, stream=stream.child("source"), dtype=dtype, device=query.device)


def narrow(dtype: torch.dtype) -> torch.dtype:
    """The type of noise used only for lengths and angles: float64 or float32, as the query's."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def publish(
    query: torch.Tensor,
    turned: torch.Tensor,
    *,
    sigma: float,
    factors: npt.NDArray[np.float64] | None = None,
) -> torch.Tensor:
    """g·(K + Z) in ``query``'s dtype: g = ``lattice_step(sigma)``, Z = factor·turned/g, rounded.

    ``turned`` (n, d), ``WIDE``, is overwritten.

    Raises:
        UsageError: values beyond σ·2^28, or that the dtype cannot hold.
    """
    fitting = query if query.dtype in (torch.float32, WIDE) else query.float()
    step = lattice_step(sigma)
    return add_on_lattice(
        fitting, turned, granularity=step, name="a rotation", factors=factors, dtype=query.dtype
    )
