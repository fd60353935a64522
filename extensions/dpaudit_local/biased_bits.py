"""Many bits that are each 1 with one exact probability, made 64 at a time and packed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import inline, jit, next_word, seed_words, start
from dpaudit_local.coins import WORDS

__all__ = ["biased_bits", "biased_word", "packed"]

_U = np.uint64


@inline
def biased_word(threshold, a, b, c, n):  # type: ignore[no-untyped-def]
    """64 independent bits, each 1 with probability ``threshold`` / 2^64: state and word.

    Each lane compares a uniform binary fraction with the threshold's, from the first bit on: it is
    1 when its fraction is less. One random word gives the next bit of all lanes; it ends when all
    lanes have differed, or where the threshold's remaining bits are 0 (nothing is less than
    nothing). About 7.3 random words, whatever the threshold.
    """
    ones, equal = _U(0), ~_U(0)
    rest = threshold
    while rest != _U(0) and equal != _U(0):
        a, b, c, n, word = next_word(a, b, c, n)
        bit = _U(0) - (rest >> _U(63))
        ones |= equal & bit & ~word
        equal &= ~(word ^ bit)
        rest <<= _U(1)
    return a, b, c, n, ones


@jit
def _fill(out, threshold, seed):  # type: ignore[no-untyped-def]
    for row in range(out.shape[0]):
        a, b, c, n = start(seed, row, 0)
        for i in range(out.shape[1]):
            a, b, c, n, word = biased_word(threshold, a, b, c, n)
            out[row, i] = word


def packed(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint8]:
    """64-bit words as rows of bytes, bit i in byte i // 8 at 1 << i % 8, cut to ``bits``."""
    return words.astype("<u8", copy=False).view(np.uint8)[:, : bits // 8]


def biased_bits(n: int, bits: int, *, words: int, stream: Stream) -> npt.NDArray[np.uint8]:
    """``n`` rows of ``bits`` independent bits, packed, (n, bits / 8).

    Each bit is 1 with probability exactly ``words`` / 2^64. Statistical randomness (SFC64 seeded by
    ``stream``, one generator per row), not secret from someone who sees it.

    Raises:
        UsageError: ``bits`` is no positive multiple of 8, or ``words`` is not in 0 … 2^64 − 1.
    """
    if bits < 8 or bits % 8:
        raise UsageError(f"bits={bits}: bits are packed in bytes; take a multiple of 8")
    if not 0 <= words < WORDS:
        raise UsageError(f"words={words}: of 2^64 words, 0 … 2^64 − 1 can make a bit 1")
    out = np.empty((n, -(-bits // 64)), np.uint64)
    _fill(out, _U(words), seed_words(stream))
    return packed(out, bits)
