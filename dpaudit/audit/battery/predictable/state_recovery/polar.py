"""The polar method's words, of which rejected tries are missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["polar_fits"]


def polar_fits(values: npt.NDArray[np.float64]) -> Iterator[tuple[str, int, int, int]]:
    """Not done yet."""
    del values
    yield from ()
