"""Call times that depend on the size of the noise."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery import detectable_effect
from dpaudit.audit.battery.parts import no_evidence
from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.stats import normal_two_sided
from dpaudit.types import BlindSpot, Evidence, Interval

__all__ = ["Timing"]

_LARGEST = 256  # values in a call that is short enough to time
_LEAST = 1000  # calls

Array = npt.NDArray[np.float64]


class Timing:
    """Rank correlation of a call's seconds with its Σ|z|, over the short calls of each block.

    Ranks are taken within a block of calls, so that neither outliers nor a busier machine matter;
    ties get their middle rank. Null: the noise of a block's calls is exchangeable, whatever the
    seconds; by permutation Spearman's r over m calls has mean 0 and variance exactly 1/(m − 1),
    ties or not. Σ r·(m − 1) over blocks, divided by the root of its variance Σ (m − 1), is taken as
    normal from 1000 calls on. Advisory: seconds are measured from outside, on a machine that others
    use. Not claimed: leaks through anything but the order of Σ|z|.
    """

    looks_at = "calls that take longer for larger noise"
    harm = "time"
    advisory = True

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del claim, stream
        self._sum = 0.0
        self._weight = self._calls = 0

    def update(self, block: Block) -> None:
        if block.seconds is None or block.calls < 3 or block.z.size > _LARGEST * block.calls:
            return
        seconds = _ranks(block.seconds)
        size = _ranks(np.abs(block.z.reshape(block.calls, -1)).sum(1))
        both = math.sqrt(float(seconds @ seconds) * float(size @ size))
        if both > 0:
            self._sum += float(seconds @ size) / both * (block.calls - 1)
            self._weight += block.calls - 1
            self._calls += block.calls

    def evidence(self, *, alpha: float) -> Evidence:
        if self._calls < _LEAST:
            return no_evidence("too few timed short calls")
        r, error = self._sum / self._weight, 1 / math.sqrt(self._weight)
        low, high = max(-1.0, r - 1.96 * error), min(1.0, r + 1.96 * error)
        p = float(normal_two_sided(r / error))
        order = "no dependence"
        if p < 1e-3:
            order = f"calls with larger noise take {'longer' if r > 0 else 'less time'}"
        blind = BlindSpot(
            test="timing",
            flaw="time that depends on the noise",
            size=detectable_effect(error, alpha=alpha),
            unit="rank correlation",
            says="calls whose time follows the size of their noise less closely than this",
        )
        return Evidence(
            p=p,
            statistic=r,
            effect=f"{order}: rank correlation {r:+.4f} [{low:+.4f}, {high:+.4f}] "
            f"over {self._calls:,} calls",
            blind_spots=(blind,),
            interval=Interval(
                low=low, high=high, confidence=0.95, method="permutation variance, normal"
            ),
            unit="rank correlation of seconds with Σ|z|",
        )


def _ranks(x: Array) -> Array:
    """Ranks with ties at their middle, centred."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[place] - (len(x) - 1) / 2)
