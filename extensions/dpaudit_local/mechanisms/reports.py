"""Objects that devices take, and reports that they submit.

Reports of one mechanism are arrays of equal length, one row per report. The checks of objects,
whole numbers and ε are those of all mechanisms.
"""

from __future__ import annotations

import dataclasses
import numbers
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError

__all__ = [
    "BitReports",
    "BloomReports",
    "CategoryReports",
    "HadamardReports",
    "Reports",
    "SketchReports",
    "check_indices",
    "check_objects",
    "privacy_number",
    "whole_number",
]


@dataclass(frozen=True, slots=True)
class Reports:
    """Arrays whose first axis is the report; ``reports[rows]`` takes a slice, mask or indices."""

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(*(getattr(self, f.name)[rows] for f in dataclasses.fields(self)))


@dataclass(frozen=True, slots=True)
class SketchReports(Reports):
    """Of a Count Mean (or Median) Sketch: which hash function, and m bits."""

    function: npt.NDArray[np.uint32]
    """Shape (n,)."""
    bits: npt.NDArray[np.uint8]
    """Shape (n, m / 8), bit i in byte i // 8 at 1 << i % 8."""


@dataclass(frozen=True, slots=True)
class HadamardReports(Reports):
    """Of a Hadamard Count Mean Sketch: hash function, row of the Hadamard matrix, and sign ±1."""

    function: npt.NDArray[np.uint32]
    coordinate: npt.NDArray[np.uint32]
    sign: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class CategoryReports(Reports):
    """Of (k-ary) randomised response: a category from 0."""

    category: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BitReports(Reports):
    """Of a one-bit histogram: a position and the value ±1 there."""

    position: npt.NDArray[np.uint32]
    sign: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class BloomReports(Reports):
    """Of RAPPOR: the device's cohort and m noisy Bloom filter bits, packed as a sketch's."""

    cohort: npt.NDArray[np.uint32]
    bits: npt.NDArray[np.uint8]


def check_objects(
    objects: Any, universe: int, *, name: str = "objects"
) -> npt.NDArray[np.integer[Any]]:
    """``objects`` (n,) as they are, whole numbers 0 … ``universe`` − 1 of any integer type.

    Raises:
        UsageError: no one-dimensional array of integers, or a value outside.

    >>> check_objects([0, 2], 3).tolist()
    [0, 2]
    """
    array = np.asarray(objects)
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"{name} of shape {array.shape} and type {array.dtype}: one axis of whole numbers; "
            "number the objects from 0"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= universe:
        raise UsageError(
            f"{name}={low if low < 0 else high}: must lie in 0 … {universe - 1}; "
            "drop rows without a number"
        )
    return array


def check_indices(name: str, values: npt.NDArray[Any], n: int, limit: int) -> None:
    """Refuse (``UsageError``) ``values`` that are not ``n`` whole numbers in 0 … ``limit`` − 1."""
    if values.shape != (n,) or values.dtype.kind not in "iu":
        raise UsageError(
            f"{name}={values.shape} {values.dtype}: needs a whole number for each report"
        )
    if len(values) and not 0 <= values.min() <= values.max() < limit:
        raise UsageError(f"{name}={values.min()} … {values.max()}: must lie in 0 … {limit - 1}")


def whole_number(
    name: str, value: Any, least: int, most: int | None = None, *, hint: str = ""
) -> int:
    """``value`` as an int, a whole number (of Python or numpy) from ``least`` to ``most``.

    Raises:
        UsageError: another value; the message ends with ``hint``.

    >>> whole_number("bits", np.int64(8), 1)
    8
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not least <= value <= (value if most is None else most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name}={value}: must be a whole number {limits}{hint}")
    return int(value)


def privacy_number(name: str, value: Any, largest: float) -> float:
    """``value`` as a float, an ε or a parameter like it, above 0 and at most ``largest``.

    Raises:
        UsageError: another value.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real)
        or not 0 < float(value) <= largest
    ):
        raise UsageError(
            f"{name}={value}: must be a number above 0 and at most {largest:g}; "
            "use identity for no privacy"
        )
    return float(value)
