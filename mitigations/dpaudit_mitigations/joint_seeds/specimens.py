"""LAB SPECIMEN: a server that follows the protocol but for one candidate, whose noise is its own."""

from __future__ import annotations

from typing import Any

from dpaudit_mitigations.joint_seeds.derivation import Blocks, Integers, vector_blocks
from dpaudit_mitigations.joint_seeds.server import Server

__all__ = ["SubstitutingServer"]


class SubstitutingServer(Server):
    """LAB SPECIMEN. Commits to ``substitute`` (dim,) int64, in steps, as the noise of ``candidate``, and hopes that the coin
    chooses it: with probability 1/k it releases the query plus that; else it is caught.
    """

    def __init__(self, steps: Integers, *, candidate: int, substitute: Integers, **options: Any) -> None:
        super().__init__(steps, **options)
        self._candidate, self._substitute = candidate, substitute

    def noise(self, index: int) -> Blocks:
        """Its own for that candidate, the seeds' for the others."""
        return vector_blocks(self._substitute) if index == self._candidate else super().noise(index)
