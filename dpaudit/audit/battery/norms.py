"""Lengths of whole vectors against χ."""

from __future__ import annotations

import numpy as np
import scipy

from dpaudit.claims import Claim
from dpaudit.interfaces import Block, Stream
from dpaudit.stats import kolmogorov_p
from dpaudit.types import Evidence

__all__ = ["Norms"]

_CELLS = 4096


class Norms:
    """Kolmogorov-Smirnov of each row's |z|² through the exact χ²_d distribution function.

    Null: uniform whatever the rows' dimensions, so calls of different d are pooled; d = 1 repeats what other tests see
    and is left out.
    """

    looks_at = "lengths of whole vectors"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._counts = np.zeros(_CELLS, np.int64)

    def update(self, block: Block) -> None:
        d = block.z.shape[1]
        if d == 1:
            return
        u = scipy.special.chdtr(d, np.einsum("ij,ij->i", block.z, block.z))
        self._counts += np.bincount(np.minimum((u * _CELLS).astype(np.int64), _CELLS - 1), minlength=_CELLS)

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        d, p = kolmogorov_p(self._counts)
        return Evidence(p=p, statistic=d, effect=f"distance {d:.2e} over {int(self._counts.sum()):,} vectors")
