"""Noise that was used before."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpaudit.claims import Claim
from dpaudit.interfaces import Block, Stream
from dpaudit.types import BlindSpot, Evidence

__all__ = ["Repeats"]

_WINDOW_BITS = 160.0


class Repeats:
    """Looks for the same run of magnitudes twice, in one call or in different ones, with or without the signs flipped.

    Runs are aligned windows of L values from the start of each call, compared by a keyed 64-bit hash of their bits. L is
    so large that honest noise of the claimed law, even rounded to 16 bits, has less than 2^-160 per pair. Null: a repeat
    then has probability below (number of windows)²/2·2^-64 (the hash), which is the p-value if one is seen. Not
    claimed: repeats shifted against the windows, or of runs shorter than 2L − 1.
    """

    looks_at = "repeated or replayed blocks"

    def __init__(self, claim: Claim, stream: Stream) -> None:
        # collision entropy a value of the claimed law on its natural grid; a real law is taken as 16 bits at least
        spread = math.log2(2 * math.sqrt(math.pi) * claim.standard_deviation) if claim.discrete else 12.0
        self._length = min(4096, max(8, math.ceil(_WINDOW_BITS / max(spread, 0.02))))
        self._key = np.frombuffer(stream.bytes(8 * self._length), dtype="<u8") | np.uint64(1)
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._windows = 0

    def update(self, block: Block) -> None:
        x = np.abs(block.values.ravel())
        whole = len(x) // self._length
        if not whole:
            return
        bits = x[: whole * self._length].view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)  # so that trailing zeros matter
        mixed ^= mixed >> np.uint64(29)
        self._hashes.append(mixed.reshape(whole, self._length) @ self._key)
        self._windows += whole

    def evidence(self, *, alpha: float) -> Evidence:
        del alpha
        if not self._windows:
            return Evidence(p=1.0, statistic=0.0, effect="too few values for one window")
        every = np.sort(np.concatenate(self._hashes))
        repeated = int(np.count_nonzero(every[1:] == every[:-1]))
        p = min(1.0, self._windows**2 / 2 * 2.0**-63) if repeated else 1.0
        blind = BlindSpot(
            test="repeats",
            flaw="replayed noise",
            size=float(2 * self._length - 1),
            unit="values",
            says="repeats of runs shorter than this, shifted ones, and any that lie farther apart than this audit looked",
        )
        return Evidence(
            p=p,
            statistic=float(repeated),
            effect=f"{repeated:,} of {self._windows:,} windows of {self._length} values seen before",
            blind_spots=(blind,),
        )
