"""``jax.random``'s keys and float32 normal noise, from their definition, without jax.

Threefry 2x32-20 (Salmon et al. 2011) as in jax's ``prng.py``: ``key(seed)``, ``fold_in``, and the
bits with ``jax_threefry_partitionable`` (the default since jax 0.5; ``split(key, n)[i]`` is then
``fold_in(key, i)``) and without. Keys are arrays (2, n). Not claimed: other implementations of
keys (``rbg``), other types than float32, or the last bits of XLA's ``erf_inv``
(within 0.77·2^-17 of the value, above 1, for all 2^23 numbers in jax 0.10.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.special

__all__ = ["Keys", "fold_in", "key", "normal", "random_bits", "threefry"]

Words = npt.NDArray[np.uint32]
Keys = Words

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_LEAST = float(np.nextafter(np.float32(-1), np.float32(0)))


def threefry(keys: Keys, first: npt.ArrayLike, second: npt.ArrayLike) -> Words:
    """Threefry 2x32-20 of counters (first, second) under ``keys`` (2, n), broadcast: (2, n)."""
    schedule = (*keys, keys[0] ^ keys[1] ^ np.uint32(0x1BD11BDA))
    x, y = np.asarray(first, np.uint32) + keys[0], np.asarray(second, np.uint32) + keys[1]
    for group in range(5):
        for left in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(left) | y >> np.uint32(32 - left)) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + (schedule[(group + 2) % 3] + np.uint32(group + 1))
    return np.stack([x, y])


def key(seeds: npt.ArrayLike) -> Keys:
    """``jax.random.key`` of whole numbers below 2^64 (n,); without x64 jax keeps 32 bits."""
    seeds = np.atleast_1d(np.asarray(seeds, np.uint64))
    return np.stack([seeds >> np.uint64(32), seeds]).astype(np.uint32)


def fold_in(keys: Keys, data: npt.ArrayLike) -> Keys:
    """``jax.random.fold_in`` of each key with whole numbers below 2^32."""
    return threefry(keys, 0, data)


def random_bits(keys: Keys, places: npt.ArrayLike, *, size: int, partitionable: bool) -> Words:
    """Words number ``places`` of ``jax.random.bits(key, (size,), "uint32")``, broadcast (n,)."""
    places = np.asarray(places, np.uint32)
    if partitionable:
        words = threefry(keys, 0, places)
        return np.asarray(words[0] ^ words[1])
    half = (size + 1) // 2
    low = places % np.uint32(half)
    last = low + np.uint32(half)
    words = threefry(keys, low, np.where(last < size, last, 0))  # an odd size is padded
    return np.asarray(np.where(places < half, words[0], words[1]))


def normal(bits: Words) -> npt.NDArray[np.float64]:
    """The values of ``jax.random.normal`` in float32 behind such words (n,)."""
    u = ((bits >> np.uint32(9)) * 2.0**-22 + _LEAST).astype(np.float32)
    return np.asarray(np.sqrt(2) * scipy.special.erfinv(np.maximum(u, _LEAST).astype(np.float64)))
