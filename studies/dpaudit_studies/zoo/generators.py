"""Real failures of real generators, with a correct law on top."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import scipy

from dpaudit.numeric.generators import Words, congruential, xorshift32
from dpaudit_studies.zoo.specimen import Array, Make, Series, Specimen, carried, flat
from dpaudit_studies.zoo.transforms import Uniforms, dealt, inverse, noise, polar, top

__all__ = ["SPECIMENS"]


def _congruential(
    multiplier: int, increment: int, bits: int, *, top_bits: int, odd: bool = False
) -> Make:
    """Φ⁻¹ of the ``top_bits`` leading bits of each state."""

    def begin(rng: np.random.Generator) -> Words:
        return congruential(multiplier, increment, 1 << bits, int(rng.integers(1 << bits)) | odd)

    return noise(begin, lambda words: inverse(top(words, top_bits, bits)))


def _randu_box_muller(rng: np.random.Generator) -> Series:
    words = congruential(65_539, 0, 1 << 31, int(rng.integers(1 << 31)) | 1)

    def following(m: int) -> Array:
        u = (words(m + m % 2) * 2.0**-31).reshape(-1, 2)
        radius, angle = np.sqrt(-2 * np.log(u[:, 0])), 2 * math.pi * u[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()[:m]

    return following


def _middle_square() -> Make:
    """Von Neumann's, eight decimal digits; it soon runs into a short cycle."""

    def begin(rng: np.random.Generator) -> tuple[Array, int, int]:
        order: dict[int, int] = {}
        state = int(rng.integers(10**7, 10**8))
        while state not in order:
            order[state] = len(order)
            state = state * state // 10**4 % 10**8
        return scipy.special.ndtri((np.array(list(order)) + 0.5) / 1e8), order[state], 0

    def step(_: np.random.Generator, kept: tuple[Array, int, int], m: int) -> tuple[Array, Any]:
        path, loop, at = kept
        places = np.arange(at, at + m)
        again = loop + (places - loop) % (len(path) - loop)
        return path[np.where(places < len(path), places, again)], (path, loop, at + m)

    return carried(begin, step)


def _wallace(pool_size: int) -> Make:
    """Wallace's (1996): a pool of normals, mixed by fours, its sum of squares renewed per pass."""
    mix = 0.5 * np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])

    def begin(rng: np.random.Generator) -> Series:
        pool = rng.standard_normal(pool_size)

        def chunk() -> Array:
            nonlocal pool
            # a stride and an offset stand for the permutation, as in the original
            offset = int(rng.integers(pool_size))
            stride = 2 * int(rng.integers(pool_size // 2)) + 1
            order = (offset + stride * np.arange(pool_size)) % pool_size
            pool = (mix @ pool[order].reshape(4, -1)).ravel()
            return np.asarray(pool * math.sqrt(rng.chisquare(pool_size) / float(pool @ pool)))

        return dealt(chunk)

    return flat(begin)


def _fifteen(words: Words) -> Uniforms:
    """The example of ANSI C: 15 bits per call, at the middle of their cells."""
    return lambda m: np.asarray(
        (((words(m) >> np.uint64(16)) & np.uint64(32_767)) + 0.5) * 2.0**-15, np.float64
    )


_generator = partial(Specimen, family="generator")

_31_BITS = (
    "uniforms of 31 bits that never repeat: only planes in three dimensions, or the grid of Φ(z), "
    "give it away"
)

SPECIMENS = (
    _generator("randu", "Φ⁻¹ of RANDU", _congruential(65_539, 0, 31, top_bits=31, odd=True),
               expected="borderline", why=_31_BITS),
    _generator("randu-box-muller", "Box-Muller from RANDU", flat(_randu_box_muller),
               expected="borderline", why=_31_BITS),
    _generator("lcg-period-2-20", "Φ⁻¹ of a congruential generator of period 2^20",
               _congruential(1_664_525, 1_013_904_223, 20, top_bits=20)),
    _generator("lcg-32", "Φ⁻¹ of a 32-bit congruential generator (Numerical Recipes)",
               _congruential(1_664_525, 1_013_904_223, 32, top_bits=32), expected="borderline",
               why="uniforms of 32 bits that never repeat: only the grid of Φ(z), or a lattice "
                   "test, gives it away"),
    _generator("c-rand-polar", "polar method from ANSI C's rand(), 15 bits",
               noise(lambda rng: congruential(1_103_515_245, 12_345, 1 << 31,
                                              int(rng.integers(1 << 31))),
                     lambda words: polar(_fifteen(words)))),
    _generator("middle-square", "Φ⁻¹ of von Neumann's middle squares", _middle_square()),
    _generator("xorshift32", "Φ⁻¹ of xorshift32",
               noise(lambda rng: xorshift32(np.array([rng.integers(1, 1 << 32)], np.uint64)),
                     lambda words: inverse(top(words, 32, 32))), expected="borderline",
               why="32-bit states that never repeat: only the grid of Φ(z), or linear algebra on "
                   "bits, gives it away"),
    _generator("wallace-1024", "Wallace's method with a pool of 1,024", _wallace(1024),
               expected="borderline",
               why="fourth-order dependence between passes over the pool; values, pairs and norms "
                   "are right"),
)  # fmt: skip
