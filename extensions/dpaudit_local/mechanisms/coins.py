"""Coins with exact probabilities, one number of 2^64 equally likely words each.

How many words make a device lie, and many such bits at once, made 64 at a time and packed.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import inline, jit, next_word, seed_words, start
from dpaudit.protocols import Stream
from dpaudit_local.mechanisms.reports import privacy_number, whole_number

__all__ = [
    "LARGEST_EPSILON",
    "WORDS",
    "biased_bits",
    "biased_word",
    "epsilon_of_words",
    "lying_words",
    "pack_words",
    "unpack_words",
]

WORDS = 1 << 64

LARGEST_EPSILON = 32.0
"""Above it, 2^64 words are too few for the law, and there is practically no privacy."""


def lying_words(epsilon: float, categories: int) -> int:
    """How many words of 2^64 name each of the ``categories`` − 1 wrong answers.

    All other words are the truth. The least number at which (rest) / (words) ≤ e^ε, worked out in
    60 decimal digits: the law that follows is ε-private without any tolerance, and its own ε
    (:func:`epsilon_of_words`) is less than ``epsilon`` by no more than (e^ε + k)² / (e^ε · 2^64).

    Raises:
        UsageError: ε not above 0 or beyond 32; categories below 2, or so many that words run out at
            this ε.

    >>> 2**64 / lying_words(1.0, 2) - 1  # e
    2.718281828459045
    """
    epsilon = privacy_number("epsilon", epsilon, LARGEST_EPSILON)
    categories = whole_number("categories", categories, 2, hint="")
    with localcontext() as context:
        context.prec = 60
        share = WORDS / (Decimal(epsilon).exp() + categories - 1)
        count = math.ceil(share)
    if not 0 < count < WORDS - (categories - 1) * count:
        raise UsageError(
            f"epsilon={epsilon}: too small for {categories} categories and coins of 2^-64; "
            "use a larger ε or fewer categories"
        )
    return count


def epsilon_of_words(words: int, categories: int) -> float:
    """The exact ε of that law, ln((2^64 − (k − 1)·words) / words), rounded to a double.

    >>> epsilon_of_words(2**62, 2) == math.log(3)
    True
    """
    with localcontext() as context:
        context.prec = 60
        return float((Decimal(WORDS - (categories - 1) * words) / words).ln())


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


def pack_words(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint8]:
    """64-bit words as rows of bytes, bit i in byte i // 8 at 1 << i % 8, cut to ``bits``."""
    return words.astype("<u8", copy=False).view(np.uint8)[:, : bits // 8]


def unpack_words(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Rows of bytes as 64-bit words, bit i at 1 << i % 64; missing bytes are 0."""
    spare = -bits.shape[1] % 8
    full = np.ascontiguousarray(np.pad(bits, ((0, 0), (0, spare))) if spare else bits)
    return full.view("<u8").astype(np.uint64, copy=False)


def biased_bits(n: int, bits: int, *, words: int, stream: Stream) -> npt.NDArray[np.uint8]:
    """``n`` rows of ``bits`` independent bits, packed, (n, bits / 8).

    Each bit is 1 with probability exactly ``words`` / 2^64. Statistical randomness (SFC64 seeded by
    ``stream``, one generator per row), not secret from someone who sees it.

    Raises:
        UsageError: ``bits`` is not a positive multiple of 8, or ``words`` is not in 0 … 2^64 − 1.
    """
    if bits < 8 or bits % 8:
        raise UsageError(f"bits={bits}: must be a multiple of 8, as bits are packed in bytes")
    if not 0 <= words < WORDS:
        raise UsageError(f"words={words}: must be from 0 to 2^64 − 1")
    out = np.empty((n, -(-bits // 64)), np.uint64)
    _fill(out, _U(words), seed_words(stream))
    return pack_words(out, bits)
