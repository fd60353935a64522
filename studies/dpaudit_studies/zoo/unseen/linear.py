"""Noise from generators that are linear over GF(2): enough bits of it give all later ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dpaudit.vectors.generators import (
    LFSR113,
    TAUS88,
    TW223,
    XOR,
    Words,
    lagged,
    mt19937,
    reversed_blocks,
    tausworthe,
    well512,
    xoroshiro128_plus,
    xorshift64,
    xorshift128,
    xorshift128_plus,
)
from dpaudit_studies.zoo.specimen import Array, Make, Series, Specimen, flat
from dpaudit_studies.zoo.transforms import (
    CHUNK,
    Begin,
    Uniforms,
    box_muller,
    box_muller_of,
    dealt,
    fifty_three,
    inverse,
    laplace_of,
    noise,
    polar,
    prbs31,
    sum_of_12,
    top,
    ziggurat,
)

__all__ = ["SPECIMENS"]

_LOW = np.uint64((1 << 32) - 1)


def _twister(rng: np.random.Generator) -> Words:
    return mt19937(rng.integers(0, 1 << 32, 624, np.uint32))


def _words(rng: np.random.Generator, count: int, bits: int) -> np.ndarray:
    """Words of a state, none of them small."""
    return rng.integers(1 << (bits // 2), 1 << bits, count, np.uint64)


def _torch_like(words: Words) -> Callable[[], Array]:
    """Single precision, 24 bits a uniform; of 16 in a row the first 8 make radii."""

    def chunk() -> Array:
        u = (words(CHUNK) & np.uint64((1 << 24) - 1)).astype(np.float32) * np.float32(2**-24)
        u = u.reshape(-1, 2, 8)
        return box_muller_of(u[:, 0], u[:, 1]).ravel().astype(np.float64)

    return chunk


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
    _linear("mt19937-ziggurat", "ziggurat of 32-bit words of the Mersenne Twister",
            noise(_twister, ziggurat),
            "128 layers to choose from give back a value's word; in 10^7 values three words of the "
            "recurrence lie undisturbed millions of times"),
    _linear("mt19937-sum-12", "sum of twelve 32-bit uniforms of the Mersenne Twister, less six",
            noise(_twister, lambda w: sum_of_12(lambda m: w(m).astype(np.float64) * 2.0**-32)),
            "the last of the sum's 32 bits is the sum of twelve last bits modulo 2: linear of "
            "length 19,937; and the excess kurtosis is -0.1"),
    _linear("mt19937-float32-blocks",
            "float32 Box-Muller in blocks of 16 values, 24 low bits of the Mersenne Twister",
            noise(_twister, _torch_like),
            _recurrence(19_937, "every 16th angle gives the leading bits of one word in 16")),
    _linear("mt19937-laplace", "Laplace by inverse CDF of 32-bit words of the Mersenne Twister",
            noise(_twister, lambda w: lambda: laplace_of(top(w, 32, 32)(CHUNK))),
            _recurrence(19_937, "the CDF gives words"), claim="laplace:scale=1"),
    _linear("mt19937-signs", "fresh magnitudes, signs from the Mersenne Twister",
            _signed(_twister, 31), _recurrence(19_937, "signs are seen")),
    _linear("prbs31-signs", "fresh magnitudes, signs from a shift register of 31 bits",
            _signed(prbs31, 0), _recurrence(31, "signs are seen")),
    _linear("xorshift64-box-muller", "Box-Muller, both outputs, of the top 52 bits of xorshift64",
            noise(lambda rng: xorshift64(_words(rng, 1, 64)), lambda w: box_muller(top(w, 52, 64))),
            _recurrence(64, _ANGLES)),
    _linear("xorshift128-inverse", "Φ⁻¹ of 32-bit words of xorshift128",
            noise(lambda rng: xorshift128(_words(rng, 4, 32)), lambda w: inverse(top(w, 32, 32))),
            _recurrence(128, _INVERTED)),
    _linear("xorshift128-polar", "polar method of 32-bit words of xorshift128",
            noise(lambda rng: xorshift128(_words(rng, 4, 32)), lambda w: polar(top(w, 32, 32))),
            _GAPS),
    _linear("v8-blocks", "Φ⁻¹ of half of xorshift128+'s state, in reversed blocks of 64, as in V8",
            noise(lambda rng: reversed_blocks(xorshift128_plus(_words(rng, 2, 64), added=False),
                                              64),
                  lambda w: inverse(top(w, 52, 64))), _recurrence(8_192, _INVERTED)),
    _linear("taus88-box-muller", "Box-Muller, both outputs, of taus88's 32-bit words",
            noise(lambda rng: tausworthe(_words(rng, 3, 32), 32, TAUS88),
                  lambda w: box_muller(top(w, 32, 32))), _recurrence(88, _ANGLES)),
    _linear("lfsr113-inverse", "Φ⁻¹ of LFSR113's 32-bit words",
            noise(lambda rng: tausworthe(_words(rng, 4, 32), 32, LFSR113),
                  lambda w: inverse(top(w, 32, 32))), _recurrence(113, _INVERTED)),
    _linear("tw223-polar", "polar method of the low 52 bits of TW223, as LuaJIT takes them",
            noise(lambda rng: tausworthe(_words(rng, 4, 64), 64, TW223),
                  lambda w: polar(_low_52(w))), _GAPS),
    _linear("well512-inverse", "Φ⁻¹ of 32-bit words of WELL512a",
            noise(lambda rng: well512(_words(rng, 16, 32)), lambda w: inverse(top(w, 32, 32))),
            _recurrence(512, _INVERTED)),
    _linear("r250-box-muller", "Box-Muller, both outputs, of the shift register 103, 250",
            noise(lambda rng: lagged(_words(rng, 250, 32), 103, XOR, 32),
                  lambda w: box_muller(top(w, 32, 32))), _recurrence(250, _ANGLES)),
    _linear("xoroshiro128-plus-low", "Φ⁻¹ of the low 32 bits of xoroshiro128+",
            noise(lambda rng: (lambda w: lambda m: w(m) & _LOW)(
                      xoroshiro128_plus(_words(rng, 2, 64))),
                  lambda w: inverse(top(w, 32, 32))),
            _recurrence(128, "the last of the 32 bits is a sum without carries")),
    _linear("xorshift128-plus-top", "Φ⁻¹ of the top 52 bits of xorshift128+",
            noise(lambda rng: xorshift128_plus(_words(rng, 2, 64), added=True),
                  lambda w: inverse(top(w, 52, 64))),
            "a solver for Boolean equations recovers 128 bits of state from a few outputs in "
            "minutes; whether a battery affords one decides", expected="borderline"),
)  # fmt: skip
