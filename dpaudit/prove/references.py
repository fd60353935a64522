"""Plain Python forms of our compiled samplers, for ``dpaudit prove``; tests tie each to its kernel.

A kernel and its reference read the same coins in the same order and give the same values. What is
proved of a reference holds for its kernel as far as that test shows it, and no further.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpaudit.local.coins import WORDS
from dpaudit.vectors.exact_law import IntegerLaw

__all__ = ["Coins", "Trials", "biased_bit", "geometric_inversion", "k_ary_answer"]

_COARSE, _FINE = 64, 36
_MORE = 64


class Coins(Protocol):
    """A generator of coins, as ``random.SystemRandom``."""

    def getrandbits(self, k: int, /) -> int:
        """An integer, uniform on 0 … 2^k − 1."""


_SYSTEM = secrets.SystemRandom()


@dataclass(frozen=True)
class Trials:
    """An integer law as ``dpaudit.vectors.exact_integers`` draws it: rejection, block by block.

    Attributes:
        lows: 2^64·P(block ≤ k) is at least this, for k = 0, 1, …
        highs: and at most this.
        block: integers per block, a power of two.
        linear: V(k·block + j) − V(k·block) is ``linear``·j + ``quadratic``·j·(2·k·block + j).
        quadratic: see there.
    """

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    block: int
    linear: Fraction
    quadratic: Fraction

    @classmethod
    def of(cls, law: IntegerLaw) -> Trials:
        """The tables of a law."""
        lows, highs = law.blocks(_COARSE)
        return cls(lows, highs, law.block, law.linear, law.quadratic)

    def draw(self, coins: Coins = _SYSTEM) -> int:
        """One integer: two words of 64 bits per trial.

        The first word chooses the block; the second is sign, place and the first 36 bits of the
        uniform number for acceptance. Where these do not decide, a reference gives up with an
        ArithmeticError, with probability below 2^-20; the kernel then goes on with further words.
        """
        while True:
            coarse, word = coins.getrandbits(64), coins.getrandbits(64)
            k = self._block(coarse)
            place, negative = (word >> 1) & (self.block - 1), word & 1
            start = k * self.block
            exponent = place * (self.linear + self.quadratic * (2 * start + place))
            if place and not _below(word >> (64 - _FINE), exponent):
                continue
            value = start + place
            if value or not negative:
                return -value if negative else value

    def _block(self, coarse: int) -> int:
        """The block whose share of the unit interval holds the 64 bits."""
        k = 0
        while coarse >= self.highs[k]:
            k += 1
        if coarse >= self.lows[k]:
            raise ArithmeticError("64 bits do not say which block")
        return k


def _below(prefix: int, exponent: Fraction) -> bool:
    """Whether U < exp(−exponent), U known by its first 36 bits; Taylor sums enclose the limit."""
    low, high, term, n = Fraction(0), Fraction(1), Fraction(1), 0
    while (high - low) * (1 << (_FINE + 8)) > 1:
        n += 1
        term = term * exponent / n
        low = high - term
        if prefix + 1 <= low * (1 << _FINE):
            return True
        n += 1
        term = term * exponent / n
        high = low + term
        if prefix >= high * (1 << _FINE):
            return False
    raise ArithmeticError("36 bits do not say whether to accept")


def geometric_inversion(scale: float = 10.0, *, coins: Coins = _SYSTEM) -> int:
    """One value of ``dpaudit.noise.geometric``: an inverted uniform number and a sign."""
    word = coins.getrandbits(64)
    uniform = ((word >> 12) + 0.5) * 2.0**-52
    ratio = math.exp(-1 / scale)
    size = math.ceil(-scale * math.log(uniform * ((1 + ratio) / 2))) - 1
    return -size if word & 1 else size


def k_ary_answer(value: int, lie: int, categories: int, *, coins: Coins = _SYSTEM) -> int:
    """One answer of ``dpaudit.local.randomized_response``; ``lie`` words of 2^64 per wrong one."""
    word = coins.getrandbits(64)
    if word >= (categories - 1) * lie:
        return value
    return (value + 1 + word // lie) % categories


def biased_bit(threshold: int, *, coins: Coins = _SYSTEM) -> int:
    """One lane of ``dpaudit.local.biased_bits``: 1 with probability ``threshold`` / 2^64.

    Bits of a uniform binary fraction are compared with the threshold's, from the first on.
    """
    rest = threshold
    while rest:
        bit = rest >> 63
        coin = coins.getrandbits(1)
        if coin != bit:
            return 1 if coin < bit else 0
        rest = (rest << 1) & (WORDS - 1)
    return 0
