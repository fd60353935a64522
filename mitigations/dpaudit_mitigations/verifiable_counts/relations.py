"""Many claims that sums of multiples of points vanish, checked as one."""

from __future__ import annotations

from dpaudit_mitigations.verifiable_counts.group import IDENTITY, L, blinding_multiple, sum_of_multiples

__all__ = ["BLINDING_BASE", "Relation"]

BLINDING_BASE = blinding_multiple(1)


class Relation:
    """A sum of multiples of points that should be the identity; terms with the same point are one.

    Several claims go into one relation under random weights drawn after all of them were made: if any is false, the sum
    vanishes with probability 1/L at most (it is a line in that claim's weight).
    """

    def __init__(self) -> None:
        self._terms: dict[bytes, int] = {}

    def add(self, point: bytes, scalar: int) -> None:
        """Add ``scalar``·``point``; the point is valid (decoded)."""
        self._terms[point] = (self._terms.get(point, 0) + scalar) % L

    def holds(self) -> bool:
        """Whether the sum is the identity."""
        return sum_of_multiples(list(self._terms), list(self._terms.values())) == IDENTITY
