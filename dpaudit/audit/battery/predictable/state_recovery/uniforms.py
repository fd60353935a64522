"""Uniform numbers with an error bound, and the bits of a generator's words that they show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["CANONICAL", "DOUBLE", "LAYOUTS", "LOW_24", "LOW_53", "SINGLE", "Layout", "Uniforms"]

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Uniforms:
    """Numbers in [0, 1) in the order drawn, shape (n,), each right up to ``errors`` (n,)."""

    values: Floats
    errors: Floats


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a uniform number's bits, the highest first, stand in the ``words`` that make it.

    ``runs`` are (word, highest bit, number of bits). ``top``: each word's 18 highest bits are used.
    """

    name: str
    words: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def bits(self) -> int:
        """Bits per number."""
        return sum(length for _, _, length in self.runs)

    @property
    def top(self) -> bool:
        """Whether a number shows the 18 highest bits of each of its words."""
        shown = {word: length for word, highest, length in self.runs if highest == 31}
        return all(shown.get(word, 0) >= 18 for word in range(self.words))

    def shown(self, uniforms: Uniforms) -> tuple[Words, Words]:
        """The words, and masks of the bits that are certain."""
        finite = np.isfinite(uniforms.values) & np.isfinite(uniforms.errors)
        scaled = np.where(finite, uniforms.values, 0.5) * 2.0**self.bits
        errors = np.where(finite, uniforms.errors, 1.0) * 2.0**self.bits
        whole = np.floor(scaled)
        middle = scaled - whole + 0.5  # numbers lie on the edge of a cell
        number, high = (
            np.clip(whole + np.floor(middle + s * errors), 0, 2.0**self.bits - 1).astype(np.uint64)
            for s in (-1, 1)
        )
        unsure = np.frexp((number ^ high).astype(np.float64))[1]  # bits, up to the highest unlike
        sure = ~np.uint64(0) << unsure.astype(np.uint64)
        known = self._spread(sure)
        return self._spread(number) & known, known

    def nearest(self, values: Floats) -> Words:
        """The words of the nearest numbers that there are."""
        number = np.clip(np.rint(np.nan_to_num(values) * 2.0**self.bits), 0, 2.0**self.bits - 1)
        return self._spread(number.astype(np.uint64))

    def _spread(self, number: npt.NDArray[np.uint64]) -> Words:
        """The bits of each number at their places in its words."""
        words = np.zeros((len(number), self.words), np.uint32)
        left = self.bits
        for word, highest, length in self.runs:
            left -= length
            part = number >> np.uint64(left) & np.uint64((1 << length) - 1)
            words[:, word] |= part.astype(np.uint32) << np.uint32(highest + 1 - length)
        return words.ravel()

    def made(self, words: Words) -> Floats:
        """The numbers that consecutive words make."""
        each = words.reshape(-1, self.words).astype(np.uint64)
        number = np.zeros(len(each), np.uint64)
        for word, highest, length in self.runs:
            part = each[:, word] >> np.uint64(highest + 1 - length) & np.uint64((1 << length) - 1)
            number = number << np.uint64(length) | part
        return np.asarray(number * 2.0**-self.bits)


DOUBLE = Layout("53 bits, high word first", 2, ((0, 31, 27), (1, 31, 26)))
CANONICAL = Layout("53 bits, low word first", 2, ((1, 31, 32), (0, 31, 21)))
SINGLE = Layout("32 bits", 1, ((0, 31, 32),))
LOW_24 = Layout("the low 24 bits", 1, ((0, 23, 24),))
LOW_53 = Layout("the low 53 bits of two words", 2, ((0, 20, 21), (1, 31, 32)))
LAYOUTS = (DOUBLE, CANONICAL, SINGLE)
