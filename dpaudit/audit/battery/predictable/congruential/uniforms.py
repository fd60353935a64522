"""From a long call of noise back to the uniform numbers that it may have been made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.interfaces import Block

__all__ = ["Sequence", "Stretch", "Stretches", "polar_sequences", "sequences"]

Floats = npt.NDArray[np.float64]

_LENGTH = 1 << 14
_LEAST = 1 << 7


@dataclass(frozen=True, slots=True)
class Sequence:
    """Uniforms in [0, 1) as a transform would have used them, in order.

    Two of a pair stand side by side where ``step`` is 2; ``transform`` says what was inverted.
    """

    transform: str
    u: Floats
    step: int = 1


@dataclass(frozen=True, slots=True)
class Stretch:
    """Values of one call, as N(0, 1): its first ones, and the first ones of its second half."""

    first: Floats
    second: Floats
    size: int
    """Number of values of the call."""


class Stretches:
    """Keeps the longest call of one column, and the longest of an even number of columns.

    Of each the first 16,384 values, and 8,192 of its second half. The former shows what is drawn
    column by column; the latter what is drawn row by row in pairs. As long as no call has 128
    values, the first 16,384 values of the process.
    """

    def __init__(self) -> None:
        self._column: Stretch | None = None
        self._wide: Stretch | None = None
        self._early: list[Floats] = []
        self._kept = 0

    def add(self, block: Block) -> None:
        """Take in one block of process 0."""
        if self._kept < _LENGTH:
            part = block.z.ravel()[: _LENGTH - self._kept]
            self._early.append(part.copy())
            self._kept += len(part)
        d = block.z.shape[1]
        rows = len(block.z) // block.calls
        if rows * d < _LEAST:
            return
        if d == 1 and (self._column is None or rows > self._column.size):
            self._column = _stretch(block.z[:rows])
        if d % 2 == 0 and (self._wide is None or rows * d > self._wide.size):
            self._wide = _stretch(block.z[:rows])

    def kept(self) -> list[Stretch]:
        """What there is, the most telling first.

        Without stretches half of whose values were there before: everything holds among them, and
        other tests see it.
        """
        found = [s for s in (self._wide, self._column) if s is not None]
        if not found and self._kept >= _LEAST:
            early = np.concatenate(self._early)
            found = [Stretch(early, early[:0], len(early))]
        return [s for s in found if 2 * len(np.unique(np.abs(s.first))) > len(s.first)]


def _stretch(call: Floats) -> Stretch:
    z = np.ascontiguousarray(call).ravel()
    half = len(z) // 2
    return Stretch(z[:_LENGTH].copy(), z[half : half + _LENGTH // 2].copy(), len(z))


def sequences(stretch: Stretch, *, family: str) -> Iterator[Sequence]:
    """The uniforms behind a stretch, by each way back from noise to uniforms.

    Lengths and angles of pairs only for a Gaussian claim. The order within a pair and 1 − u for u
    change signs and order of coefficients, and nothing else. A sum of twelve uniforms is linear in
    them, and N(0, 1) modulo 1 is uniform to 10^-8.
    """
    z = stretch.first
    yield Sequence("the inverse distribution function", scipy.special.ndtr(z))
    yield Sequence("magnitudes", 2 * scipy.special.ndtr(-np.abs(z)))
    if family != "gaussian":
        return
    even = z[: len(z) // 2 * 2]
    yield _lengths_and_angles("Box-Muller, neighbours", even[0::2], even[1::2])
    if len(stretch.second):
        many = min(len(z), len(stretch.second))
        yield _lengths_and_angles("Box-Muller, halves of a call", z[:many], stretch.second[:many])
    yield Sequence("sums of twelve uniforms", z % 1.0)


def polar_sequences(stretch: Stretch) -> Iterator[Sequence]:
    """The uniforms of Marsaglia's polar method: without those of the pairs that it rejects."""
    z = stretch.first[: len(stretch.first) // 2 * 2]
    x, y = z[0::2], z[1::2]
    square = x * x + y * y
    factor = np.exp(-square / 4) / np.sqrt(np.maximum(square, 1e-300))
    u, v = (1 + x * factor) / 2, (1 + y * factor) / 2
    yield Sequence("the polar method", np.stack([u, v], axis=1).ravel(), 2)
    yield Sequence("the polar method, second value first", np.stack([v, u], axis=1).ravel(), 2)


def _lengths_and_angles(name: str, x: Floats, y: Floats) -> Sequence:
    lengths = np.exp(-(x * x + y * y) / 2)
    angles = np.arctan2(y, x) / (2 * np.pi) % 1.0
    return Sequence(name, np.stack([lengths, angles], axis=1).ravel(), 2)
