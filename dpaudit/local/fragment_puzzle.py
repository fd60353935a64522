"""New words from two sketches per record, the server's side: fragments joined, then checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.errors import UsageError
from dpaudit.local.count_median_sketch import CountMedianServer
from dpaudit.local.inputs import check_merge
from dpaudit.local.sequence_fragments import FragmentReports, SequenceFragments

__all__ = ["Discovery", "SequenceFragmentsServer"]


@dataclass(frozen=True, slots=True)
class Discovery:
    """A word that the server found, and how many records it says were of it."""

    word: str
    count: float
    standard_error: float


class SequenceFragmentsServer:
    """Sums up records and solves the puzzle.

    Memory: (fragments + 1)·functions·m counts, whatever the number of records. Not documented:
    anything of Apple's server but its name, ``SequenceFragmentPuzzle+CountMedianSketch``, and the
    patents' outline (US 10,133,725, claim 1: the n-grams above a threshold are combined). The steps
    are those of Apple's "Learning with Privacy at Scale" (2017), Algorithm A_server-SFP, with
    thresholds of our own in place of the most frequent T.
    """

    def __init__(self, mechanism: SequenceFragments) -> None:
        """A server with no records yet, for devices with this ``mechanism``."""
        self.mechanism = mechanism
        self._sequence = CountMedianServer(mechanism.sequence)
        self._fragments = tuple(
            CountMedianServer(mechanism.fragment) for _ in range(mechanism.fragment_count)
        )

    @property
    def reports(self) -> int:
        """How many records were added."""
        return self._sequence.reports

    def add(self, reports: FragmentReports) -> None:
        """Take in records.

        Raises:
            UsageError: not records of the mechanism; nothing is added then.
        """
        whole, fragments = self.mechanism.parts(reports)
        self._sequence.add(whole)
        for server, part in zip(self._fragments, fragments, strict=True):
            server.add(part)

    def merge(self, other: SequenceFragmentsServer) -> None:
        """Take in all that another server of an equal mechanism has; the other stays as it is.

        Raises:
            UsageError: its mechanism differs, or it is this server.
        """
        check_merge(self, other)
        self._sequence.merge(other._sequence)
        for mine, theirs in zip(self._fragments, other._fragments, strict=True):
            mine.merge(theirs)

    def discover(
        self,
        *,
        alpha: float = 0.01,
        stray: float = 1.0,
        groups: int | None = None,
        most: int = 1_000_000,
    ) -> tuple[Discovery, ...]:
        """The words found, the most frequent first.

        1. At each fragment position, the pairs (piece, fragment) whose estimated count is above a
           threshold; chance lets about ``stray`` pairs in all through.
        2. Of each piece, every way to put one such fragment at each position, if it is a word and
           its piece is that one.
        3. Of these candidates, those whose estimate in the whole words' sketch is above a threshold
           that one absent word among them all passes with probability about ``alpha``.

        Both thresholds are normal quantiles times :meth:`CountMedianServer.standard_error`. The
        third step uses coins that the first two have not seen. Not claimed: an exact ``alpha``
        (normal approximation; a word so popular that it moves the median where it collides; a rare
        word that was really sent is no invention). A word is found if about √(2·ln(pairs)) standard
        errors of *every* fragment's count lie below its own share of it.

        Raises:
            UsageError: too few records for ``groups`` (default: every hash function); ``alpha`` or
                ``stray`` out of range; more than ``most`` candidates (lower ``stray``).
        """
        if not (0 < alpha < 0.5 and stray > 0):
            raise UsageError(f"alpha={alpha}, stray={stray}: alpha in (0, 0.5), stray above 0")
        candidates = self._candidates(stray, groups, most)
        if not len(candidates):
            return ()
        found = self._sequence.estimate(candidates, groups=groups)
        error = self._sequence.standard_error(groups=groups)
        sure = found > error * _quantile(alpha / len(candidates))
        order = np.argsort(-found[sure], kind="stable")
        names = self.mechanism.words.decode(candidates[sure][order])
        return tuple(
            Discovery(n, float(c), error) for n, c in zip(names, found[sure][order], strict=True)
        )

    def _frequent(self, position: int, tail: float, groups: int | None) -> npt.NDArray[np.int64]:
        server = self._fragments[position]
        counts = server.estimate(np.arange(self.mechanism.tokens, dtype=np.int64), groups=groups)
        return np.flatnonzero(counts > server.standard_error(groups=groups) * _quantile(tail))

    def _candidates(self, stray: float, groups: int | None, most: int) -> npt.NDArray[np.int64]:
        device = self.mechanism
        tail = min(0.5, stray / (device.tokens * device.fragment_count))
        size = device.words.base**device.fragment_width
        frequent = [
            self._frequent(position, tail, groups) for position in range(device.fragment_count)
        ]
        by_piece = [
            [tokens[tokens // size == piece] % size for tokens in frequent]
            for piece in range(device.puzzle_count)
        ]
        total = sum(math.prod(len(choices) for choices in pieces) for pieces in by_piece)
        if total > most:
            raise UsageError(
                f"most={most}: {total} ways to join fragments; lower stray={stray}, or raise most"
            )
        kept = [np.empty(0, np.int64)]
        for piece, pieces in enumerate(by_piece):
            joined = np.zeros(1, np.int64)
            for choices in pieces:
                joined = np.add.outer(joined * size, choices).ravel()
            fits = device.words.whole(joined) & (device.pieces(joined) == piece)
            kept.append(joined[fits])
        return np.concatenate(kept)


def _quantile(tail: float) -> float:
    """How many standard deviations a normal number exceeds with probability ``tail``."""
    return float(-scipy.special.ndtri(tail))
