"""The two query results that a mechanism is asked to hide from each other, as people write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.results.arrays import read_npy

__all__ = ["parse_neighbours"]

Vector = npt.NDArray[np.float64]
_HOW = "write two numbers as 0,1, two vectors as '0,0,0;1,0,0', or two files as a.npy;b.npy"


def parse_neighbours(text: str) -> tuple[Vector, Vector]:
    """Two query results of equal length (m,): ``0,1``, or vectors ``0,0,0;1,0,0``, or files ``a.npy;b.npy``.

    A semicolon divides the two, commas the coordinates; without one, just two numbers (or files) are meant.

    Raises:
        UsageError: not two, different lengths, not finite numbers, or equal to each other.

    >>> parse_neighbours("0,1")
    (array([0.]), array([1.]))
    """
    parts = text.split(";") if ";" in text else text.split(",")
    if len(parts) != 2:
        raise UsageError(f"neighbours={text}: {len(parts)} were given, wanted two; {_HOW}")
    first, second = (_vector(part.strip(), text) for part in parts)
    if len(first) != len(second):
        raise UsageError(f"neighbours={text}: lengths {len(first)} and {len(second)} differ; {_HOW}")
    if np.array_equal(first, second):
        raise UsageError(f"neighbours={text}: they are equal (as float64), so nothing could tell them apart; {_HOW}")
    return first, second


def _vector(part: str, text: str) -> Vector:
    try:
        if part.endswith(".npy"):
            vector = np.atleast_1d(read_npy(Path(part), name="neighbours").astype(np.float64))
        else:
            vector = np.array([float(x) for x in part.split(",")])
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"neighbours={text}: {part!r} is no list of numbers; {_HOW}") from None
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise UsageError(f"neighbours={text}: {part!r} must be one row of finite numbers; {_HOW}")
    return vector
