"""What all rotations share: drawing the source's noise, and releasing turned noise on a lattice.

Noise is turned in float64 whatever the query's type: see ``add_on_lattice`` on narrow noise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Array, DType, NoiseSource, Stream
from dpaudit.vectors.arrays import converted, device_of, drawn_in, library
from dpaudit.vectors.lattice import add_on_lattice, lattice_step

__all__ = ["draw", "narrow", "publish"]


def draw(query: Array, source: NoiseSource, *, stream: Stream, dtype: DType | None = None) -> Array:
    """The source's noise for ``query`` (n, d), not turned yet, float64 unless told otherwise."""
    n, d = query.shape
    own = stream.child("source")
    return source.sample(n, d, stream=own, dtype=dtype, device=device_of(query))


def narrow(query: Array) -> DType:
    """The type of noise used only for lengths and angles: float64 or float32, as the query's."""
    found: DType = getattr(library(query), np.dtype(drawn_in(query.dtype)).name)
    return found


def publish(
    query: Array,
    turned: Array,
    *,
    sigma: float,
    factors: npt.NDArray[np.float64] | None = None,
) -> Array:
    """g·(K + Z) in ``query``'s dtype: g = ``lattice_step(sigma)``, Z = factor·turned/g, rounded.

    ``turned`` (n, d), float64, is overwritten.

    Raises:
        UsageError: values beyond σ·2^28, or that the dtype cannot hold.
    """
    fitting = converted(query, narrow(query))
    step = lattice_step(sigma)
    return add_on_lattice(
        fitting, turned, granularity=step, name="a rotation", factors=factors, dtype=query.dtype
    )
