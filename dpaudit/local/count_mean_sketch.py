"""Apple's Count Mean Sketch, the device's side: one hash function at random, a one-hot vector of m bits, each flipped."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.interfaces import Stream
from dpaudit.local.biased_bits import biased_word, packed
from dpaudit.local.coins import LARGEST_EPSILON, WORDS, epsilon_of_words, lying_words
from dpaudit.local.hashing import HashFamily, pair_positions, sketch_hashes
from dpaudit.local.inputs import check_objects, privacy_number
from dpaudit.local.reports import SketchReports
from dpaudit.vectors.random_words import below, jit, seed_words, start

__all__ = ["CountMeanSketch"]

_U = np.uint64
_ROWS = 1 << 13  # rows of bits that are revisited while still in cache


@jit
def _draw(functions, bits, first, count, threshold, seed):  # type: ignore[no-untyped-def]
    for i in range(bits.shape[0]):
        a, b, c, n = start(seed, first + i, 0)
        a, b, c, n, function = below(count, a, b, c, n)
        functions[i] = function
        for w in range(bits.shape[1]):
            a, b, c, n, word = biased_word(threshold, a, b, c, n)
            bits[i, w] = word


@jit
def _flip(bits, positions):  # type: ignore[no-untyped-def]
    for i in range(bits.shape[0]):
        bits[i, positions[i] >> 6] ^= _U(1) << _U(positions[i] & 63)


class CountMeanSketch:
    """Count Mean Sketch: Apple, "Learning with Privacy at Scale" (2017), Algorithm A_client-CMS.

    A report is (j, b): j uniform among ``functions`` hash functions, b the one-hot vector of
    h_j(object) with each of its m bits flipped independently with probability q = 1 / (1 +
    e^(ε/2)).

    Formal guarantee: one report is ε-differentially private, locally, and no smaller ε holds (where
    two objects have different positions under some function): j does not depend on the object, and
    the vectors of two objects differ in at most two bits, each of which changes the probability of
    b by a factor of at most (1 − q)/q, so by ((1 − q)/q)² = e^ε in all. q is a whole number of
    2^-64, rounded up; :attr:`epsilon` is 2·ln((1 − q)/q) of that very q, never above what was asked
    for and less than it by no more than 2·(e^(ε/2) + 2)² / (e^(ε/2)·2^64): 6e-18 at ε = 8, 1e-12 at
    32. j is exactly uniform.

    Not claimed: that ``privatize`` keeps anything secret from somebody who knows the stream or can
    predict its generator: it simulates devices (SFC64 under 192 bits of ``stream.entropy()``, one
    generator a report). And ε is of one report: n of a person's reports together have nε.

    >>> from dpaudit.randomness import KeyedStream
    >>> sketch = CountMeanSketch(epsilon=4.0, m=64, functions=8)
    >>> reports = sketch.privatize(np.array([3, 3, 5]), stream=KeyedStream.from_seed(1))
    >>> reports.bits.shape, sketch.epsilon, round(sketch.flip, 4)
    ((3, 8), 4.0, 0.1192)
    """

    def __init__(
        self,
        epsilon: float = 4.0,
        *,
        m: int | None = None,
        functions: int | None = None,
        hashes: HashFamily | Literal["random", "three-wise"] = "random",
        seed: int = 0,
    ) -> None:
        """A family of ``functions`` (65,536) hash functions of a kind to ``m`` (1,024) positions under ``seed``, or your own.

        Raises:
            UsageError: ε not above 0 or beyond 64; m no multiple of 8; a kind of hashes there is
                not; ``m`` or ``functions`` that are not those of the ``hashes`` given.
        """
        half = privacy_number("epsilon", epsilon, 2 * LARGEST_EPSILON) / 2
        self.hashes = sketch_hashes(hashes, functions=functions, m=m, seed=seed)
        if self.hashes.size % 8:
            raise UsageError(
                f"m={self.hashes.size}: the bits are packed in bytes; take a multiple of 8"
            )
        self.flip_words = lying_words(half, 2)

    @property
    def m(self) -> int:
        """The number of positions."""
        return self.hashes.size

    @property
    def functions(self) -> int:
        """The number of hash functions."""
        return self.hashes.count

    @property
    def flip(self) -> float:
        """The probability q that a bit is flipped, a multiple of 2^-64 as near as a double can say it."""
        return self.flip_words / WORDS

    @property
    def epsilon(self) -> float:
        """The exact ε of one report, 2·ln((1 − q)/q)."""
        return 2 * epsilon_of_words(self.flip_words, 2)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountMeanSketch) and (self.flip_words, self.hashes) == (
            other.flip_words,
            other.hashes,
        )

    def __hash__(self) -> int:
        return hash((self.flip_words, self.hashes))

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> SketchReports:
        """A report of each object (n,); the same stream gives the same, and report i does not depend on n.

        Raises:
            UsageError: ``objects`` are not whole numbers that the hash family knows.
        """
        objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
        functions = np.empty(objects.shape, np.uint32)
        bits = np.empty((len(objects), -(-self.m // 64)), np.uint64)
        seed = seed_words(stream)
        for first in range(0, len(objects), _ROWS):
            rows = slice(first, first + _ROWS)
            _draw(functions[rows], bits[rows], first, _U(self.functions), _U(self.flip_words), seed)
            _flip(bits[rows], self.hashes.each(objects[rows], functions[rows]))
        return SketchReports(functions, packed(bits, self.m))

    def check(self, reports: SketchReports) -> None:
        """Whether these can be reports of this mechanism.

        Raises:
            UsageError: a shape, a type or a function that this mechanism does not make.
        """
        bits, functions = reports.bits, reports.function
        if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != self.m // 8:
            raise UsageError(
                f"bits={bits.shape} {bits.dtype}: m = {self.m} needs uint8 of shape (n, {self.m // 8})"
            )
        if functions.shape != bits.shape[:1] or functions.dtype.kind not in "iu":
            raise UsageError(
                f"function={functions.shape} {functions.dtype}: needs a whole number for each report"
            )
        if len(functions) and not 0 <= functions.min() <= functions.max() < self.functions:
            raise UsageError(
                f"function={functions.min()} … {functions.max()}: the family's are 0 … {self.functions - 1}"
            )

    def log_likelihood(
        self, reports: SketchReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), (n, u), up to a constant: ε/2 where the object's bit is 1, −ε/2 where it is 0.

        Raises:
            UsageError: not reports of this mechanism, or objects that the hash family does not
                know.
        """
        self.check(reports)
        objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
        places = pair_positions(self.hashes, functions=reports.function, objects=objects)
        ones = np.take_along_axis(reports.bits, (places >> 3).astype(np.intp), axis=1) >> (
            places & 7
        ).astype(np.uint8)
        return np.where(ones & 1, self.epsilon / 2, -self.epsilon / 2)
