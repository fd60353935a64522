"""The one coin of randomised response: how many of 2^64 equally likely words make a device lie."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from dpaudit.errors import UsageError
from dpaudit_local.inputs import privacy_number, whole_number

__all__ = ["LARGEST_EPSILON", "WORDS", "epsilon_of_words", "lying_words"]

WORDS = 1 << 64

LARGEST_EPSILON = 32.0
"""Beyond, 2^64 words are too few for the law; there is no privacy left to speak of either."""


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
    categories = whole_number("categories", categories, 2, hint="; fewer leave nothing to ask")
    with localcontext() as context:
        context.prec = 60
        share = WORDS / (Decimal(epsilon).exp() + categories - 1)
        words = math.ceil(share)
    if not 0 < words < WORDS - (categories - 1) * words:
        raise UsageError(
            f"epsilon={epsilon}: too small for {categories} categories and coins of 2^-64; "
            "take a larger ε or fewer"
        )
    return words


def epsilon_of_words(words: int, categories: int) -> float:
    """The exact ε of that law, ln((2^64 − (k − 1)·words) / words), rounded to a double.

    >>> epsilon_of_words(2**62, 2) == math.log(3)
    True
    """
    with localcontext() as context:
        context.prec = 60
        return float((Decimal(WORDS - (categories - 1) * words) / words).ln())
