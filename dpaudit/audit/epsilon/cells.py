"""A line cut into cells by the values seen on it, with exact atoms kept as cells of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Cells", "cut", "intervals"]

_MOST_ATOMS = 4096
_MOST_CELLS = 256
_PER_CELL = 64
_REPEATS = 8
"""A value seen so often is an atom: a continuous law repeats nothing, one of 2^24 values hardly ever eight times."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """Half-open intervals [edge, next edge) that cover the line, shape of ``edges`` (cells − 1,)."""

    edges: Array

    def __len__(self) -> int:
        return len(self.edges) + 1

    def counts(self, values: Array) -> npt.NDArray[np.int64]:
        """How many ``values`` fall in each cell, shape (cells,)."""
        return np.bincount(np.searchsorted(self.edges, values, side="right"), minlength=len(self))


def cut(values: Array) -> Cells:
    """Cells for these values: an atom each for what is often repeated, quantiles for the rest, finer in the tails."""
    distinct, times = np.unique(values, return_counts=True)
    often = times >= _REPEATS
    if np.count_nonzero(often) > _MOST_ATOMS:
        often &= times >= np.sort(times)[-_MOST_ATOMS]
    atoms = distinct[often]
    rest = np.repeat(distinct[~often], times[~often])
    n = len(rest)
    places: Array = np.array([])
    if n:
        middle = np.linspace(0, 1, max(2, min(_MOST_CELLS, n // _PER_CELL)) + 1)[1:-1]
        tail = _REPEATS * 2.0 ** np.arange(max(1, int(np.log2(max(2, n / (_PER_CELL * _REPEATS)))))) / n
        tail = tail[tail < 0.5]
        places = np.quantile(rest, np.concatenate([middle, tail, 1 - tail]))
    return Cells(np.unique(np.concatenate([places, atoms, np.nextafter(atoms, np.inf)])))


def intervals(cells: Cells, chosen: npt.NDArray[np.bool_]) -> list[tuple[float, float]]:
    """The chosen cells as [from, to) intervals, neighbours joined."""
    edges = np.concatenate([[-np.inf], cells.edges, [np.inf]])
    step = np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]]))
    return [
        (float(edges[a]), float(edges[b])) for a, b in zip(*(np.flatnonzero(step == s) for s in (1, -1)), strict=True)
    ]
