"""From a generator's words to noise: uniforms of so many bits, and what makes normals of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.numeric.generators import XOR, Words, lagged
from dpaudit_studies.zoo.specimen import Array, Make, Series, flat

__all__ = [
    "CHUNK",
    "Begin",
    "Uniforms",
    "box_muller",
    "box_muller_of",
    "dealt",
    "fifty_three",
    "inverse",
    "noise",
    "polar",
    "prbs31",
    "top",
]

Uniforms = Callable[[int], Array]
"""The next m uniforms in [0, 1), m a multiple of 64."""
Begin = Callable[[np.random.Generator], Words]
"""Starts a generator from a state that the operating system would draw."""
CHUNK = 1 << 16


def dealt(chunk: Callable[[], Array]) -> Series:
    """One endless series out of chunks of any length."""
    ready, at = np.empty(0), 0

    def following(m: int) -> Array:
        nonlocal ready, at
        parts, have = [ready[at : at + m]], min(m, len(ready) - at)
        at += have
        while have < m:
            ready = chunk()
            at = min(m - have, len(ready))
            parts.append(ready[:at])
            have += at
        return np.concatenate(parts)

    return following


def noise(begin: Begin, transform: Callable[[Words], Callable[[], Array]]) -> Make:
    """A sampler that deals out what ``transform`` makes of a generator's words."""
    return flat(lambda rng: dealt(transform(begin(rng))))


def top(words: Words, bits: int, of: int) -> Uniforms:
    """Uniforms of the leading ``bits`` of words of ``of`` bits, at the middle of their cells."""
    return lambda m: ((words(m) >> np.uint64(of - bits)).astype(np.float64) + 0.5) * 2.0**-bits


def fifty_three(words: Words, *, of: int = 32, upper: int = 27) -> Uniforms:
    """Uniforms of 53 bits from two words of ``of`` bits each, the first for the ``upper`` ones."""

    def uniforms(m: int) -> Array:
        pairs, lower = words(2 * m).reshape(-1, 2), 53 - upper
        high, low = pairs[:, 0] >> np.uint64(of - upper), pairs[:, 1] >> np.uint64(of - lower)
        return np.asarray((high * 2.0**lower + low) * 2.0**-53)

    return uniforms


def inverse(uniforms: Uniforms) -> Callable[[], Array]:
    """Φ⁻¹ of uniforms that are never 0."""
    return lambda: np.asarray(scipy.special.ndtri(uniforms(CHUNK)))


def box_muller_of(
    u: npt.NDArray[np.floating[Any]], turned: npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.floating[Any]]:
    """Cosine and sine as two columns, in the type of ``u``; the radius is that of 1 - u."""
    radius, angle = np.sqrt(-2 * np.log1p(-u)), 2 * math.pi * turned
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def box_muller(uniforms: Uniforms) -> Callable[[], Array]:
    """Both outputs, the cosine first; the radius from the first uniform as 1 - u."""
    return lambda: np.asarray(box_muller_of(*uniforms(CHUNK).reshape(-1, 2).T).ravel(), np.float64)


def prbs31(rng: np.random.Generator) -> Words:
    """Bits of a shift register of 31 bits."""
    state = int(rng.integers(1, 1 << 31))
    return lagged(np.array([state >> i & 1 for i in range(31)], np.uint64), 28, XOR, 1)


def polar(uniforms: Uniforms) -> Callable[[], Array]:
    """Marsaglia and Bray's (1964), both outputs in their order."""

    def chunk() -> Array:
        v = (2 * uniforms(CHUNK) - 1).reshape(-1, 2)
        square = (v * v).sum(1)
        inside = (square < 1) & (square > 0)
        v, square = v[inside], square[inside]
        return np.asarray((v * np.sqrt(-2 * np.log(square) / square)[:, None]).ravel())

    return chunk
