"""Values where the claimed law has none, and atoms where it has no atoms."""

from __future__ import annotations

import numpy as np
import scipy

from dpaudit.claims import Claim
from dpaudit.protocols import Block, Stream
from dpaudit.types import Evidence

__all__ = ["Support"]


class Support:
    """A discrete law never leaves the integers; a continuous one is (almost) never exactly zero.

    Null: for an integer law p = 0 if any value is off the integers. For a continuous law the number
    of exact zeros is at most Poisson with 2^-20 per value: float samplers that count as honest
    (24-bit uniforms in float32) stay below 2^-23.
    """

    looks_at = "values the claimed law cannot take"
    harm = "values"
    causal_order = 0

    def __init__(self, claim: Claim, stream: Stream) -> None:
        del stream
        self._discrete = claim.discrete
        self._n = self._off = 0

    def update(self, block: Block) -> None:
        x = block.values
        self._n += x.size
        if self._discrete:
            self._off += int(np.count_nonzero(x != np.rint(x)))
        else:
            self._off += int(np.count_nonzero(x == 0))

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if self._discrete:
            return Evidence(
                p=0.0 if self._off else 1.0,
                statistic=float(self._off),
                effect=f"{self._off:,} of {self._n:,} values are not whole numbers",
                cause="values that are not whole numbers",
                cause_rank=5,
            )
        p = float(scipy.special.pdtrc(self._off - 1, self._n * 2.0**-20)) if self._off else 1.0
        return Evidence(
            p=p,
            statistic=float(self._off),
            effect=f"{self._off:,} of {self._n:,} values are exactly 0",
        )
