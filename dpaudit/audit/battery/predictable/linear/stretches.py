"""Stretches of noise in the order drawn, as a generator's numbers follow each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import Block

__all__ = ["Stretches"]

Array = npt.NDArray[np.float64]

LONGEST = 42_000 * 16
"""Values of a run: 42,000 bits of every 16th one, enough to learn a Mersenne Twister."""
_FIRST = 1 << 17
_HEADS = 1 << 17
_BEGINNING = 1 << 13


class Stretches:
    """What is kept of a sampler's process: about 12 MB at most.

    The *first* 131,072 values, whatever they were drawn for; the longest *run* of long calls in one
    dimension, up to 672,000 values, the last one of several that are equally long; and the *heads*:
    the first value of each of many short calls of one shape.
    """

    def __init__(self) -> None:
        self._first: list[Array] = []
        self._room = _FIRST
        self._runs: dict[str, list[Array]] = {"longest": [], "latest": []}
        self._heads: dict[tuple[int, int], list[Array]] = {}

    def add(self, block: Block) -> None:
        """Take in one block."""
        if self._room:
            self._first.append(block.values.ravel()[: self._room].copy())
            self._room -= self._first[-1].size
        if block.calls == 1:
            self._continue(block.values)
            return
        self._runs["latest"] = []
        n = len(block.values) // block.calls
        heads = self._heads.setdefault((n, block.values.shape[1]), [])
        if sum(map(len, heads)) < _HEADS:
            heads.append(block.values[::n, 0].copy())

    def _continue(self, values: Array) -> None:
        latest, d = self._runs["latest"], values.shape[1]
        if latest and latest[0].shape[1] != d:
            latest = self._runs["latest"] = []
        room = LONGEST - _size(latest)
        if room > 0:
            latest.append(values[: -(-room // d)].copy())
        if _size(latest) >= _size(self._runs["longest"]):
            self._runs["longest"] = latest

    @property
    def first(self) -> Array:
        """The first values of the process, shape (m,)."""
        return _joined(self._first)

    @property
    def beginning(self) -> Array:
        """The first values of the longest run, or else of all, at most 8,192, shape (m,)."""
        return _joined(self.run[:1] or self._first)[:_BEGINNING]

    @property
    def run(self) -> list[Array]:
        """The longest run, call by call: shapes (n, d) of one d."""
        return self._runs["longest"]

    @property
    def heads(self) -> tuple[int, Array]:
        """Values per short call, and the first of each, in order, shape (m,)."""
        (n, d), heads = max(
            self._heads.items(), key=lambda kept: _size(kept[1]), default=((1, 1), [])
        )
        return n * d, _joined(heads)


def _size(parts: list[Array]) -> int:
    return sum(part.size for part in parts)


def _joined(parts: list[Array]) -> Array:
    return np.concatenate([np.empty(0), *(part.ravel() for part in parts)])
