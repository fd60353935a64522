"""The device's side of both mean sketches: hash functions, and the coin that flips bits."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit_local.coins import LARGEST_EPSILON, WORDS, epsilon_of_words, lying_words
from dpaudit_local.hashing import HashFamily, pair_positions, sketch_hashes
from dpaudit_local.inputs import check_objects, privacy_number

__all__ = ["MeanSketch"]


class MeanSketch(abc.ABC):
    """A public family of hash functions, and bits that are flipped with probability q.

    ``differing`` is the largest number of bits in which the reports of two objects differ before
    the flips, so that ε = differing·ln((1 − q)/q).
    """

    differing = 1

    def __init__(
        self,
        epsilon: float = 4.0,
        *,
        m: int | None = None,
        functions: int | None = None,
        hashes: HashFamily | None = None,
        seed: int = 0,
    ) -> None:
        """Use your own ``hashes``, or ``functions`` (65,536) random ones of ``seed``.

        They lead to ``m`` (1,024) positions.

        Raises:
            UsageError: ε not above 0 or beyond 32·``differing``; an ``m`` that the sketch refuses
                (a Count Mean Sketch takes multiples of 8, a Hadamard one powers of two);
                ``hashes`` that are no family; ``m`` or ``functions`` that are not theirs.
        """
        epsilon = privacy_number("epsilon", epsilon, self.differing * LARGEST_EPSILON)
        self.flip_words = lying_words(epsilon / self.differing, 2)
        self.hashes = sketch_hashes(hashes, functions=functions, m=m, seed=seed)
        self._check_m()

    @abc.abstractmethod
    def _check_m(self) -> None:
        """Refuse a number of positions that the sketch cannot have."""

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
        """The probability q of a flip: a multiple of 2^-64, rounded to a double."""
        return self.flip_words / WORDS

    @property
    def epsilon(self) -> float:
        """The exact ε of one report, differing·ln((1 − q)/q)."""
        return self.differing * epsilon_of_words(self.flip_words, 2)

    def _law(self) -> tuple[object, ...]:
        return self.flip_words, self.hashes

    def __eq__(self, other: object) -> bool:
        """The same kind of sketch (one class is the other's), coin and hash functions."""
        if not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return False
        return isinstance(other, MeanSketch) and self._law() == other._law()

    def __hash__(self) -> int:
        return hash(self._law())

    @staticmethod
    def _objects(objects: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return check_objects(objects, 1 << 63).astype(np.int64, copy=False)

    def _places(
        self, functions: npt.NDArray[np.unsignedinteger[Any]], objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint32]:
        """The position of each object (u,) under each of ``functions`` (n,): shape (n, u)."""
        return pair_positions(self.hashes, functions=functions, objects=self._objects(objects))
