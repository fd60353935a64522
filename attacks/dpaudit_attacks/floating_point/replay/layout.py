"""Which coordinates of a release come from one pair of uniforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "Layout", "in_order", "in_tensors", "short"]

Indices = npt.NDArray[np.intp]

BLOCK = 16
"""Values that torch's vectorised ``normal_`` makes at a time, and the fewest for which it does."""


@dataclass(frozen=True)
class Layout:
    """Units of a release: pairs (p, 2) in the order of their outputs, those of short tensors (q, 2), and the rest (s,)."""

    pairs: Indices
    short: Indices
    alone: Indices

    @property
    def order(self) -> Indices:
        """Puts ``pairs``, ``short`` and ``alone``, one after the other, into the order of their first coordinates."""
        return np.argsort(np.concatenate([self.pairs[:, 0], self.short[:, 0], self.alone]), kind="stable")

    @property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates of each unit, in that order."""
        rows = [*self.pairs.tolist(), *self.short.tolist(), *([i] for i in self.alone.tolist())]
        return tuple(tuple(rows[i]) for i in self.order)


def in_order(k: int, *, offset: int) -> Layout:
    """Consecutive numbers are pairs, from number ``offset`` (0 or 1) on."""
    pairs, alone = _consecutive(np.arange(k), offset)
    return Layout(pairs, np.empty((0, 2), np.intp), alone)


def in_tensors(sizes: Sequence[int], *, offset: int, short_pairs: bool) -> Layout:
    """Tensors of ``sizes`` values, joined, each filled by one call of torch's ``normal_``.

    From 16 values on, blocks of 16 in which lane j goes with lane j + 8. Shorter ones take from one row of pairs, which
    goes on from tensor to tensor, ``offset`` numbers into a pair; without ``short_pairs`` theirs count as alone.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    long = [_lanes(int(a), n) for a, n in zip(starts, sizes, strict=True) if n >= BLOCK]
    rest = _joined([np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True) if n < BLOCK])
    few, left = _consecutive(rest, offset) if short_pairs else (np.empty((0, 2), np.intp), rest)
    pairs = np.concatenate([np.empty((0, 2), np.intp), *(pairs for pairs, _ in long)])
    return Layout(pairs, few, _joined([*(alone for _, alone in long), left]))


def short(sizes: Sequence[int]) -> int:
    """How many values the tensors below 16 hold."""
    return sum(n for n in sizes if n < BLOCK)


def _consecutive(where: Indices, offset: int) -> tuple[Indices, Indices]:
    end = offset + (len(where) - offset) // 2 * 2
    return where[offset:end].reshape(-1, 2), np.concatenate([where[:offset], where[end:]])


def _lanes(start: int, size: int) -> tuple[Indices, Indices]:
    """Pairs and leftovers of one tensor of ``size`` ≥ 16 values, the first at ``start``.

    Where 16 does not divide ``size`` the last 16 values are drawn again, over what was there, so the block before them
    loses lanes.
    """
    index = np.arange(size)
    block, lane = np.divmod(index, BLOCK)
    if size % BLOCK:
        block[size - BLOCK :], lane[size - BLOCK :] = -1, np.arange(BLOCK)
    first = index[(lane < BLOCK // 2) & (block == np.roll(block, -BLOCK // 2))]
    pairs = np.stack([first, first + BLOCK // 2], axis=1)
    paired = np.zeros(size, bool)
    paired[pairs] = True
    return start + pairs, start + index[~paired]


def _joined(parts: Sequence[Indices]) -> Indices:
    return np.concatenate([np.empty(0, np.intp), *parts])
