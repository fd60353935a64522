"""A bet on noise that was used before."""

from __future__ import annotations

import math

import numpy as np

from dpaudit.interfaces import Block, Stream

__all__ = ["RepeatBet"]

_WINDOW = 16
_MOST = 1 << 18  # windows kept
_ODDS = 2.0**20  # claimed with probability (2^18)²/2 · 2^-64 at most


class RepeatBet:
    """That the same 16 magnitudes come twice: capital 2^20 at the first repeat, nothing risked before.

    Under a continuous claim with at least 12 bits a value a repeat has probability below the 64-bit hash's: with at most
    2^18 windows that is 2^-29, so a run ever reaches 2^20 with probability below 2^-28, far less than 2^-20. A discrete
    claim makes no such promise and no bet.
    """

    looks_at = "repeated or replayed blocks"

    def __init__(self, stream: Stream) -> None:
        self._key = np.frombuffer(stream.bytes(8 * _WINDOW), dtype="<u8") | np.uint64(1)
        self._seen: set[int] = set()
        self._repeats = 0

    def update(self, block: Block) -> None:
        x = np.abs(block.values.ravel())
        whole = len(x) // _WINDOW
        if not whole or len(self._seen) + whole > _MOST:
            return
        bits = x[: whole * _WINDOW].view(np.uint64)
        hashes = ((bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)).reshape(whole, _WINDOW) @ self._key
        before = len(self._seen)
        self._seen.update(hashes.tolist())
        self._repeats += whole - (len(self._seen) - before)

    @property
    def log_capital(self) -> float:
        return math.log(_ODDS) if self._repeats else 0.0

    @property
    def effect(self) -> str:
        return f"{self._repeats:,} of {len(self._seen) + self._repeats:,} windows of {_WINDOW} values seen before"
