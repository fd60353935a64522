"""At which neighbours does a mechanism move by more than it may?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["PROBING", "ProbingAttack"]


@runtime_checkable
class ProbingAttack(Protocol):
    """Brings the neighbours itself: pairs that a mechanism may fail to hide from each other."""

    def pairs(self) -> Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
        """Pairs of neighbouring values (m,) with a few words on what each probes."""


PROBING = Game(
    name="probing",
    protocol=ProbingAttack,
    sees="nothing: it chooses the neighbouring values",
    says="pairs of values",
    success="releases at a pair are further apart than the mechanism claims",
    knows="bounds and size of the data",
    releases="none",
    labels=False,
    used_by=("dpaudit mechanism --attack",),
)
