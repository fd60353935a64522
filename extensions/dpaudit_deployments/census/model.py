"""The rows of noisy measurement files: measurements, constraints, and what both share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ALL", "Constraint", "Integers", "Measurement", "Row"]

Integers = npt.NDArray[np.int64]

ALL = "*"
"""How files write that an axis is summed over."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Row:
    """Numbers about one geography, one per cell of a query.

    ``query`` is the name without the suffix ``_dpq`` or ``_con``. ``specs`` has a word per axis of
    the histogram: ``*`` if the axis is summed over, the axis's own name or ``detailed`` if all its
    levels are kept, otherwise the name of a recode. ``value`` (the product of ``shape``) int64 is
    in C order.
    """

    geocode: str
    query: str
    specs: tuple[str, ...]
    shape: tuple[int, ...]
    value: Integers


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measurement(Row):
    """The noisy answers of a query; ``variance`` is that of one value's noise, as stated."""

    variance: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Constraint(Row):
    """What the true answers keep: ``sign`` is ``=``, ``<=`` or ``>=``, cell by cell."""

    sign: str
