"""Tails: how many values are how far out, and how far the farthest is."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.block import CELLS, cell_edges
from dpaudit.claims import Claim
from dpaudit.interfaces import Block, Stream
from dpaudit.stats import binomial_two_sided, bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Tails"]

_LEVELS = 10.0 ** -np.arange(1, 13)  # two-sided tail probabilities looked at, roughly


@functools.cache
def _thresholds() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Cell edges, as numbers of cells from the left, beyond which (both sides) N(0, 1) has about each level; the |z|."""
    edges = cell_edges()
    first = np.searchsorted(edges, scipy.special.ndtri(_LEVELS / 2))
    return first, -edges[first]


class Tails:
    """Counts of |z| beyond thresholds of probability about 10^-1 … 10^-12, and the maximum.

    Null, exact: each count is binomial; P(max ≤ m) = (1 − P(|z| > m))^n. Thresholds with an expected count below 10^-3
    are left to the maximum. Combined by Bonferroni.
    """

    looks_at = "rare large values: heavy, light or truncated tails"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._counts = np.zeros(CELLS, np.int64)
        self._max = 0.0

    def update(self, block: Block) -> None:
        self._counts += block.cells
        self._max = max(self._max, float(block.z.max()), -float(block.z.min()))

    def evidence(self, *, alpha: float) -> Evidence:
        n = int(self._counts.sum())
        first, thresholds = _thresholds()
        upto = np.cumsum(self._counts)
        parts = {}
        for i, t in zip(first, thresholds, strict=True):
            level = 2 * float(scipy.special.ndtr(-t))
            if n * level > 1e-3:
                parts[f"beyond {t:.2f} sigma"] = binomial_two_sided(int(upto[i - 1] + n - upto[-i - 1]), n, level)
        log_outside = math.log(2) + float(scipy.special.log_ndtr(-self._max))
        # n·log1p(−p): what all n values below the maximum have as probability
        below = math.exp(n * math.log1p(-min(math.exp(log_outside), 1 - 1e-16)))
        parts["maximum"] = min(1.0, 2 * min(below, -math.expm1(n * math.log1p(-min(math.exp(log_outside), 1 - 1e-16)))))
        cut = -math.log(alpha / (2 * len(parts))) / n  # an absent tail of this probability would have been missed
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=self._max,
            effect=f"largest |z| {self._max:.2f} of {n:,} values",
            parts=parts,
            blind_spots=(
                BlindSpot(
                    test="tails",
                    flaw="truncated tails",
                    size=float(-scipy.special.ndtri(min(cut, 1.0) / 2)),
                    unit="standard deviations (normal scale)",
                    says="a sampler that never goes beyond this, or anything rarer than the values beyond it",
                ),
            ),
        )
