"""From a long call of noise back to the uniform numbers that it may have been made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from dpaudit.protocols import Block

__all__ = ["Sequence", "Stretch", "Stretches", "polar_sequences", "sequences"]

Floats = npt.NDArray[np.float64]

_LENGTH = 1 << 14
_LEAST = 1 << 7
_LONG = 1 << 11
_BLOCK = 16
_WEIGHTS = np.sqrt([2.0, 3.0, 5.0, 7.0])


@dataclass(frozen=True, slots=True)
class Sequence:
    """Uniforms in [0, 1) as a transform would have used them, in order.

    ``transform``: what was inverted. Windows begin at multiples of ``step``: 2 where those of a
    pair stand side by side, the number of a row where rows are filled one by one.
    """

    transform: str
    u: Floats
    step: int = 1


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive values as N(0, 1): of a call its first ones, and those of its second half."""

    first: Floats
    second: Floats
    d: int = 1
    """Values of a row, where it was read by rows."""


class Stretches:
    """Keeps one call read by rows, and one read by columns.

    By rows preferably one of two columns, where pairs stand side by side however a row is filled;
    by columns preferably one of one column; and long ones. Of each the first 16,384 values, and
    8,192 of its second half. As long as no call has 128 values, the first ones of the process.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[_Worth, Stretch]] = {}
        self._early: list[Floats] = []
        self._size = 0

    def add(self, block: Block) -> None:
        """Take in one block of process 0."""
        if self._size < _LENGTH:
            part = block.z.ravel()[: _LENGTH - self._size]
            self._early.append(part.copy())
            self._size += len(part)
        call = block.z[: len(block.z) // block.calls]
        rows, d = call.shape
        if call.size >= _LEAST and d > 1:
            worth = (call.size >= _LONG, d == 2, d % 2 == 0, call.size)
            if self._better("rows", worth):
                self._kept["rows"] = worth, _stretch(call.ravel(), d)
        if rows >= _LEAST:
            worth = (call.size >= _LONG, d == 1, True, rows)
            if self._better("columns", worth):
                some = call[:, : -(-2 * _LENGTH // rows)]
                self._kept["columns"] = worth, _stretch(some.T.ravel())

    def _better(self, kind: str, worth: _Worth) -> bool:
        return kind not in self._kept or worth > self._kept[kind][0]

    def selection(self) -> list[Stretch]:
        """What there is, the most telling first.

        Without stretches half of whose runs of four were there before: everything holds among them,
        and other tests see it.
        """
        stretches = [self._kept[kind][1] for kind in ("rows", "columns") if kind in self._kept]
        if not stretches and self._size >= _LEAST:
            early = np.concatenate(self._early)
            stretches = [Stretch(early, early[:0])]
        return [stretch for stretch in stretches if _differs(stretch.first)]


_Worth = tuple[bool, bool, bool, int]


def _differs(z: Floats) -> bool:
    runs = np.convolve(np.abs(z), _WEIGHTS, "valid")
    return 2 * len(np.unique(runs)) > len(runs)


def _stretch(z: Floats, d: int = 1) -> Stretch:
    half = -(-len(z) // 2)
    return Stretch(z[:_LENGTH].copy(), z[half : half + _LENGTH // 2].copy(), d)


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
    yield _of_blocks(z[: len(z) // _BLOCK * _BLOCK].reshape(-1, 2, _BLOCK // 2))
    if stretch.d > 2:
        yield from _of_rows(z[: len(z) // stretch.d * stretch.d].reshape(-1, stretch.d))


def _of_blocks(blocks: Floats) -> Sequence:
    """As torch's vectorised transform fills 16 values: from 8 lengths, and then 8 angles."""
    x, y = blocks[:, 0], blocks[:, 1]
    u = np.stack([_lengths(x, y), _angles(x, y)], axis=1)
    return Sequence("Box-Muller, values 8 apart", u.ravel(), _BLOCK)


def _of_rows(rows: Floats) -> Iterator[Sequence]:
    """Pairs of rows that are filled one by one: of an odd number the last is drawn and lost."""
    d = rows.shape[1]
    many = d // 2
    if d % 2:
        x, y = rows[:, 0 : 2 * many : 2], rows[:, 1::2]
        yield _lengths_and_angles("Box-Muller, neighbours of a row", x, y, step=2 * many)
    x, y = rows[:, :many], rows[:, -many:]
    yield _lengths_and_angles("Box-Muller, halves of a row", x, y, step=2 * many)


def polar_sequences(stretch: Stretch) -> Iterator[Sequence]:
    """The uniforms of Marsaglia's polar method: without those of the pairs that it rejects."""
    z = stretch.first[: len(stretch.first) // 2 * 2]
    x, y = z[0::2], z[1::2]
    square = x * x + y * y
    factor = np.exp(-square / 4) / np.sqrt(np.maximum(square, 1e-300))
    u, v = (1 + x * factor) / 2, (1 + y * factor) / 2
    yield Sequence("the polar method", np.stack([u, v], axis=1).ravel(), 2)
    yield Sequence("the polar method, second value first", np.stack([v, u], axis=1).ravel(), 2)


def _lengths_and_angles(name: str, x: Floats, y: Floats, *, step: int = 2) -> Sequence:
    return Sequence(name, np.stack([_lengths(x, y), _angles(x, y)], axis=-1).ravel(), step)


def _lengths(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.exp(-(x * x + y * y) / 2))


def _angles(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.arctan2(y, x) / (2 * np.pi) % 1.0)
