"""One-bit histogram: one random position of the object's signs, and the sign there, maybe flipped.

Documented. Tang et al. (2017) show records ``position,±1`` of the algorithm
OneBitHistogram with parameters epsilon = 1 and p = 5000 (Figure 11), database rows of a bit
position and a bit value with positions below 5000 (Figure 1), and that the device calls
``randomizedBitForString`` and keeps its ``index`` and ``value`` (Figure 22). One position in Figure
11, 49477827, is not below 5000; why, the paper does not say.

Our reading. The vector behind the bit is shown nowhere. Here it is the indicator of the
object (+1 at the object's own position, −1 elsewhere: ``vector="one-hot"``) or a vector of public
random signs that belongs to the object (``vector="signs"``, the basic randomizer of Bassily and
Smith 2015, arXiv 1504.04686, Algorithm 1). That the position is uniform and the flip's probability
1/(1 + e^ε) is our reading too.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.coins import WORDS, epsilon_of_words, lying_words
from dpaudit_local.mechanisms.hashing import HashFamily, RandomHashes
from dpaudit_local.mechanisms.reports import BitReports, check_objects, whole_number

__all__ = ["OneBitHistogram"]

_BLOCK = 1 << 14


class OneBitHistogram:
    """A random position j and the object's sign there, flipped with probability 1/(1 + e^ε).

    Formal guarantee: ``epsilon``-differential privacy of one report. The position is drawn without
    looking at the object and so cancels; the sign there has probability K (kept) or F (flipped),
    and K/F ≤ e^ε is the ratio of any two objects that differ at j (for sign vectors, ε is exact if
    some two do). Both are whole multiples of 2^-64, F rounded up, and :attr:`epsilon` is ln(K/F) of
    that very law. A position's probability is 1/p to within 2^-64, which touches the estimates'
    bias (below p·2^-64 of a count) and not ε. All words are ``Stream.bytes``. Not claimed: anything
    about two reports on one object (their ε add up); constant time.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        positions: int = 5000,
        vector: Literal["one-hot", "signs"] = "one-hot",
        universe: int | None = None,
        hashes: HashFamily | None = None,
        seed: int = 0,
    ) -> None:
        """Objects are 0 … ``universe`` − 1, by default as many as there are ``positions``.

        With ``vector="signs"`` an object's sign at position j is 1 − 2·(its value under hash
        function j): ``hashes`` has as many functions as there are positions, and ``size`` 2; the
        default one is drawn from ``seed``.

        Raises:
            UsageError: ε not above 0 or beyond 32; ``positions`` below 2 or above 2^32; ``vector``
                neither of the two; one-hot vectors of more objects than positions; hashes of
                another shape, or for one-hot vectors.
        """
        self.flip_words = lying_words(epsilon, 2)
        positions = whole_number("positions", positions, 2, 1 << 32, hint="; Apple's p is 5000")
        if vector not in ("one-hot", "signs"):
            raise UsageError(f"vector={vector}: must be one-hot or signs")
        universe = whole_number("universe", positions if universe is None else universe, 2)
        if vector == "one-hot" and universe > positions:
            raise UsageError(
                f"universe={universe}: one-hot vectors have a position for each object; use signs"
            )
        if vector == "one-hot" and hashes is not None:
            raise UsageError(
                f"hashes={hashes}: one-hot vectors use none; leave them out, or use signs"
            )
        if vector == "signs" and hashes is None:
            stream = KeyedStream.from_seed(seed).child("one-bit histogram's signs")
            hashes = RandomHashes(positions, 2, stream=stream)
        if hashes is not None and (hashes.size != 2 or hashes.count != positions):
            raise UsageError(
                f"hashes={hashes.count} functions of size {hashes.size}: "
                "signs take one function per position, of size 2"
            )
        self.positions, self.vector = positions, vector
        self.universe, self.hashes = universe, hashes

    @property
    def epsilon(self) -> float:
        """The exact ε of one report, ln(K/F)."""
        return epsilon_of_words(self.flip_words, 2)

    @property
    def flip(self) -> float:
        """F, the probability of the wrong sign."""
        return self.flip_words / WORDS

    def signs(
        self, objects: npt.NDArray[np.int64], positions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.int8]:
        """Each object's (n,) true sign ±1 at a position (n,) of its own.

        Raises:
            UsageError: objects or positions of another type, out of range, or not as many of the
                one as of the other.
        """
        objects = check_objects(objects, self.universe).astype(np.int64)
        positions = check_objects(positions, self.positions, name="positions").astype(np.uint32)
        if len(positions) != len(objects):
            raise UsageError(f"positions={len(positions)}: one for each of {len(objects)} objects")
        return self._signs(objects, positions)

    def _signs(
        self, objects: npt.NDArray[np.int64], positions: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.int8]:
        if self.hashes is None:
            return np.where(objects == positions, np.int8(1), np.int8(-1))
        return (1 - 2 * self.hashes.each(objects, positions).astype(np.int8)).astype(np.int8)

    def privatize(self, objects: npt.NDArray[np.int64], *, stream: Stream) -> BitReports:
        """A position and a sign for each object (n,), independent of each other.

        The same stream gives the same reports.

        Raises:
            UsageError: objects of another shape or type, or outside 0 … ``universe`` − 1.
        """
        objects = check_objects(objects, self.universe).astype(np.int64)
        source = stream.child("one-bit-histogram")
        position = np.empty(len(objects), dtype=np.uint32)
        sign = np.empty(len(objects), dtype=np.int8)
        p, lie = np.uint64(self.positions), np.uint64(self.flip_words)
        for start in range(0, len(objects), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(objects)))
            words = np.frombuffer(source.bytes(16 * (rows.stop - start)), dtype="<u8").reshape(
                2, -1
            )
            position[rows] = words[0] - words[0] // p * p
            factor = 1 - 2 * (words[1] < lie).view(np.int8)
            sign[rows] = self._signs(objects[rows], position[rows]) * factor
        return BitReports(position, sign)

    def log_likelihood(
        self, reports: BitReports, objects: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of P(sign | position, object), shape (n, u).

        It is ln P(report | object) without the position's −ln p.

        Raises:
            UsageError: objects, positions or signs of another shape or type, or out of range.
        """
        objects = check_objects(objects, self.universe).astype(np.int64)
        position, sign = self._check(reports)
        keep, flip = math.log1p(-self.flip), math.log(self.flip)
        columns = [
            np.where(self._signs(np.full(len(position), x), position) == sign, keep, flip)
            for x in objects.tolist()
        ]
        return np.stack(columns, axis=1) if columns else np.empty((len(position), 0))

    def _check(self, reports: BitReports) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int8]]:
        position = check_objects(reports.position, self.positions, name="reports.position")
        sign = np.asarray(reports.sign)
        if sign.shape != position.shape or not np.isin(sign, (-1, 1)).all():
            raise UsageError(
                "reports.sign: each is −1 or +1, one for each position; a bit 0 of a database is −1"
            )
        return position.astype(np.uint32), sign.astype(np.int8)
