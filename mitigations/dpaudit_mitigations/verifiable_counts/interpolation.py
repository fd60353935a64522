"""Lagrange polynomials modulo the group's order, and exact weighted sums of small integers."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

from dpaudit_mitigations.verifiable_counts.group import SIZE, L

__all__ = ["basis_at", "combine", "vanishing_at", "weights_of"]

_WORD = 32
_WORDS = 8
Weights = npt.NDArray[np.float64]


@functools.lru_cache(maxsize=512)
def _denominators(count: int) -> tuple[int, ...]:
    """1/Π_{i≠j}(j − i) over the points 0 … count−1, for each j."""
    last = count - 1
    return tuple(
        (-1) ** (last - j) * pow(math.factorial(j) * math.factorial(last - j), -1, L) % L
        for j in range(count)
    )


def basis_at(x: int, *, start: int, count: int) -> list[int]:
    """The values at ``x`` of the ``count`` Lagrange polynomials of the points start, start+1, …."""
    gaps = [(x - start - i) % L for i in range(count)]
    before = list(itertools.accumulate(gaps[:-1], lambda a, b: a * b % L, initial=1))
    after = list(itertools.accumulate(gaps[:0:-1], lambda a, b: a * b % L, initial=1))[::-1]
    return [a * b % L * c % L for a, b, c in zip(before, after, _denominators(count), strict=True)]


def vanishing_at(x: int, *, count: int) -> int:
    """Π (x − j) over j = 1 … count."""
    product = 1
    for j in range(1, count + 1):
        product = product * (x - j) % L
    return product


def weights_of(table: list[list[int]]) -> Weights:
    """Scalars (t, rows) cut into 32-bit words for :func:`combine`, shape (t·8, rows)."""
    data = b"".join(value.to_bytes(SIZE, "little") for row in table for value in row)
    words = np.frombuffer(data, "<u4").reshape(len(table), -1, _WORDS)
    return np.ascontiguousarray(
        words.transpose(0, 2, 1).reshape(len(table) * _WORDS, -1), dtype=np.float64
    )


def combine(weights: Weights, small: npt.NDArray[np.uint8]) -> list[list[int]]:
    """Σ_j weight[t, j]·small[j, i] as integers (not reduced), a list of columns for each t.

    ``small`` (rows, columns) holds numbers up to 2. Exact: the sums of words times small numbers
    stay below 2^53 for up to 2^19 rows. A matrix product, so it takes the same time whatever the
    small numbers are.
    """
    sums = (weights @ small.astype(np.float64)).astype(np.int64)
    sums = sums.reshape(-1, _WORDS, small.shape[1])
    words = np.empty((len(sums), small.shape[1], _WORDS + 1), dtype="<u4")
    carry = np.zeros((len(sums), small.shape[1]), dtype=np.int64)
    for word in range(_WORDS):
        carry += sums[:, word]
        words[:, :, word] = carry & 0xFFFFFFFF
        carry >>= _WORD
    words[:, :, _WORDS] = carry
    size = 4 * (_WORDS + 1)
    data = words.tobytes()
    numbers = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    return [numbers[at : at + small.shape[1]] for at in range(0, len(numbers), small.shape[1])]
