"""Apple's Count Mean Sketch, the device's side: a random hash function, and m noisy bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.vectors.random_words import below, jit, seed_words, start
from dpaudit_local.biased_bits import biased_word, packed
from dpaudit_local.inputs import check_indices
from dpaudit_local.mean_sketch import MeanSketch
from dpaudit_local.reports import SketchReports

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


class CountMeanSketch(MeanSketch):
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

    Not claimed: that ``privatize`` keeps anything secret from someone who knows the stream or can
    predict its generator: it simulates devices (SFC64 under 192 bits of ``stream.entropy()``, one
    generator per report). And ε is of one report: n of a person's reports together have nε.

    >>> from dpaudit.randomness import KeyedStream
    >>> sketch = CountMeanSketch(epsilon=4.0, m=64, functions=8)
    >>> reports = sketch.privatize(np.array([3, 3, 5]), stream=KeyedStream.from_seed(1))
    >>> reports.bits.shape, sketch.epsilon, round(sketch.flip, 4)
    ((3, 8), 4.0, 0.1192)
    """

    differing = 2

    def _check_m(self) -> None:
        if self.m % 8:
            raise UsageError(f"m={self.m}: the bits are packed in bytes; take a multiple of 8")

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> SketchReports:
        """One report per object (n,).

        The same stream gives the same reports, and report i does not depend on n.

        Raises:
            UsageError: ``objects`` are not whole numbers that the hash family knows.
        """
        objects = self._objects(objects)
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
        bits = reports.bits
        if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != self.m // 8:
            raise UsageError(
                f"bits={bits.shape} {bits.dtype}: "
                f"m = {self.m} needs uint8 of shape (n, {self.m // 8})"
            )
        check_indices("function", reports.function, len(bits), self.functions)

    def log_likelihood(
        self, reports: SketchReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), shape (n, u), up to a constant.

        It is ε/2 where the object's bit is 1, −ε/2 where it is 0.

        Raises:
            UsageError: not reports of this mechanism, or objects that the hash family does not
                know.
        """
        self.check(reports)
        places = self._places(reports.function, objects)
        bytes_ = np.take_along_axis(reports.bits, (places >> 3).astype(np.intp), axis=1)
        ones = (bytes_ >> (places & 7).astype(np.uint8)) & 1
        return np.where(ones, self.epsilon / 2, -self.epsilon / 2)
