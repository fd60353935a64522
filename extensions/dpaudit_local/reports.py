"""What devices submit: reports of one mechanism as arrays of equal length, one row per report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = [
    "BitReports",
    "BloomReports",
    "CategoryReports",
    "HadamardReports",
    "Reports",
    "SketchReports",
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
