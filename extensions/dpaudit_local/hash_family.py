"""What a family of hash functions is, what all families refuse, and two families.

``RandomHashes``: every value is as good as independent of all others. ``ThreeWiseHashes``:
quadratic polynomials over the field of 2^61 − 1.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import inline, jit, mix, seed_words
from dpaudit_local.inputs import whole_number

__all__ = [
    "HashFamily",
    "RandomHashes",
    "ThreeWiseHashes",
    "check_family",
    "check_function",
    "check_functions",
    "refuse",
]


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


_LOW = _U(0xFFFFFFFF)
_EXPONENT = 61


@inline
def _affine(a, x, b, exponent, spill, prime):  # type: ignore[no-untyped-def]
    """(a·x + b) mod 2^exponent − 1, a and b below it, x < 2^32; ``spill`` is exponent − 32 or 0."""
    high, low = (a >> _U(32)) * x, (a & _LOW) * x
    total = (((high << _U(32)) & prime) + (high >> spill)) + ((low & prime) + (low >> exponent)) + b
    total = (total & prime) + (total >> exponent)
    return total - prime if total >= prime else total


@inline
def _scaled(value, size, exponent):  # type: ignore[no-untyped-def]
    """⌊value·size / 2^exponent⌋ without a 128-bit product: value < 2^exponent, size ≤ 2^32."""
    high, low = (value >> _U(32)) * size, (value & _LOW) * size
    if exponent < 32:
        return np.uint32(low >> exponent)
    return np.uint32((high + (low >> _U(32))) >> (exponent - _U(32)))


@jit
def _polynomial_positions(out, objects, coefficients, size, exponent):  # type: ignore[no-untyped-def]
    prime = (_U(1) << exponent) - _U(1)
    spill = exponent - _U(32) if exponent > 32 else _U(0)
    c2, c1, c0 = coefficients[0], coefficients[1], coefficients[2]
    every = np.int64(0)
    for i in range(objects.size):
        every |= objects[i]
        x = _U(objects[i]) & _LOW
        value = _affine(_affine(c2, x, c1, exponent, spill, prime), x, c0, exponent, spill, prime)
        out[i] = _scaled(value, size, exponent)
    return (every >> 32) == 0


@jit
def _polynomial_each(out, objects, functions, coefficients, size, exponent):  # type: ignore[no-untyped-def]
    prime = (_U(1) << exponent) - _U(1)
    spill = exponent - _U(32) if exponent > 32 else _U(0)
    every = np.int64(0)
    for i in range(objects.size):
        every |= objects[i]
        x = _U(objects[i]) & _LOW
        c = coefficients[functions[i]]
        value = _affine(
            _affine(c[0], x, c[1], exponent, spill, prime), x, c[2], exponent, spill, prime
        )
        out[i] = _scaled(value, size, exponent)
    return (every >> 32) == 0


class ThreeWiseHashes:
    """Quadratic polynomials over F_p, p = 2^61 − 1, uniform; position ⌊value·m / 2^61⌋.

    Formal guarantee (Wegman and Carter 1981; each three values of a uniform polynomial of degree ≤
    2 are uniform on F_p³, as three points determine it): the positions of any three different
    objects are exactly independent, over the choice of one function, and each position has ⌊2^61/m⌋
    or ⌈2^61/m⌉ values of the field, the last one fewer, so its probability is less than 2/p ≈
    8.7e-19 off 1/m. Coefficients are uniform but for the stream's law, functions independent of
    each other. Not claimed: four-wise independence (a fourth value follows from three, up to the
    reduction).
    """

    def __init__(self, count: int, size: int, *, stream: Stream) -> None:
        """``count`` functions to ``size`` positions, coefficients from ``stream``.

        They are drawn from ``stream.child("coefficients").bytes``.

        Raises:
            UsageError: ``count`` is not in 1 … 2^32 or ``size`` is not in 2 … 2^32.
        """
        self.count, self.size = check_family(count, size)
        self._coefficients = _uniform_field(3 * self.count, stream.child("coefficients")).reshape(
            -1, 3
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ThreeWiseHashes)
            and self.size == other.size
            and np.array_equal(self._coefficients, other._coefficients)
        )

    def __hash__(self) -> int:
        return hash((self.count, self.size, self._coefficients[:1].tobytes()))

    def positions(self, objects: npt.NDArray[np.int64], function: int) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.positions`; objects are whole numbers from 0 to 2^32 − 1."""
        check_function(function, self.count)
        out = np.empty(objects.shape, np.uint32)
        if not _polynomial_positions(
            out, objects, self._coefficients[function], _U(self.size), _U(_EXPONENT)
        ):
            refuse(objects, 1 << 32)
        return out

    def each(
        self, objects: npt.NDArray[np.int64], functions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """See :meth:`HashFamily.each`; objects are whole numbers from 0 to 2^32 − 1."""
        check_functions(functions, objects, self.count)
        out = np.empty(objects.shape, np.uint32)
        if not _polynomial_each(
            out, objects, functions, self._coefficients, _U(self.size), _U(_EXPONENT)
        ):
            refuse(objects, 1 << 32)
        return out


def _uniform_field(n: int, stream: Stream) -> npt.NDArray[np.uint64]:
    """``n`` elements of F_(2^61 − 1), exactly uniform given uniform bytes: 61 bits, no all ones."""
    kept = np.empty(0, np.uint64)
    while kept.size < n:
        words = np.frombuffer(stream.bytes(8 * (n - kept.size)), dtype="<u8") >> _U(64 - _EXPONENT)
        kept = np.concatenate([kept, words[words != _U((1 << _EXPONENT) - 1)]])
    return kept


@runtime_checkable
class HashFamily(Protocol):
    """``count`` functions from objects (integers from 0) to positions 0 … ``size`` − 1.

    Equal families compare equal.
    """

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


def check_family(count: int, size: int) -> tuple[int, int]:
    """Both as ints; refuses (``UsageError``) families of no or too many functions or positions."""
    return (
        whole_number("count", count, 1, 1 << 32, hint=": so many hash functions"),
        whole_number("size", size, 2, 1 << 32, hint=": so many positions has a sketch"),
    )


def check_function(function: int, count: int) -> None:
    """Refuse (``UsageError``) a function that a family of ``count`` does not have."""
    if not 0 <= function < count:
        raise UsageError(f"function={function}: the family's functions are 0 … {count - 1}")


def check_functions(functions: npt.NDArray[Any], objects: npt.NDArray[Any], count: int) -> None:
    """Refuse (``UsageError``) functions (n,) that do not fit the objects or the ``count``."""
    if functions.shape != objects.shape:
        raise UsageError(
            f"functions={functions.shape}: one function per object, and there are {objects.shape}"
        )
    if functions.size and not 0 <= functions.min() <= functions.max() < count:
        raise UsageError(
            f"functions={functions.min()} … {functions.max()}: the family's are 0 … {count - 1}"
        )


def refuse(objects: npt.NDArray[np.int64], limit: int) -> NoReturn:
    """Raise the ``UsageError`` for objects of which one is not in 0 … ``limit`` − 1."""
    raise UsageError(
        f"objects={objects.min()} … {objects.max()}: "
        f"objects are whole numbers from 0 to {limit - 1}"
    )
