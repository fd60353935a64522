"""Three-wise independent hash functions: quadratic polynomials over the field of 2^61 − 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.local.hash_family import check_family, check_function, check_functions, refuse
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import inline, jit

__all__ = ["ThreeWiseHashes"]

_U = np.uint64
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
