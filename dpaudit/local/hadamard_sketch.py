"""Apple's Hadamard Count Mean Sketch, the device's side: one bit, a noisy entry of the one-hot vector's transform."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.interfaces import Stream
from dpaudit.local.coins import WORDS, epsilon_of_words, lying_words
from dpaudit.local.hashing import HashFamily, pair_positions, sketch_hashes
from dpaudit.local.inputs import check_objects
from dpaudit.local.reports import HadamardReports
from dpaudit.vectors.random_words import below, inline, jit, next_word, seed_words, start

__all__ = ["HadamardSketch"]

_U = np.uint64


@inline
def _parity(x):  # type: ignore[no-untyped-def]
    """1 where the 32-bit ``x`` has an odd number of ones."""
    x ^= x >> np.uint32(16)
    x ^= x >> np.uint32(8)
    x ^= x >> np.uint32(4)
    x ^= x >> np.uint32(2)
    return (x ^ (x >> np.uint32(1))) & np.uint32(1)


@jit
def _draw(functions, coordinates, lies, count, m, threshold, seed):  # type: ignore[no-untyped-def]
    for i in range(functions.size):
        a, b, c, n = start(seed, i, 0)
        a, b, c, n, function = below(count, a, b, c, n)
        a, b, c, n, coordinate = below(m, a, b, c, n)
        a, b, c, n, word = next_word(a, b, c, n)
        functions[i], coordinates[i], lies[i] = function, coordinate, np.int8(word < threshold)


@jit
def _sign(signs, coordinates, positions):  # type: ignore[no-untyped-def]
    for i in range(signs.size):
        odd = np.int8(_parity(coordinates[i] & positions[i]))
        signs[i] = np.int8(1) - np.int8(2) * (odd ^ signs[i])


class HadamardSketch:
    """Hadamard Count Mean Sketch: Apple, "Learning with Privacy at Scale" (2017), Algorithm A_client-HCMS.

    A report is (j, l, s): j uniform among ``functions`` hash functions, l uniform among the m rows
    of the Hadamard matrix H[l, p] = (−1)^(number of ones of l & p), and s = H[l, h_j(object)] with
    its sign flipped with probability q = 1 / (1 + e^ε). A device does O(1) work: the transform of a
    one-hot vector is a column of H.

    Formal guarantee: one report is ε-differentially private, locally, and no smaller ε holds (where
    two objects have different positions under some function): j and l do not depend on the object,
    and of s the two probabilities are q and 1 − q, (1 − q)/q = e^ε apart. q is a whole number of
    2^-64, rounded up; :attr:`epsilon` is ln((1 − q)/q) of that very q, never above what was asked
    for. j and l are exactly uniform. Not claimed: secrecy from somebody who knows the stream (see
    :class:`~dpaudit.local.count_mean_sketch.CountMeanSketch`). And n of a person's reports together
    have nε.

    >>> from dpaudit.randomness import KeyedStream
    >>> sketch = HadamardSketch(epsilon=4.0, m=64, functions=8)
    >>> reports = sketch.privatize(np.array([3, 3, 5]), stream=KeyedStream.from_seed(1))
    >>> sorted(set(np.abs(reports.sign).tolist())), sketch.epsilon, round(sketch.flip, 4)
    ([1], 4.0, 0.018)
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
            UsageError: ε not above 0 or beyond 32; m no power of two; a kind of hashes there is
                not; ``m`` or ``functions`` that are not those of the ``hashes`` given.
        """
        self.flip_words = lying_words(epsilon, 2)
        self.hashes = sketch_hashes(hashes, functions=functions, m=m, seed=seed)
        if self.m & (self.m - 1):
            raise UsageError(
                f"m={self.m}: the Hadamard matrix needs a power of two; take {1 << self.m.bit_length()}"
            )

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
        """The probability q that the sign is flipped, a multiple of 2^-64 as near as a double can say it."""
        return self.flip_words / WORDS

    @property
    def epsilon(self) -> float:
        """The exact ε of one report, ln((1 − q)/q)."""
        return epsilon_of_words(self.flip_words, 2)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadamardSketch) and (self.flip_words, self.hashes) == (
            other.flip_words,
            other.hashes,
        )

    def __hash__(self) -> int:
        return hash((self.flip_words, self.hashes))

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> HadamardReports:
        """A report of each object (n,); the same stream gives the same, and report i does not depend on n.

        Raises:
            UsageError: ``objects`` are not whole numbers that the hash family knows.
        """
        objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
        functions, coordinates = (
            np.empty(objects.shape, np.uint32),
            np.empty(objects.shape, np.uint32),
        )
        signs = np.empty(objects.shape, np.int8)
        seed = seed_words(stream)
        _draw(
            functions, coordinates, signs, _U(self.functions), _U(self.m), _U(self.flip_words), seed
        )
        _sign(signs, coordinates, self.hashes.each(objects, functions))
        return HadamardReports(functions, coordinates, signs)

    def check(self, reports: HadamardReports) -> None:
        """Whether these can be reports of this mechanism.

        Raises:
            UsageError: a shape, a type, a function, a row or a sign that this mechanism does not
                make.
        """
        for name, values, limit in (
            ("function", reports.function, self.functions),
            ("coordinate", reports.coordinate, self.m),
        ):
            if values.shape != (len(reports.sign),) or values.dtype.kind not in "iu":
                raise UsageError(
                    f"{name}={values.shape} {values.dtype}: needs a whole number for each report"
                )
            if len(values) and not 0 <= values.min() <= values.max() < limit:
                raise UsageError(
                    f"{name}={values.min()} … {values.max()}: must lie in 0 … {limit - 1}"
                )
        if (
            reports.sign.dtype != np.int8
            or reports.sign.ndim != 1
            or not (np.abs(reports.sign) == 1).all()
        ):
            raise UsageError("sign=…: needs 1 or −1 (int8) for each report")

    def log_likelihood(
        self, reports: HadamardReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(report | object), (n, u), up to a constant: ε/2 where the sign is H[l, h_j(object)], else −ε/2.

        Raises:
            UsageError: not reports of this mechanism, or objects that the hash family does not
                know.
        """
        self.check(reports)
        objects = check_objects(objects, 1 << 63).astype(np.int64, copy=False)
        places = pair_positions(self.hashes, functions=reports.function, objects=objects)
        odd = (
            np.bitwise_count(places & reports.coordinate.astype(np.uint32, copy=False)[:, None]) & 1
        )
        return np.where(odd == (reports.sign < 0)[:, None], self.epsilon / 2, -self.epsilon / 2)
