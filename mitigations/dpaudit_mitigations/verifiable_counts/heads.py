"""How many of n fair coins show heads: bits of a cryptographic stream, counted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.interfaces import Stream

__all__ = ["draw_heads"]

_CHUNK = 1 << 22  # bytes at a time


def draw_heads(count: int, *, coins: int, stream: Stream) -> npt.NDArray[np.int64]:
    """``count`` independent Binomial(``coins``, 1/2), exactly as uniform as the stream's bits, shape (count,)."""
    whole, rest = divmod(coins, 64)
    words = whole + (rest > 0)
    out = np.empty(count, dtype=np.int64)
    at_once = max(1, _CHUNK // (8 * words))
    for at in range(0, count, at_once):
        rows = min(at_once, count - at)
        bits = np.frombuffer(stream.bytes(8 * words * rows), dtype="<u8").reshape(rows, words)
        if rest:
            bits = bits.copy()
            bits[:, -1] &= np.uint64((1 << rest) - 1)
        out[at : at + rows] = np.bitwise_count(bits).sum(1, dtype=np.int64)
    return out
