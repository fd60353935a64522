"""Noise from generators that are linear over GF(2): enough bits of it give all later ones."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpaudit.numeric.generators import (
    TW223,
    Words,
    mt19937,
    reversed_blocks,
    tausworthe,
    xorshift64,
    xorshift128_plus,
)
from dpaudit_studies.zoo.specimen import Array, Make, Series, Specimen, flat
from dpaudit_studies.zoo.transforms import (
    CHUNK,
    Begin,
    Uniforms,
    box_muller,
    dealt,
    fifty_three,
    inverse,
    noise,
    polar,
    top,
)

__all__ = ["SPECIMENS"]


def _twister(rng: np.random.Generator) -> Words:
    return mt19937(rng.integers(0, 1 << 32, 624, np.uint32))


def _words(rng: np.random.Generator, count: int, bits: int) -> np.ndarray:
    """Words of a state, none of them small."""
    return rng.integers(1 << (bits // 2), 1 << bits, count, np.uint64)


def _signed(begin: Begin, bit: int) -> Make:
    """Fresh magnitudes whose signs are a bit of these words."""

    def start(rng: np.random.Generator) -> Series:
        words = begin(rng)

        def chunk() -> Array:
            signs = (words(CHUNK) >> np.uint64(bit)).astype(np.float64)
            return np.abs(rng.standard_normal(CHUNK)) * (2 * signs - 1)

        return dealt(chunk)

    return flat(start)


def _low_52(words: Words) -> Uniforms:
    return lambda m: ((words(m) & np.uint64((1 << 52) - 1)).astype(np.float64) + 0.5) * 2.0**-52


_linear = partial(Specimen, family="linear")


def _recurrence(bits: int, how: str) -> str:
    return (
        f"{how}: a bit at a fixed place follows a recurrence of length {bits:,}, which predicts "
        "every later one; honest bits would do so for 100 more with probability 2^-100"
    )


_INVERTED = "Φ(z) gives the words back"
_ANGLES = "the angle and the length of a pair give its two uniforms back"
_GAPS = (
    "a pair's direction and length give its uniforms back, and the rejected pairs between two, of "
    "geometric number, are guessed: equations of known words hold exactly once the guess is right"
)

SPECIMENS = (
    _linear("mt19937-inverse", "Φ⁻¹ of 32-bit words of the Mersenne Twister",
            noise(_twister, lambda w: inverse(top(w, 32, 32))), _recurrence(19_937, _INVERTED)),
    _linear("mt19937-box-muller", "Box-Muller, both outputs, of the Mersenne Twister at 53 bits",
            noise(_twister, lambda w: box_muller(fifty_three(w))), _recurrence(19_937, _ANGLES)),
    _linear("mt19937-polar", "polar method of the Mersenne Twister at 53 bits",
            noise(_twister, lambda w: polar(fifty_three(w))), _GAPS),
    _linear("mt19937-signs", "fresh magnitudes, signs from the Mersenne Twister",
            _signed(_twister, 31), _recurrence(19_937, "signs are seen")),
    _linear("xorshift64-box-muller", "Box-Muller, both outputs, of the top 52 bits of xorshift64",
            noise(lambda rng: xorshift64(_words(rng, 1, 64)), lambda w: box_muller(top(w, 52, 64))),
            _recurrence(64, _ANGLES)),
    _linear("v8-blocks", "Φ⁻¹ of half of xorshift128+'s state, in reversed blocks of 64, as in V8",
            noise(lambda rng: reversed_blocks(xorshift128_plus(_words(rng, 2, 64), added=False),
                                              64),
                  lambda w: inverse(top(w, 52, 64))), _recurrence(8_192, _INVERTED)),
    _linear("tw223-polar", "polar method of the low 52 bits of TW223, as LuaJIT takes them",
            noise(lambda rng: tausworthe(_words(rng, 4, 64), 64, TW223),
                  lambda w: polar(_low_52(w))), _GAPS),
    _linear("xorshift128-plus-top", "Φ⁻¹ of the top 52 bits of xorshift128+",
            noise(lambda rng: xorshift128_plus(_words(rng, 2, 64), added=True),
                  lambda w: inverse(top(w, 52, 64))),
            "a solver for Boolean equations recovers 128 bits of state from a few outputs in "
            "minutes; whether a battery affords one decides", expected="borderline"),
)  # fmt: skip
