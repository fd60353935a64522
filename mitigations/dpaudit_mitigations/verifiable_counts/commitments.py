"""Pedersen commitments: one to a number, and one to a whole row of bits.

``value·G + blinding·B`` and ``Σ bit_i·H_i + blinding·B``: perfectly hiding; binding as long as
nobody knows a linear relation between B, G and the H_i (discrete logarithms in ristretto255). B is
the group's base point, the others are hashes of their names.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_mitigations.verifiable_counts.group import (
    IDENTITY,
    VALUE_BASE,
    add,
    blinding_multiple,
    generator,
    multiple,
    random_scalars,
)

__all__ = ["GROUPED", "Opening", "column_bases", "commit", "commit_rows", "open_counts"]

GROUPED = 4  # columns per table of all sums of their bases: one addition for four bits


def commit(value: int, blinding: int) -> bytes:
    """``value·G + blinding·B``."""
    return add(multiple(value, VALUE_BASE), blinding_multiple(blinding))


@dataclass(frozen=True)
class Opening:
    """A committed number and its blinding: secret. Openings add up as their commitments do."""

    value: int
    blinding: int = field(repr=False)

    @property
    def commitment(self) -> bytes:
        return commit(self.value, self.blinding)

    def __repr__(self) -> str:
        return "Opening(…)"


def open_counts(counts: Sequence[int], *, stream: Stream | None = None) -> list[Opening]:
    """A curator's own openings of its counts.

    Blindings are the operating system's, or in simulations the next of ``stream``: two counts under
    one blinding would reveal their difference.
    """
    blindings = random_scalars(len(counts), KeyedStream.fresh() if stream is None else stream)
    return [
        Opening(int(value), blinding) for value, blinding in zip(counts, blindings, strict=True)
    ]


@functools.lru_cache(maxsize=64)
def column_bases(columns: int) -> tuple[bytes, ...]:
    """H_1 … H_columns."""
    return tuple(generator(f"column {i}") for i in range(1, columns + 1))


@functools.lru_cache(maxsize=512)
def _sums(group: int) -> tuple[bytes, ...]:
    """The 16 sums of subsets of a group's four bases; bit i of the index takes base i."""
    sums = [IDENTITY]
    for base in column_bases(GROUPED * (group + 1))[-GROUPED:]:
        sums += [add(known, base) for known in sums]
    return tuple(sums)


def commit_rows(bits: npt.NDArray[np.uint8], blindings: Sequence[int]) -> list[bytes]:
    """A commitment to each row of ``bits`` (rows, columns), columns a multiple of 4.

    The additions are the same whatever the bits (a zero adds the identity), but which stored sum is
    read depends on them: see the timing note in ``mitigation.py``.

    Raises:
        UsageError: columns that are not a multiple of 4.
    """
    rows, columns = bits.shape
    if columns % GROUPED:
        raise UsageError(f"columns={columns}: must be a multiple of {GROUPED}")
    tables = [_sums(group) for group in range(columns // GROUPED)]
    picks = (bits.reshape(rows, -1, GROUPED) @ (1 << np.arange(GROUPED, dtype=np.int64))).tolist()
    commitments = []
    for row, blinding in zip(picks, blindings, strict=True):
        total = blinding_multiple(blinding)
        for table, pick in zip(tables, row, strict=True):
            total = add(total, table[pick])
        commitments.append(total)
    return commitments
