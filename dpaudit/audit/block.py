"""One call's answer, with what tests share computed once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.claims import Claim

__all__ = ["CELLS", "SampleBlock"]

CELLS = 1 << 14
_FARTHEST = 1e8


class SampleBlock:
    """Values (n, d) of one call, and under the claim their N(0, 1) and uniform images."""

    def __init__(
        self, call: int, values: npt.NDArray[np.float64], *, claim: Claim, spread: np.random.Generator
    ) -> None:
        """Block of call number ``call``; ``spread`` supplies the uniforms that spread a discrete law's atoms."""
        self.call = call
        self.values = values
        self.z = claim.to_normal(values, spread)
        # Far beyond anything the tests tell apart, yet small enough that sums of squares stay finite.
        np.clip(self.z, -_FARTHEST, _FARTHEST, out=self.z)

    @cached_property
    def cells(self) -> npt.NDArray[np.int64]:
        """How many of Φ(z) fall in each of 2^14 equal cells, shape (2^14,)."""
        u = scipy.special.ndtr(self.z.ravel())
        u *= CELLS
        index = u.astype(np.int32)
        np.minimum(index, CELLS - 1, out=index)
        return np.bincount(index, minlength=CELLS)
