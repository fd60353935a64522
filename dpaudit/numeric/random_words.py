"""Compiled statistical random words: SFC64 from a 192-bit seed and two counters, and a mixer.

Every record (or block) has its own generator, so results depend neither on threads nor on how work
is split. Not claimed: cryptographic unpredictability; someone who sees enough raw words can
predict the next.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Stream

__all__ = [
    "below",
    "inline",
    "jit",
    "mix",
    "next_word",
    "seed_words",
    "start",
]

_U = np.uint64

jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)

inline: Any = numba.njit(inline="always")


@inline
def next_word(a, b, c, n):  # type: ignore[no-untyped-def]
    """One step of SFC64 (Doty-Humphrey, PractRand): new state and 64 bits."""
    word = a + b + n
    return (
        b ^ (b >> _U(11)),
        c + (c << _U(3)),
        ((c << _U(24)) | (c >> _U(40))) + word,
        n + _U(1),
        word,
    )


@inline
def mix(x):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser (Steele, Lea and Flood 2014; Stafford's mix 13): a bijection."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@jit
def start(seed, row, block):  # type: ignore[no-untyped-def]
    """The generator of one block of one row, after 18 steps; its state differs by (row, block)."""
    a = seed[0] + mix(_U(row) + _U(0x9E3779B97F4A7C15))
    b = seed[1] ^ mix(_U(block) + _U(0xD1B54A32D192ED03))
    c, n = seed[2], _U(1)
    for _ in range(18):
        a, b, c, n, _w = next_word(a, b, c, n)
    return a, b, c, n


@inline
def below(bound, a, b, c, n):  # type: ignore[no-untyped-def]
    """A uniform whole number of 0 … bound − 1, ``bound`` at most 2^32: state and number.

    Lemire 2019 (arXiv 1805.10941): the upper half of a 32-bit word times ``bound``, some 2^32 mod
    bound words refused.
    """
    least = (_U(1) << _U(32)) % bound
    while True:
        a, b, c, n, word = next_word(a, b, c, n)
        product = (word >> _U(32)) * bound
        if (product & _U(0xFFFFFFFF)) >= least:
            return a, b, c, n, product >> _U(32)


def seed_words(stream: Stream) -> npt.NDArray[np.uint64]:
    """192 bits of ``stream`` as three words."""
    return np.frombuffer(stream.entropy(), dtype="<u8", count=3)
