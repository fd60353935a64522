"""The digits that values have: of a double, of a float32 number, or of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["Precision", "nonzero", "significand_bits"]

_SIGNIFICAND = np.uint64((1 << 52) - 1)
_SMALLEST = 1e-290  # far from subnormal numbers
_SLACK = 2.0**-50  # relative; a product in double is within 2^-52

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Precision:
    """How many digits values have: ``bits`` significant ones, none below ``step``.

    ``factor``: what the digits were multiplied by in double, the claim's scale for noise made in
    single precision, else 1.
    """

    bits: int
    step: float
    factor: float = 1.0

    @classmethod
    def of(cls, x: Array, scale: float) -> Self:
        """The fewest digits that hold all of ``x``, of shape (n,).

        A sampler of this precision may show fewer digits in few values, never more.
        """
        x = nonzero(x)
        bits, step = _digits(x)
        if bits > 24:
            ratio = x / scale
            with np.errstate(over="ignore"):  # beyond float32: not near
                near = ratio.astype(np.float32).astype(np.float64)
            if len(x) and bool((np.abs(near - ratio) <= _SLACK * np.abs(ratio)).all()):
                bits, step = _digits(near)
                return cls(bits, step * scale, scale)
        return cls(bits, step)

    def unit(self, x: Array) -> Array:
        """Weight of the last digit of each value."""
        _, exponent = np.frexp(np.abs(x))
        return np.asarray(np.maximum(np.ldexp(1.0, exponent - self.bits), self.step))

    def largest_unit(self, x: Array | float) -> Array:
        """The largest that :meth:`unit` can be at or near ``x``, where the binades may differ."""
        return np.asarray(np.maximum(np.abs(x) * 2.0 ** (1 - self.bits), self.step))

    def last_digits(self, x: Array) -> npt.NDArray[np.uint8]:
        """The last eight digits of each |value|."""
        x = np.abs(x)
        if self.factor != 1.0:
            x = (x / self.factor).astype(np.float32).astype(np.float64)
        _, exponent = np.frexp(x)
        with np.errstate(over="ignore"):
            unit = np.maximum(np.ldexp(1.0, exponent - self.bits), self.step / self.factor)
            whole = np.minimum(x / unit, 2.0**53).astype(np.int64)
        return np.asarray(whole & 0xFF).astype(np.uint8)


def nonzero(x: Array) -> Array:
    """Those of ``x`` that are not 0, nor so small that digits are lost."""
    return np.asarray(x[np.abs(x) > _SMALLEST])


def significand_bits(x: Array) -> int:
    """The longest significand that any value needs: 53 digits (double), 24 (float32), 11 (half)."""
    digits = int(np.bitwise_or.reduce(np.ascontiguousarray(x).view(np.uint64) & _SIGNIFICAND))
    return 54 - (digits & -digits).bit_length() if digits else 1


def _digits(x: Array) -> tuple[int, float]:
    if not len(x):
        return 53, 0.0
    significand = (np.ascontiguousarray(x).view(np.uint64) & _SIGNIFICAND) | np.uint64(1 << 52)
    lowest = significand & (~significand + np.uint64(1))
    _, exponent = np.frexp(np.abs(x))
    step = float(np.ldexp(lowest.astype(np.float64), exponent - 53).min())
    return significand_bits(x), step
