"""Noise from generators that add and multiply modulo a number, in full or cut short."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpaudit.numeric.generators import (
    ADD,
    Words,
    congruential,
    lagged,
    mrg32k3a,
    shuffled,
    splitmix64,
)
from dpaudit_studies.zoo.specimen import Array, Series, Specimen, flat
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

_MERSENNE = (1 << 31) - 1


def _below(rng: np.random.Generator, modulus: int) -> int:
    return int(rng.integers(1, modulus, dtype=np.uint64))


def _start(multiplier: int, increment: int, modulus: int) -> Begin:
    return lambda rng: congruential(multiplier, increment, modulus, _below(rng, modulus))


def _over(words: Words, modulus: float) -> Uniforms:
    return lambda m: words(m).astype(np.float64) / modulus


_minstd = _start(48_271, 0, _MERSENNE)
_drand48 = _start(0x5DEECE66D, 11, 1 << 48)
_java = partial(fifty_three, of=48, upper=26)  # ``nextDouble``


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
    _congruential("minstd-discrete-laplace", "two geometric numbers of minstd by inverse CDF",
                  flat(_discrete_laplace),
                  "31 bits of state and 6 bits per value: all 2^31 states are tried against a few "
                  "values", claim="discrete-laplace:scale=10"),
    _congruential("java-polar", "polar method of java.util.Random's nextDouble",
                  noise(_drand48, lambda w: polar(_java(w))), _GAPS),
    _congruential("java-24-inverse", "Φ⁻¹ of java.util.Random's nextFloat: 24 bits of 48",
                  noise(_drand48, lambda w: inverse(top(w, 24, 48))), _CUT),
    _congruential("lcg32-unknown-inverse",
                  "Φ⁻¹ of a 32-bit congruential generator whose multiplier is secret",
                  noise(_unknown_multiplier, lambda w: inverse(top(w, 32, 32))),
                  "Φ(z) gives whole states back, and two differences of neighbours give the "
                  "multiplier"),
    _congruential("kreutzer-inverse", "Φ⁻¹ of a generator modulo 714,025, shuffled in 97 cells",
                  noise(_kreutzer, lambda w: inverse(lambda m: (w(m) + 0.5) / 714_025)),
                  "at most 714,025 different values among 10^7"),
    _congruential("fibonacci-55-inverse", "Φ⁻¹ of x_(n-24) + x_(n-55) modulo 2^32",
                  noise(lambda rng: lagged(_state(rng, 55, 1 << 32), 24, ADD, 32),
                        lambda w: inverse(top(w, 32, 32))), _LAGS.format("a sum")),
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
