"""The histogram of a geography: its cells, those that are impossible, and queries over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["AGES", "QUARTERS", "SENIOR", "Query", "Schema", "census_schema"]

AGES = 86
"""Single years; the last is 85 and above."""
QUARTERS = ("senior-home", "elsewhere")
SENIOR = 65
"""The youngest age in a senior home: nobody below can live there."""
_GROUPS = (0, 5, 10, 15, 18, 20, *range(25, AGES, 5))


@dataclass(frozen=True, kw_only=True)
class Query:
    """Sums of cells: ``part`` (cells,) says into which of the query's ``cells`` each one falls."""

    name: str
    cells: tuple[str, ...]
    part: npt.NDArray[np.int64]

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """Shape (schema's cells, query's cells): counts times this are the answers."""
        return np.asarray(np.eye(len(self.cells))[self.part])


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Cells of a histogram, which of them are structurally zero, and queries, finest first.

    Each query's cells are unions of those of the query before it.
    """

    cells: tuple[str, ...]
    zeros: npt.NDArray[np.bool_]
    queries: tuple[Query, ...]


@cache
def census_schema() -> Schema:
    """Where a person lives × single years of age: 172 cells, of which 65 are impossible.

    Senior homes take people of 65 and above, so that the 65 cells below are structurally zero. The
    queries: all cells, 19 age groups, below voting age and above, and the total.
    """
    ages = np.tile(np.arange(AGES), len(QUARTERS))
    cells = tuple(f"{where}:{age}" for where in QUARTERS for age in range(AGES))
    group = np.searchsorted(_GROUPS, ages, side="right") - 1
    ends = [f"{low}-{high - 1}" for low, high in pairwise(_GROUPS)]
    return Schema(
        cells=cells,
        zeros=np.array([at < SENIOR for at in range(len(cells))]),
        queries=(
            Query(name="detailed", cells=cells, part=np.arange(len(cells))),
            Query(name="age-group", cells=(*ends, f"{_GROUPS[-1]}+"), part=group),
            Query(name="voting-age", cells=("0-17", "18+"), part=(ages >= 18).astype(np.int64)),
            Query(name="total", cells=("total",), part=np.zeros_like(ages)),
        ),
    )
