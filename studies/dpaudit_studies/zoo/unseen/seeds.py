"""Noise that follows from a small seed, or from what anybody sees."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy

from dpaudit.numeric.generators import congruential
from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen

__all__ = ["SPECIMENS"]

_YEAR = 31_536_000
_2026 = 1_767_225_600  # its first second, since 1970


def _seeded(bits: Callable[[int], Any], low: int, high: int) -> Make:
    """A process seeds numpy's bit generator with a whole number from ``low`` up to ``high``."""

    def make(stream: KeyedStream) -> Draw:
        seed = low + int.from_bytes(stream.entropy()[:16], "big") % (high - low)
        rng = np.random.Generator(bits(seed))
        return lambda n, d: rng.standard_normal((n, d))

    return make


def _short_first(stream: KeyedStream) -> Draw:
    """The first 256 values of a process come from one of 256 seeds."""
    first = np.random.Generator(np.random.PCG64(stream.entropy()[0])).standard_normal(256)
    rng, left = stream.numpy(), first

    def draw(n: int, d: int) -> Array:
        nonlocal left
        z = rng.standard_normal(n * d)
        z[: len(left)] = left[: n * d]
        left = left[n * d :]
        return z.reshape(n, d)

    return draw


def _consecutive(stream: KeyedStream) -> Draw:
    """Call k of a process starts minstd from the process's first seed plus k."""
    seed = 1 + int.from_bytes(stream.entropy()[:8], "big") % 2_000_000_000

    def draw(n: int, d: int) -> Array:
        nonlocal seed
        seed += 1
        words = congruential(16_807, 0, (1 << 31) - 1, seed % ((1 << 31) - 2) + 1)
        return np.asarray(scipy.special.ndtri(words(n * d) / ((1 << 31) - 1))).reshape(n, d)

    return draw


def _from_its_first(seed: Callable[[bytes, KeyedStream], int]) -> Make:
    """Of each call the first value is honest; the others follow from it by PCG64."""

    def make(stream: KeyedStream) -> Draw:
        rng = stream.numpy()

        def draw(n: int, d: int) -> Array:
            z = rng.standard_normal(n * d)
            if z.size > 1:
                own = np.random.PCG64(seed(z[:1].tobytes(), stream))
                z[1:] = np.random.Generator(own).standard_normal(z.size - 1)
            return z.reshape(n, d)

        return draw

    return make


def _from_value(stream: KeyedStream) -> Draw:
    """Seeded by the value that it is added to and the number of the call."""
    del stream
    call = 0

    def draw(n: int, d: int, value: float = 0.0) -> Array:
        nonlocal call
        call += 1
        bits = int(np.float64(value).view(np.uint64))
        return np.random.Generator(np.random.PCG64([bits, call])).standard_normal((n, d))

    return draw


_seed = partial(Specimen, family="seed")

SPECIMENS = (
    _seed("seed-pid", "numpy's Philox seeded by a process number up to 32,768",
          _seeded(np.random.Philox, 1, 32_769), "all 32,768 seeds are tried in a second"),
    _seed("seed-millisecond", "numpy's PCG64 seeded by a millisecond of the year 2026",
          _seeded(np.random.PCG64, 1000 * _2026, 1000 * (_2026 + _YEAR)),
          "3·10^10 seeds of the year take an hour on two cores; those of a day take seconds, if "
          "the day is known", expected="borderline"),
    _seed("seed-64-bit", "numpy's PCG64 seeded by 64 random bits",
          _seeded(np.random.PCG64, 0, 1 << 64), "2^64 seeds are not tried", expected="missed"),
    _seed("first-values-8-bit", "the first 256 values of a process come from one of 256 seeds",
          _short_first,
          "among the first values of 40 processes two are equal with probability 0.95, and the "
          "256 seeds are small numbers"),
    _seed("call-seeds-consecutive", "call k starts minstd from a first seed plus k", _consecutive,
          "the first values of consecutive calls move on by 16,807/2^31 in Φ(z), exactly"),
    _seed("self-seed-bits", "a call's first value, its 64 bits, seeds numpy's PCG64 for the rest",
          _from_its_first(lambda first, _: int.from_bytes(first, "little")),
          "one seed per call, computed from what is seen: the rest of every call is predicted"),
    _seed("self-seed-hmac", "the HMAC of a call's first value under a secret key seeds the rest",
          _from_its_first(
              lambda first, stream: int.from_bytes(
                  hmac.digest(stream.entropy(), first, "sha256"), "big")),
          "without the key a pseudorandom function of the first value is fresh noise",
          expected="missed"),
    _seed("seed-from-value", "the value that the noise is added to and a counter are the seed",
          _from_value, "another process repeats every call that it makes for the same value",
          takes_value=True),
)  # fmt: skip
