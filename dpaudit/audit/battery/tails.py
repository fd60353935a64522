"""Tails: how many values are how far out, and how far the farthest is."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.claims import Claim
from dpaudit.interfaces import Block, Stream
from dpaudit.stats import binomial_two_sided, bonferroni
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Tails"]

_LEVELS = 10.0 ** -np.arange(1, 13)  # two-sided tail probabilities looked at


@functools.cache
def _thresholds() -> npt.NDArray[np.float64]:
    """|z| beyond which N(0, 1) has each level's probability."""
    return np.asarray(-scipy.special.ndtri(_LEVELS / 2))


class Tails:
    """Counts of |z| beyond thresholds of probability 10^-1 … 10^-12, and the maximum.

    Null, exact: each count is binomial; P(max ≤ m) = (1 − P(|z| > m))^n. Thresholds with an expected count below 10^-3
    are left to the maximum. Combined by Bonferroni.
    """

    looks_at = "rare large values: heavy, light or truncated tails"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._claim = claim
        self._n = 0
        self._beyond = np.zeros(len(_LEVELS), np.int64)
        self._max = 0.0

    def update(self, block: Block) -> None:
        magnitude = np.abs(block.z.ravel())
        self._n += len(magnitude)
        for i, threshold in enumerate(_thresholds()):
            magnitude = magnitude[magnitude > threshold]  # each level looks at the one before it only
            self._beyond[i] += len(magnitude)
            if not len(magnitude):
                break
        self._max = max(self._max, float(np.abs(block.z).max()))

    def evidence(self, *, alpha: float) -> Evidence:
        n = self._n
        parts = {
            f"beyond {t:.2f} sigma": binomial_two_sided(int(k), n, float(level))
            for t, k, level in zip(_thresholds(), self._beyond, _LEVELS, strict=True)
            if n * level > 1e-3
        }
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
