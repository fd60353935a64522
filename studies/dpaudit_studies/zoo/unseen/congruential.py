"""Noise from generators that add and multiply modulo a number, in full or cut short."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpaudit.vectors.generators import (
    ADD,
    SUBTRACT,
    Words,
    congruential,
    congruential_128,
    inversive,
    kept_of,
    lagged,
    mrg32k3a,
    shuffled,
    splitmix64,
    subtract_with_borrow,
)
from dpaudit_studies.zoo.specimen import Array, Series, Specimen, flat
from dpaudit_studies.zoo.transforms import (
    CHUNK,
    Begin,
    Uniforms,
    box_muller,
    dealt,
    inverse,
    noise,
    polar,
    top,
)

__all__ = ["SPECIMENS"]

_MERSENNE = (1 << 31) - 1
_KEPT = 23 * 2880  # more than a chunk, and a multiple of 23 and of 64


def _below(rng: np.random.Generator, modulus: int) -> int:
    return int(rng.integers(1, modulus, dtype=np.uint64))


def _start(multiplier: int, increment: int, modulus: int) -> Begin:
    return lambda rng: congruential(multiplier, increment, modulus, _below(rng, modulus))


def _over(words: Words, modulus: float) -> Uniforms:
    return lambda m: words(m).astype(np.float64) / modulus


_minstd = _start(48_271, 0, _MERSENNE)
_minstd0 = _start(16_807, 0, _MERSENNE)
_drand48 = _start(0x5DEECE66D, 11, 1 << 48)
_ansi = _start(1_103_515_245, 12_345, 1 << 32)
_mmix = _start(6_364_136_223_846_793_005, 1_442_695_040_888_963_407, 1 << 64)


def _java(words: Words) -> Uniforms:
    """``nextDouble``: 26 and 27 leading bits of 48."""

    def uniforms(m: int) -> Array:
        pairs = words(2 * m).reshape(-1, 2)
        high, low = pairs[:, 0] >> np.uint64(22), pairs[:, 1] >> np.uint64(21)
        return np.asarray((high * 134_217_728.0 + low) * 2.0**-53)

    return uniforms


def _thirty(words: Words) -> Uniforms:
    """Two calls of a ``rand`` of 15 bits."""

    def uniforms(m: int) -> Array:
        pairs = (words(2 * m).reshape(-1, 2) >> np.uint64(16)) & np.uint64(32_767)
        return np.asarray((pairs[:, 0] * 32_768.0 + pairs[:, 1] + 0.5) * 2.0**-30)

    return uniforms


def _wichmann_hill(rng: np.random.Generator) -> Series:
    moduli = (30_269, 30_307, 30_323)
    parts = [
        congruential(a, 0, m, _below(rng, m)) for a, m in zip((171, 172, 170), moduli, strict=True)
    ]

    def uniforms(m: int) -> Array:
        total = sum(w(m) / p for w, p in zip(parts, moduli, strict=True))
        return np.asarray(total % 1.0)

    return dealt(inverse(uniforms))


def _unknown_multiplier(rng: np.random.Generator) -> Words:
    a, c = 8 * int(rng.integers(1 << 29)) + 5, 2 * int(rng.integers(1 << 31)) + 1
    return congruential(a, c, 1 << 32, _below(rng, 1 << 32))


def _pcg64(rng: np.random.Generator) -> Words:
    generator = np.random.PCG64(int(rng.integers(1 << 62)))
    return lambda m: np.asarray(generator.random_raw(m))


def _kreutzer(rng: np.random.Generator) -> Words:
    return shuffled(congruential(1_366, 150_889, 714_025, _below(rng, 714_025)), 97, 714_025)


def _state(rng: np.random.Generator, count: int, modulus: int) -> np.ndarray:
    return rng.integers(0, modulus, count, np.uint64)


def _luxury(rng: np.random.Generator) -> Series:
    words = kept_of(subtract_with_borrow(_state(rng, 24, 1 << 24), 10, 1 << 24), 23, 223)
    return dealt(inverse(lambda _: top(words, 24, 24)(_KEPT)))


def _knuth(rng: np.random.Generator) -> Series:
    words = kept_of(lagged(_state(rng, 100, 1 << 30), 37, SUBTRACT, 30), 100, 1_009)
    return dealt(inverse(lambda _: top(words, 30, 30)(1_600 * 40)))


def _discrete_laplace(rng: np.random.Generator) -> Series:
    """The difference of two geometric numbers of scale 10, by inverse CDF of minstd."""
    uniforms = _over(_minstd(rng), _MERSENNE)

    def chunk() -> Array:
        steps = np.floor(-10 * np.log(uniforms(CHUNK))).reshape(-1, 2)
        return np.asarray(steps[:, 0] - steps[:, 1])

    return dealt(chunk)


_congruential = partial(Specimen, family="congruential")


_WHOLE = "Φ(z) gives the whole state back, and from two states on each follows from the last"
_CUT = (
    "Φ(z) gives the leading bits of consecutive states; lattice reduction in four dimensions gives "
    "the rest, and every later value follows"
)
_PAIR = "angle and length give both uniforms back, and the second follows from the first"
_GAPS = (
    "direction and length of a pair give both uniforms back; whatever the number of rejected pairs "
    "before the next one, a few tries predict it"
)
_LAGS = "Φ(z) gives the words back, and {} holds among three of them at every place"

SPECIMENS = (
    _congruential("minstd-inverse", "Φ⁻¹ of minstd (48,271)",
                  noise(_minstd, lambda w: inverse(_over(w, _MERSENNE))), _WHOLE),
    _congruential("minstd-box-muller", "Box-Muller, both outputs, of minstd (48,271)",
                  noise(_minstd, lambda w: box_muller(_over(w, _MERSENNE))), _PAIR),
    _congruential("minstd0-polar", "polar method of minstd (16,807)",
                  noise(_minstd0, lambda w: polar(_over(w, _MERSENNE))), _GAPS),
    _congruential("minstd-discrete-laplace", "two geometric numbers of minstd by inverse CDF",
                  flat(_discrete_laplace),
                  "31 bits of state and 6 bits per value: all 2^31 states are tried against a few "
                  "values", claim="discrete-laplace:scale=10"),
    _congruential("drand48-inverse", "Φ⁻¹ of drand48",
                  noise(_drand48, lambda w: inverse(top(w, 48, 48))), _WHOLE),
    _congruential("drand48-box-muller", "Box-Muller, both outputs, of drand48",
                  noise(_drand48, lambda w: box_muller(_over(w, 2.0**48))), _PAIR),
    _congruential("java-polar", "polar method of java.util.Random's nextDouble",
                  noise(_drand48, lambda w: polar(_java(w))), _GAPS),
    _congruential("java-24-inverse", "Φ⁻¹ of java.util.Random's nextFloat: 24 bits of 48",
                  noise(_drand48, lambda w: inverse(top(w, 24, 48))), _CUT),
    _congruential("ansi-rand-30-inverse", "Φ⁻¹ of 30 bits from two calls of ANSI C's rand()",
                  noise(_ansi, lambda w: inverse(_thirty(w))), _CUT),
    _congruential("wichmann-hill-inverse", "Φ⁻¹ of Wichmann and Hill's generator (1982)",
                  flat(_wichmann_hill),
                  "Φ(z) is a multiple of 1/27,817,185,604,309, whose numerators follow one "
                  "congruential generator"),
    _congruential("lcg64-high-32-inverse", "Φ⁻¹ of the high halves of a 64-bit congruential one",
                  noise(_mmix, lambda w: inverse(top(w, 32, 64))), _CUT),
    _congruential("lcg64-high-32-polar", "polar method of the high halves of the same",
                  noise(_mmix, lambda w: polar(top(w, 32, 64))), _GAPS),
    _congruential("lcg128-high-52-inverse", "Φ⁻¹ of the top 52 bits of a 128-bit congruential one",
                  noise(lambda rng: congruential_128(_state(rng, 2, 1 << 63)),
                        lambda w: inverse(top(w, 52, 64))), _CUT),
    _congruential("lcg32-unknown-inverse",
                  "Φ⁻¹ of a 32-bit congruential generator whose multiplier is secret",
                  noise(_unknown_multiplier, lambda w: inverse(top(w, 32, 32))),
                  "Φ(z) gives whole states back, and two differences of neighbours give the "
                  "multiplier"),
    _congruential("kreutzer-inverse", "Φ⁻¹ of a generator modulo 714,025, shuffled in 97 cells",
                  noise(_kreutzer, lambda w: inverse(lambda m: (w(m) + 0.5) / 714_025)),
                  "at most 714,025 different values among 10^7"),
    _congruential("inversive-inverse", "Φ⁻¹ of an inversive congruential generator modulo 2^31 - 1",
                  noise(lambda rng: inversive(_below(rng, _MERSENNE), a=22_211, c=11_926_380,
                                              p=_MERSENNE),
                        lambda w: inverse(lambda m: (w(m) + 0.5) / _MERSENNE)), _WHOLE),
    _congruential("glibc-additive-inverse", "Φ⁻¹ of the top 31 bits of x_(n-3) + x_(n-31)",
                  noise(lambda rng: lagged(_state(rng, 31, 1 << 32), 3, ADD, 32),
                        lambda w: inverse(top(w, 31, 32))), _LAGS.format("a sum, up to a carry,")),
    _congruential("fibonacci-55-inverse", "Φ⁻¹ of x_(n-24) + x_(n-55) modulo 2^32",
                  noise(lambda rng: lagged(_state(rng, 55, 1 << 32), 24, ADD, 32),
                        lambda w: inverse(top(w, 32, 32))), _LAGS.format("a sum")),
    _congruential("fibonacci-1279-box-muller",
                  "Box-Muller, both outputs, of x_(n-418) + x_(n-1279) modulo 2^52",
                  noise(lambda rng: lagged(_state(rng, 1_279, 1 << 52), 418, ADD, 52),
                        lambda w: box_muller(top(w, 52, 52))),
                  "angle and length give the words back, and a sum holds among three of them at "
                  "every place"),
    _congruential("borrow-43-inverse", "Φ⁻¹ of x_(n-22) - x_(n-43) - borrow modulo 2^32 - 5",
                  noise(lambda rng: subtract_with_borrow(
                            _state(rng, 43, (1 << 32) - 5), 22, (1 << 32) - 5),
                        lambda w: inverse(lambda m: (w(m) + 0.5) / ((1 << 32) - 5))),
                  _LAGS.format("a difference, up to a borrow,")),
    _congruential("ranlux24-inverse", "Φ⁻¹ of RANLUX at 24 bits, 23 of every 223 words",
                  flat(_luxury),
                  "Φ(z) gives 23 of the state's 24 words and the 2^24 values of the last are "
                  "tried: the next 23 follow"),
    _congruential("ran-array-inverse",
                  "Φ⁻¹ of x_(n-100) - x_(n-37) modulo 2^30, 100 of every 1,009 words",
                  flat(_knuth), "100 words in a row are the whole state: the next 100 follow"),
    _congruential("splitmix64-inverse", "Φ⁻¹ of the top 52 bits of a counter, mixed by splitmix64",
                  noise(lambda rng: splitmix64(_below(rng, 1 << 63)),
                        lambda w: inverse(top(w, 52, 64))),
                  "2^12 guesses at the missing bits turn a word back into the counter; the next "
                  "words are known"),
    _congruential("mrg32k3a-inverse", "Φ⁻¹ of MRG32k3a",
                  noise(lambda rng: mrg32k3a(rng.integers(1, 4_294_944_443, 6).astype(np.uint64)),
                        lambda w: inverse(lambda m: (w(m) + 0.5) / 4_294_967_088)),
                  "two recurrences of order 3 hidden behind their difference: published lattice "
                  "attacks exist, and need tuning", expected="borderline"),
    _congruential("pcg64-inverse", "Φ⁻¹ of the top 52 bits of PCG64",
                  noise(_pcg64, lambda w: inverse(top(w, 52, 64))),
                  "the published attack takes 20,000 hours of one core for unknown increments "
                  "(Bouillaguet, Martinez and Sauvage 2020)", expected="missed"),
)  # fmt: skip
