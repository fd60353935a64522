"""Location and scale."""

from __future__ import annotations

import math

import scipy

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.block import CELLS
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import bonferroni, chi_square_two_sided, normal_two_sided
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = ["Moments"]

_OFF = 0.01  # relative error of a scale that is a cause of its own


class Moments:
    """Mean and variance of z, and the rate of signs.

    Null, exact for every n: Σz ~ N(0, n), Σz² ~ χ²_n, and the number of positive values is binomial
    (taken as normal). Skewness and tails are left to the goodness-of-fit and tail tests. Combined
    by Bonferroni.
    """

    looks_at = "mean, scale, sign balance"
    harm = "strength"
    causal_order = 9

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._claim = claim
        self._n = 0
        self._sum = self._square = 0.0
        self._positive = 0

    def update(self, block: Block) -> None:
        z = block.z.ravel()
        self._n += len(z)
        self._sum += float(z.sum())
        self._square += float(z @ z)
        self._positive += int(block.cells[CELLS // 2 :].sum())

    def evidence(self, *, alpha: float) -> Evidence:
        n, sd = self._n, self._claim.standard_deviation
        root = math.sqrt(n)
        parts = {
            "mean": float(normal_two_sided(self._sum / root)),
            "scale": chi_square_two_sided(self._square, n),
            "signs": float(normal_two_sided((2 * self._positive - n) / root)),
        }
        scale = math.sqrt(self._square / n)
        tail = alpha / 2
        low = math.sqrt(self._square / scipy.special.chdtri(n, tail))
        high = math.sqrt(self._square / scipy.special.chdtri(n, 1 - tail))
        share = alpha / 3
        off = low > 1 + _OFF or high < 1 - _OFF
        return Evidence(
            p=bonferroni(list(parts.values())),
            statistic=scale,
            effect=f"scale {scale:.5f} × claimed [{low:.5f}, {high:.5f}], "
            f"mean {self._sum / n * sd:+.2e}",
            interval=Interval(low=low, high=high, confidence=1 - alpha, method="χ²"),
            unit="× the claimed scale",
            cause=f"scale {scale:.4g} × the claimed one" if off else "",
            cause_rank=9,
            parts=parts,
            blind_spots=(
                BlindSpot(
                    test="moments",
                    flaw="wrong scale",
                    size=100 * detectable_effect(1 / math.sqrt(2 * n), alpha=share),
                    unit="% of the claimed scale",
                    says="noise that is too small or too large by less than this",
                ),
                BlindSpot(
                    test="moments",
                    flaw="bias",
                    size=detectable_effect(sd / root, alpha=share),
                    unit="in the sampler's unit",
                    says="a mean closer to 0 than this",
                ),
            ),
        )
