"""The hash functions of sketches: the position that each function gives an object.

A family is public: it hides nothing, and no mechanism's ε rests on it. It must give utility
(few chance collisions), and no regularity that real families lack and an attack could use.
"""

from __future__ import annotations

from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.numeric.random_words import inline, jit, mix, seed_words
from dpaudit.protocols import Stream
from dpaudit_local.mechanisms.reports import whole_number

__all__ = ["HashFamily", "RandomHashes"]

_U = np.uint64


@runtime_checkable
class HashFamily(Protocol):
    """``count`` functions from objects (integers from 0) to positions 0 … ``size`` − 1."""

    @property
    def count(self) -> int:
        """The number of functions."""

    @property
    def size(self) -> int:
        """The number of positions, m."""

    def positions(self, objects: npt.NDArray[np.int64], function: int) -> npt.NDArray[np.uint32]:
        """Positions (n,) of ``objects`` (n,) under one function.

        Raises:
            UsageError: an object or the function is outside the family's range.
        """

    def each(
        self, objects: npt.NDArray[np.int64], functions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """Positions (n,) of ``objects`` (n,), each under its own of ``functions`` (n,).

        The same as :meth:`positions`.

        Raises:
            UsageError: an object or a function is outside the family's range.
        """


@inline
def _keys(seed, function):  # type: ignore[no-untyped-def]
    """Two words for one function."""
    word = mix(seed[0] + _U(function) * _U(0x9E3779B97F4A7C15))
    return word + seed[1], mix(word ^ seed[2])


@inline
def _random(x, key, second, size):  # type: ignore[no-untyped-def]
    word = mix(mix(_U(x) * _U(0x9E3779B97F4A7C15) + key) ^ second)
    return np.uint32(((word >> _U(32)) * size) >> _U(32))


@jit
def _positions(out, objects, seed, function, size):  # type: ignore[no-untyped-def]
    key, second = _keys(seed, function)
    every = np.int64(0)
    for i in range(objects.size):
        every |= objects[i]
        out[i] = _random(objects[i], key, second, size)
    return every >= 0


@jit
def _each(out, objects, functions, seed, size):  # type: ignore[no-untyped-def]
    every = np.int64(0)
    for i in range(objects.size):
        every |= objects[i]
        key, second = _keys(seed, functions[i])
        out[i] = _random(objects[i], key, second, size)
    return every >= 0


class RandomHashes:
    """Hash values as good as independent: the "fully random" family of Gadotti et al.

    A 64-bit mixer (SplitMix64's, four rounds) over 192 bits of the stream, the function and the
    object; the upper 32 bits of the word times m, its upper half, is the position. So each
    position's probability is within 2^-32 of 1/m, and exactly 1/m where m is a power of two. Not
    claimed: anything but statistical quality (in particular no defence against someone who chooses
    objects to collide).

    >>> from dpaudit.randomness import KeyedStream
    >>> family = RandomHashes(65536, 1024, stream=KeyedStream.from_seed(1))
    >>> objects = np.arange(3)
    >>> bool((family.positions(objects, 7) == family.each(objects, np.full(3, 7, np.uint32))).all())
    True
    """

    def __init__(self, count: int, size: int, *, stream: Stream) -> None:
        """``count`` functions to ``size`` positions, fixed by ``stream``.

        Raises:
            UsageError: ``count`` is not in 1 … 2^32 or ``size`` is not in 2 … 2^32.
        """
        self.count = whole_number("count", count, 1, 1 << 32, hint=" of hash functions")
        self.size = whole_number("size", size, 2, 1 << 32, hint=" of positions")
        self._seed = seed_words(stream)

    def positions(self, objects: npt.NDArray[np.int64], function: int) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.positions`; objects are any whole numbers from 0."""
        if not 0 <= function < self.count:
            last = self.count - 1
            raise UsageError(f"function={function}: must lie in 0 … {last}")
        out = np.empty(objects.shape, np.uint32)
        if not _positions(out, objects, self._seed, function, _U(self.size)):
            _refuse(objects)
        return out

    def each(
        self, objects: npt.NDArray[np.int64], functions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.each`; objects are any whole numbers from 0."""
        if functions.shape != objects.shape:
            raise UsageError(
                f"functions={functions.shape}: one function per object, "
                f"and there are {objects.shape}"
            )
        if functions.size and not 0 <= functions.min() <= functions.max() < self.count:
            raise UsageError(
                f"functions={functions.min()} … {functions.max()}: must lie in 0 … {self.count - 1}"
            )
        out = np.empty(objects.shape, np.uint32)
        if not _each(out, objects, functions, self._seed, _U(self.size)):
            _refuse(objects)
        return out


def _refuse(objects: npt.NDArray[np.int64]) -> NoReturn:
    raise UsageError(
        f"objects={objects.min()} … {objects.max()}: "
        f"must be whole numbers from 0 to {(1 << 63) - 1}"
    )
