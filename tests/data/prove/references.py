"""Plain Python forms of our compiled samplers, which are proved; tests tie each to its kernel.

A kernel and its reference read the same coins in the same order and give the same values. What is
proved of a reference holds for its kernel as far as that test shows it, and no further.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpaudit.numeric.exact_integers import IntegerLaw

__all__ = [
    "Coins",
    "Trials",
    "below",
    "biased_bit",
    "geometric_inversion",
    "hadamard_choice",
    "k_ary_answer",
]

_WORDS = 1 << 64  # equally likely coins of a device
_COARSE, _FINE, _SIGN = 25, 13, 25
_MORE = 64


class Coins(Protocol):
    """A generator of coins, as ``random.SystemRandom``."""

    def getrandbits(self, k: int, /) -> int:
        """An integer, uniform on 0 … 2^k − 1."""


_Table = tuple[tuple[int, ...], tuple[int, ...]]
_SYSTEM = secrets.SystemRandom()


@dataclass(frozen=True)
class Trials:
    """An integer law as ``dpaudit.numeric.exact_integers`` draws it: rejection, block by block.

    Attributes:
        law: what is drawn.
        tables: for 25 and for 89 bits, (lows, highs): 2^bits·P(block ≤ k) is at least lows[k] and
            at most highs[k], for k = 0, 1, …
    """

    law: IntegerLaw
    tables: tuple[_Table, _Table]

    @classmethod
    def of(cls, law: IntegerLaw) -> Trials:
        """The tables of a law."""
        return cls(law, (law.blocks(_COARSE), law.blocks(_COARSE + _MORE)))

    def draw(self, coins: Coins = _SYSTEM) -> int:
        """One integer: a word of 64 bits per trial, and more where it does not decide.

        From the low end: a place, a sign, and the first bits of two uniform numbers, for acceptance
        and for the block.
        """
        law = self.law
        while True:
            word = coins.getrandbits(64)
            k = self._block(word >> (64 - _COARSE), coins)
            place, negative = word & (law.block - 1), (word >> _SIGN) & 1
            start = k * law.block
            exponent = place * (law.linear + law.quadratic * (2 * start + place))
            prefix = (word >> (_SIGN + 1)) & ((1 << _FINE) - 1)
            if place and not _accepted(prefix, exponent, coins):
                continue
            value = start + place
            if value or not negative or law.block == 1:
                return -value if negative else value

    def _block(self, coarse: int, coins: Coins) -> int:
        """The block whose share of the unit interval holds the uniform number."""
        k = _block(coarse, self.tables[0])
        if k is not None:
            return k
        prefix = (coarse << _MORE) + coins.getrandbits(_MORE)
        k = _block(prefix, self.tables[1])
        if k is not None:
            return k
        return self.law.decide_block(prefix, _COARSE + _MORE, lambda: coins.getrandbits(_MORE))


def _block(prefix: int, table: _Table) -> int | None:
    """The first k whose border is above a prefix; None if that is not decided."""
    lows, highs = table
    k = 0
    while prefix >= highs[k]:
        k += 1
    return k if prefix < lows[k] else None


def _accepted(prefix: int, exponent: Fraction, coins: Coins) -> bool:
    """Whether U < exp(−exponent), U known by its first 13 bits, then by 64 more at a time."""
    bits = _FINE
    while True:
        answer = _below(prefix, bits, exponent)
        if answer is not None:
            return answer
        prefix, bits = (prefix << _MORE) + coins.getrandbits(_MORE), bits + _MORE


def _below(prefix: int, bits: int, exponent: Fraction) -> bool | None:
    """Whether all of [prefix, prefix + 1)/2^bits is below exp(−exponent) or none; else None.

    Taylor sums enclose the exponential, each closer than the one before.
    """
    low, high, term, n = Fraction(0), Fraction(1), Fraction(1), 0
    while (high - low) * (1 << (bits + 8)) > 1:
        n += 1
        term = term * exponent / n
        low = high - term
        if prefix + 1 <= low * (1 << bits):
            return True
        n += 1
        term = term * exponent / n
        high = low + term
        if prefix >= high * (1 << bits):
            return False
    return None


def geometric_inversion(scale: float = 10.0, *, coins: Coins = _SYSTEM) -> int:
    """One value of ``dpaudit.noise.geometric``: an inverted uniform number and a sign."""
    word = coins.getrandbits(64)
    uniform = ((word >> 12) + 0.5) * 2.0**-52
    ratio = math.exp(-1 / scale)
    size = math.ceil(-scale * math.log(uniform * ((1 + ratio) / 2))) - 1
    return -size if word & 1 else size


def k_ary_answer(value: int, lie: int, categories: int, *, coins: Coins = _SYSTEM) -> int:
    """An answer of ``RandomizedResponse`` (local privacy); ``lie`` words of 2^64 per wrong one."""
    word = coins.getrandbits(64)
    if word >= (categories - 1) * lie:
        return value
    return (value + 1 + word // lie) % categories


def biased_bit(threshold: int, *, coins: Coins = _SYSTEM) -> int:
    """One lane of ``dpaudit_local.mechanisms.coins``: 1 with probability ``threshold`` / 2^64.

    Bits of a uniform binary fraction are compared with the threshold's, from the first on.
    """
    rest = threshold
    while rest:
        bit = rest >> 63
        coin = coins.getrandbits(1)
        if coin != bit:
            return 1 if coin < bit else 0
        rest = (rest << 1) & (_WORDS - 1)
    return 0


def below(bound: int, *, coins: Coins = _SYSTEM) -> int:
    """One number of ``dpaudit.numeric.random_words.below``: uniform on 0 … ``bound`` − 1."""
    while True:
        product = (coins.getrandbits(64) >> 32) * bound
        if product & 0xFFFFFFFF >= (1 << 32) % bound:
            return product >> 32


def hadamard_choice(
    functions: int, m: int, lie: int, *, coins: Coins = _SYSTEM
) -> tuple[int, int, int]:
    """What one report of ``HadamardSketch`` draws: function, coordinate, whether it
    lies; ``lie`` words of 2^64 do.
    """
    function, coordinate = below(functions, coins=coins), below(m, coins=coins)
    return function, coordinate, int(coins.getrandbits(64) < lie)
