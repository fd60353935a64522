"""Tails: the number of values beyond thresholds, and the extremes."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.block import CELLS, cell_edges
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import binomial_two_sided, bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["SHOWN", "Tails"]

SHOWN = 1e-4  # p-value below which the deciding part is reported with its counts
_LEVELS = 10.0 ** -np.arange(1, 13)  # two-sided tail probabilities, approximately


@functools.cache
def _thresholds() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Cell edges beyond which (both sides) N(0, 1) has about each level.

    As numbers of cells from the left, and as |z|.
    """
    edges = cell_edges()
    first = np.searchsorted(edges, scipy.special.ndtri(_LEVELS / 2))
    return first, -edges[first]


class Tails:
    """Counts of z beyond thresholds of probability about 10^-1 … 10^-12, and the extremes.

    Of |z|, and of z on either side. Null, exact: each count is binomial; P(max ≤ m) =
    (1 − P(|z| > m))^n, and so for the largest and the smallest z. Thresholds with an expected count
    below 10^-3 are left to the extremes. Combined by Bonferroni.
    """

    looks_at = "rare large values: heavy, light or truncated tails"
    harm = "law"
    causal_order = 11

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._counts = np.zeros(CELLS, np.int64)
        self._largest = self._smallest = 0.0

    def update(self, block: Block) -> None:
        self._counts += block.cells
        self._largest = max(self._largest, float(block.z.max()))
        self._smallest = min(self._smallest, float(block.z.min()))

    def evidence(self, *, alpha: float) -> Evidence:
        n = int(self._counts.sum())
        first, thresholds = _thresholds()
        upto = np.cumsum(self._counts)
        parts: dict[str, float] = {}
        effects: dict[str, str] = {}
        for i, t in zip(first, thresholds, strict=True):
            side = float(scipy.special.ndtr(-t))
            below, above = int(upto[i - 1]), n - int(upto[-i - 1])
            if n * side > 1e-3:
                for name, count, share in (
                    (f"beyond {t:.2f} sigma", below + above, 2 * side),
                    (f"below -{t:.2f} sigma", below, side),
                    (f"above {t:.2f} sigma", above, side),
                ):
                    parts[name] = binomial_two_sided(count, n, share)
                    label = name.replace("sigma", "σ").replace("-", "−")
                    effects[name] = f"{label}: {count:,}, expected {n * share:,.4g}"
        for name, most, sign, sides in (
            ("largest |z|", max(self._largest, -self._smallest), 1, 2),
            ("largest z", self._largest, 1, 1),
            ("smallest z", -self._smallest, -1, 1),
        ):
            parts[name] = _extreme_p(most, n, sides=sides)
            median = sign * _median_extreme(n, sides=sides)
            effects[name] = f"{name} {sign * most:.2f}, expected about {median:.2f}"
        worst = min(parts, key=lambda name: parts[name])
        # the probability of an absent tail that would be missed
        cut = -math.log(alpha / (2 * len(parts))) / n
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=max(self._largest, -self._smallest),
            effect=f"z from {self._smallest:.2f} to {self._largest:.2f} in {n:,} values"
            + (f"; {effects[worst]}" if parts[worst] < SHOWN else ""),
            parts=parts,
            blind_spots=(
                BlindSpot(
                    test="tails",
                    flaw="truncated tails",
                    size=float(-scipy.special.ndtri(min(cut, 1.0) / 2)),
                    unit="standard deviations (normal scale)",
                    says="a sampler that never goes beyond this, "
                    "or anything rarer than the values beyond it",
                ),
            ),
        )


def _median_extreme(n: int, *, sides: int) -> float:
    """The median of the largest of n values (``sides`` = 2: magnitudes)."""
    return float(-scipy.special.ndtri(-math.expm1(-math.log(2) / n) / sides))


def _extreme_p(most: float, n: int, *, sides: int) -> float:
    """Two-sided p-value of the largest of n values (``sides`` = 2: magnitudes)."""
    outside = min(math.exp(math.log(sides) + float(scipy.special.log_ndtr(-most))), 1 - 1e-16)
    log_below = n * math.log1p(-outside)
    return min(1.0, 2 * min(math.exp(log_below), -math.expm1(log_below)))
