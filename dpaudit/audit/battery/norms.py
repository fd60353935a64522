"""Lengths of whole vectors against χ."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.claims import Claim
from dpaudit.interfaces import Block, Stream
from dpaudit.stats import bonferroni, kolmogorov_p
from dpaudit.types import Evidence

__all__ = ["Norms"]

_CELLS = 4096
# cells lie over √d ± this: a χ_d variable has standard deviation < 0.71 and a mean just below √d
_REACH = 5.0
_MOST_DIMS = 64
_FEWEST_ROWS = 100


class Norms:
    """Kolmogorov-Smirnov of the rows' |z| in 4096 cells against the exact χ_d law, for each d.

    Only the cells' edges are compared, which errs towards no finding. The first 64 dimensions with
    at least 100 rows; d = 1 repeats what other tests see and is left out. Combined by Bonferroni.
    """

    looks_at = "lengths of whole vectors"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._counts: dict[int, npt.NDArray[np.int64]] = {}

    def update(self, block: Block) -> None:
        d = block.z.shape[1]
        if d == 1 or (d not in self._counts and len(self._counts) >= _MOST_DIMS):
            return
        length = np.sqrt(np.einsum("ij,ij->i", block.z, block.z))
        length -= math.sqrt(d) - _REACH
        length *= _CELLS / (2 * _REACH)
        np.clip(length, 0, _CELLS - 1, out=length)
        counts = np.bincount(length.astype(np.int64), minlength=_CELLS)
        self._counts[d] = self._counts[d] + counts if d in self._counts else counts

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        found = {
            d: kolmogorov_p(counts, scipy.special.chdtr(d, _inner_edges(d) ** 2))
            for d, counts in self._counts.items()
            if counts.sum() >= _FEWEST_ROWS
        }
        if not found:
            return Evidence(p=1.0, statistic=0.0, effect="too few vectors")
        worst = min(found, key=lambda d: found[d][1])
        distance, rows = found[worst][0], int(self._counts[worst].sum())
        return Evidence(
            p=bonferroni([p for _, p in found.values()]),
            statistic=distance,
            effect=f"largest distance of distribution functions {distance:.2e} "
            f"over {rows:,} vectors of {worst}",
            parts={f"d={d}": p for d, (_, p) in found.items()},
        )


def _inner_edges(d: int) -> npt.NDArray[np.float64]:
    edges = math.sqrt(d) - _REACH + np.arange(1, _CELLS) * (2 * _REACH / _CELLS)
    return np.asarray(np.maximum(edges, 0.0))
