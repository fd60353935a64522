"""Hash functions whose every value is as good as independent of all others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.local.hash_family import check_family, check_function, check_functions, refuse
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import inline, jit, mix, seed_words

__all__ = ["RandomHashes"]

_U = np.uint64


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
def _random_positions(out, objects, seed, function, size):  # type: ignore[no-untyped-def]
    key, second = _keys(seed, function)
    every = np.int64(0)
    for i in range(objects.size):
        every |= objects[i]
        out[i] = _random(objects[i], key, second, size)
    return every >= 0


@jit
def _random_each(out, objects, functions, seed, size):  # type: ignore[no-untyped-def]
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
        self.count, self.size = check_family(count, size)
        self._seed = seed_words(stream)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RandomHashes)
            and (self.count, self.size) == (other.count, other.size)
            and bool((self._seed == other._seed).all())
        )

    def __hash__(self) -> int:
        return hash((self.count, self.size, self._seed.tobytes()))

    def positions(self, objects: npt.NDArray[np.int64], function: int) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.positions`; objects are any whole numbers from 0."""
        check_function(function, self.count)
        out = np.empty(objects.shape, np.uint32)
        if not _random_positions(out, objects, self._seed, function, _U(self.size)):
            refuse(objects, 1 << 63)
        return out

    def each(
        self, objects: npt.NDArray[np.int64], functions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.each`; objects are any whole numbers from 0."""
        check_functions(functions, objects, self.count)
        out = np.empty(objects.shape, np.uint32)
        if not _random_each(out, objects, functions, self._seed, _U(self.size)):
            refuse(objects, 1 << 63)
        return out
