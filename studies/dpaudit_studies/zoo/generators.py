"""Real failures of real generators, with a correct law on top."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.randomness import KeyedStream
from dpaudit.vectors.generators import congruential, xorshift32
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Series, Specimen, flat

__all__ = ["SPECIMENS"]


def _uniform_to_normal(words: npt.NDArray[np.generic], bits: int) -> Array:
    return np.asarray(scipy.special.ndtri((words.astype(np.float64) + 0.5) * 2.0**-bits))


def _congruential(
    multiplier: int, increment: int, bits: int, *, top: int, odd: bool = False
) -> Make:
    """Φ⁻¹ of the ``top`` leading bits of each state."""

    def begin(rng: np.random.Generator) -> Series:
        state = int(rng.integers(1 << bits)) | odd
        words = congruential(multiplier, increment, 1 << bits, state)
        return lambda m: _uniform_to_normal(words(m) >> np.uint64(bits - top), top)

    return flat(begin)


def _randu_box_muller(rng: np.random.Generator) -> Series:
    words = congruential(65_539, 0, 1 << 31, int(rng.integers(1 << 31)) | 1)

    def following(m: int) -> Array:
        u = (words(m + m % 2) * 2.0**-31).reshape(-1, 2)
        radius, angle = np.sqrt(-2 * np.log(u[:, 0])), 2 * math.pi * u[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()[:m]

    return following


def _middle_square(rng: np.random.Generator) -> Series:
    """Von Neumann's, eight decimal digits; it soon runs into a short cycle."""
    seen: dict[int, int] = {}
    state = int(rng.integers(10**7, 10**8))
    while state not in seen:
        seen[state] = len(seen)
        state = state * state // 10**4 % 10**8
    path = scipy.special.ndtri((np.array(list(seen)) + 0.5) / 1e8)
    loop, at = seen[state], 0

    def following(m: int) -> Array:
        nonlocal at
        index = np.arange(at, at + m)
        at += m
        return np.asarray(
            path[np.where(index < len(path), index, loop + (index - loop) % (len(path) - loop))]
        )

    return following


def _xorshift(rng: np.random.Generator) -> Series:
    words = xorshift32(np.array([rng.integers(1, 1 << 32)], np.uint64))
    return lambda m: _uniform_to_normal(words(m), 32)


def _wallace(pool_size: int) -> Make:
    """Wallace's (1996): a pool of normals, mixed by fours, its sum of squares renewed per pass."""
    mix = 0.5 * np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])

    def begin(rng: np.random.Generator) -> Series:
        pool = rng.standard_normal(pool_size)
        ready = np.empty(0)

        def following(m: int) -> Array:
            nonlocal pool, ready
            passes = [ready]
            have = len(ready)
            while have < m:
                # a stride and an offset stand for the permutation, as in the original
                offset = int(rng.integers(pool_size))
                stride = 2 * int(rng.integers(pool_size // 2)) + 1
                order = (offset + stride * np.arange(pool_size)) % pool_size
                pool = (mix @ pool[order].reshape(4, -1)).ravel()
                scale = math.sqrt(rng.chisquare(pool_size) / float(pool @ pool))
                passes.append(pool * scale)
                have += pool_size
            values = np.concatenate(passes)
            ready = values[m:]
            return values[:m]

        return following

    return flat(begin)


def _c_rand(stream: KeyedStream) -> Draw:
    """The example of ANSI C, 15 bits per call, through the polar method.

    u, v in (-1, 1), rejected outside the circle.
    """
    words = congruential(1_103_515_245, 12_345, 1 << 31, int(stream.numpy().integers(1 << 31)))
    ready = np.empty(0)

    def draw(n: int, d: int) -> Array:
        nonlocal ready
        parts, have = [ready], len(ready)
        while have < n * d:
            u = (
                ((words(2 * n * d + 64) >> np.uint64(16)) & np.uint64(32_767)) / 16_384.0
                - 1
                + 2.0**-15
            )
            pairs = u.reshape(-1, 2)
            square = (pairs * pairs).sum(1)
            kept = square < 1
            pairs, square = pairs[kept], square[kept]
            parts.append((pairs * np.sqrt(-2 * np.log(square) / square)[:, None]).ravel())
            have += len(parts[-1])
        values = np.concatenate(parts)
        ready = values[n * d :]
        return values[: n * d].reshape(n, d)

    return draw


def _generator(name: str, says: str, make: Make, **rest: str) -> Specimen:
    return Specimen(name, "generator", says, make, **rest)  # type: ignore[arg-type]


_31_BITS = (
    "uniforms of 31 bits that never repeat: only planes in three dimensions, or the grid of Φ(z), "
    "give it away"
)

SPECIMENS = (
    _generator("randu", "Φ⁻¹ of RANDU", _congruential(65_539, 0, 31, top=31, odd=True),
               expected="borderline",
               why=_31_BITS),
    _generator("randu-box-muller", "Box-Muller from RANDU", flat(_randu_box_muller),
               expected="borderline",
               why=_31_BITS),
    _generator("lcg-period-2-20", "Φ⁻¹ of a congruential generator of period 2^20",
               _congruential(1_664_525, 1_013_904_223, 20, top=20)),
    _generator("lcg-32", "Φ⁻¹ of a 32-bit congruential generator (Numerical Recipes)",
               _congruential(1_664_525, 1_013_904_223, 32, top=32), expected="borderline",
               why="uniforms of 32 bits that never repeat: only the grid of Φ(z), or a lattice "
                   "test, gives it away"),
    _generator("c-rand-polar", "polar method from ANSI C's rand(), 15 bits", _c_rand),
    _generator("middle-square", "Φ⁻¹ of von Neumann's middle squares", flat(_middle_square)),
    _generator("xorshift32", "Φ⁻¹ of xorshift32", flat(_xorshift), expected="borderline",
               why="32-bit states that never repeat: only the grid of Φ(z), or linear algebra on "
                   "bits, gives it away"),
    _generator("wallace-1024", "Wallace's method with a pool of 1,024", _wallace(1024),
               expected="borderline",
               why="fourth-order dependence between passes over the pool; values, pairs and norms "
                   "are right"),
)  # fmt: skip
