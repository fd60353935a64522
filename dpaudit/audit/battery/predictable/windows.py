"""Places of the noise at which a freshly seeded generator may begin, and their first values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.audit.battery.predictable.catalogue import PREFIX
from dpaudit.audit.battery.predictable.loops import find_marked, hashes, mark
from dpaudit.protocols import Block

__all__ = ["TOLERANCE", "Place", "Windows"]

Floats = npt.NDArray[np.float64]
Seeds = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

TOLERANCE = 2.0**-19
"""Values that differ less than this agree (times the value, above 1): float32 is finer."""
LENGTH = 8
_BEGINNINGS = 1 << 17  # of calls and rows, in all
_ROWS = 64  # per call
_TEXT = 1 << 14  # first values of the sampler's process
_OTHER_TEXT = 1 << 10  # of each other one
_SOURCES_PER_DIM = 3  # beginnings whose values are taken for seeds
_NEAR = 24  # values after such a beginning at which the seeded ones may begin
_CELLS = 2.0**13
_BITS = 22
_FARTHEST = 1e6  # in units of the scale: beyond anything of the claimed law; cells stay whole
_Run = tuple[dict[str, int], Floats]


@dataclass(frozen=True, slots=True)
class Place:
    """A window that a seeding fits, and the magnitudes that follow from there."""

    where: Mapping[str, int]
    values: Floats


class Windows:
    """Magnitudes at the beginnings of processes, calls and rows, in units of the claimed scale.

    The first 16,384 values of the process and 1,024 of each other one are kept whole, and a window
    begins at each. Of up to 131,072 beginnings of calls and rows elsewhere 8 values are kept.
    """

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._beginnings: dict[int, list[Floats]] = {}
        self._short: list[Floats] = []
        self._places: list[Places] = []  # process, call, row
        self._kept = 0
        self._sources: list[_Run] = []
        self._per_dim: dict[int, int] = {}
        self._numbers: dict[float, None] = {}

    def add(self, block: Block) -> None:
        """Take in one block."""
        x = np.clip(block.values, -_FARTHEST * self._scale, _FARTHEST * self._scale)
        self._keep_beginning(block.process, x)
        if block.process == 0 and block.value:
            self._numbers[block.value] = None
        rows, d = x.shape
        each = rows // block.calls
        begins = np.arange(block.calls) * each
        if each > 1:
            more = np.arange(1, min(each, _ROWS))
            begins = (begins[:, None] + np.concatenate([[0], more])).ravel()
        begins = begins[begins * d + LENGTH <= x.size][: max(0, _BEGINNINGS - self._kept)]
        if not len(begins):
            return
        flat = np.ascontiguousarray(x).ravel()
        values = flat[begins[:, None] * d + np.arange(LENGTH)]
        self._short.append(np.abs(values) / self._scale)
        call = block.call + begins // each
        where = np.stack([np.full_like(begins, block.process), call, begins % each], axis=1)
        self._places.append(where)
        self._kept += len(begins)
        if block.process == 0 and self._per_dim.get(d, 0) < _SOURCES_PER_DIM:
            self._per_dim[d] = self._per_dim.get(d, 0) + 1
            at = int(begins[-1])
            run = {"process": 0, "call": block.call + at // each, "row": at % each}
            self._sources.append((run, flat[at * d : at * d + _NEAR + LENGTH].copy()))

    def _keep_beginning(self, process: int, x: Floats) -> None:
        parts = self._beginnings.setdefault(process, [])
        room = (_OTHER_TEXT if process else _TEXT) - sum(map(len, parts))
        if room > 0:
            parts.append(np.abs(x.ravel()[:room]) / self._scale)

    def numbers(self) -> list[float]:
        """Numbers that a sampler could make a seed of: values it received, and its first ones.

        The latter as they are and in units of the scale.
        """
        first_values = [float(v) for _, text in self._sources for v in text[:PREFIX]]
        return [*self._numbers, *first_values, *(v / self._scale for v in first_values)]

    def index(self) -> Index:
        """All windows, to look values up in."""
        return Index(
            texts={p: np.concatenate(parts) for p, parts in self._beginnings.items() if parts},
            after=[({**w, "value": 1}, np.abs(x[1:]) / self._scale) for w, x in self._sources],
            short=np.concatenate([np.empty((0, LENGTH)), *self._short]),
            places=np.concatenate([np.empty((0, 3), np.int64), *self._places]),
        )


class Index:
    """Windows by their first three values."""

    def __init__(
        self, *, texts: dict[int, Floats], after: list[_Run], short: Floats, places: Places
    ) -> None:
        self._short, self._places = short, places
        self._runs = [({"process": p, "value": 0}, text) for p, text in texts.items()]
        self._runs += after
        heads = [short[:, :PREFIX]]
        origin = [np.stack([np.full(len(short), -1), np.arange(len(short))], axis=1)]
        for number, (_, text) in enumerate(self._runs):
            count = max(0, len(text) - LENGTH + 1)
            heads.append(np.lib.stride_tricks.sliding_window_view(text, PREFIX)[:count])
            origin.append(np.stack([np.full(count, number), np.arange(count)], axis=1))
        head, origins = np.concatenate(heads), np.concatenate(origin)
        slack = TOLERANCE * np.maximum(head, 1.0)
        # a window whose values are near a cell's edge is in the cells on both sides
        ends = np.floor((head - slack) * _CELLS), np.floor((head + slack) * _CELLS)
        cells, rows = [ends[0]], [np.arange(len(head))]
        for choice in range(1, 1 << PREFIX):
            upper = np.array([bool(choice >> i & 1) for i in range(PREFIX)])
            mine = np.flatnonzero(((ends[0] != ends[1]) | ~upper).all(axis=1))
            cells.append(np.where(upper, ends[1][mine], ends[0][mine]))
            rows.append(mine)
        hashes = _hash(np.concatenate(cells).T)
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._origins = origins[np.concatenate(rows)][order]
        self._windows = len(head)
        self._marks = _mark_hashes(hashes)
        two = np.concatenate(cells).T.copy()
        two[2] = 0.0
        self._marks_of_two = _mark_hashes(_hash(two))

    def __len__(self) -> int:
        return self._windows

    def likely(self, values: Floats) -> Places:
        """Columns of ``values`` (2, n) that may be a window's first two."""
        return _marked_columns(values, self._marks_of_two)[0]

    def find(self, values: Floats) -> Iterator[tuple[int, Place]]:
        """For columns of ``values`` (3, n): the number of the column, and each window alike."""
        near, hashes = _marked_columns(values, self._marks)
        first = np.searchsorted(self._hashes, hashes, side="left")
        last = np.searchsorted(self._hashes, hashes, side="right")
        for i in np.flatnonzero(last > first):
            for at in range(first[i], last[i]):
                yield int(near[i]), self._place(*map(int, self._origins[at]))

    def _place(self, run: int, at: int) -> Place:
        if run < 0:
            names = ("process", "call", "row")
            where = dict(zip(names, map(int, self._places[at]), strict=True))
            return Place(where, self._short[at])
        where, text = self._runs[run]
        return Place({**where, "value": where["value"] + at}, text[at:])


def _mark_hashes(hashes: Seeds) -> Seeds:
    """A bit for each of the leading bits of a hash: whether it is one of these."""
    marks = np.zeros(1 << _BITS - 6, np.uint64)
    mark(hashes, np.uint64(64 - _BITS), marks)
    return marks


def _marked_columns(values: Floats, marks: Seeds) -> tuple[Places, Seeds]:
    """Columns of ``values`` (3 or 2, n) whose cells are marked, and their hashes."""
    near = np.empty(values.shape[1], np.int64)
    hashes = np.empty(len(near), np.uint64)
    values = np.ascontiguousarray(values)
    count = find_marked(values, _CELLS, marks, np.uint64(64 - _BITS), near, hashes)
    return near[:count], hashes[:count]


def _hash(cells: Floats) -> Seeds:
    """Hashes of the numbers (3, n) of cells."""
    out = np.empty(cells.shape[1], np.uint64)
    hashes(np.ascontiguousarray(cells), 1.0, out)
    return out
