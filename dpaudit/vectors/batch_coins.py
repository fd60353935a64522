"""Who is in a Poisson batch, from 32 secret bytes: one word of 64 bits per record."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.randomness import KeyedStream

__all__ = ["coin_words", "members"]


def coin_words(share: bytes, records: int) -> npt.NDArray[np.uint64]:
    """The words of ``records`` records, shape (records,): ChaCha20 under ``share`` (32 bytes).

    Raises:
        UsageError: a share of another length.
    """
    return np.frombuffer(KeyedStream(share).bytes(8 * records), "<u8")


def members(words: npt.NDArray[np.uint64], *, rate: float) -> npt.NDArray[np.bool_]:
    """Which records are in the batch: those whose word is below ``rate``·2^64, shape of ``words``.

    Uniform words give independent coins of ``rate`` up to 2^-64.

    >>> members(np.array([0, 2**63, 2**64 - 1], np.uint64), rate=0.5).tolist()
    [True, False, False]

    Raises:
        UsageError: a rate outside (0, 1].
    """
    if isinstance(rate, (bool, str)) or not 0 < rate <= 1:
        raise UsageError(f"rate={rate}: must lie in (0, 1]; it is batch size / records")
    below = int(rate * 2**64)
    return np.ones(words.shape, np.bool_) if below >= 2**64 else words < np.uint64(below)
