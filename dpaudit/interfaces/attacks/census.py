"""What are the true counts behind a hierarchy of noisy tables?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["CENSUS", "CensusAttack"]


@runtime_checkable
class CensusAttack(Protocol):
    """Weighs true counts of a geography by what is published of it, its siblings and parents."""

    def weigh(
        self,
        sights: Sequence[Any],
        change: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        """Scores (m,) of "the target's counts are what is known plus step × ``change``".

        ``sights`` are :class:`dpaudit.hosts.topdown.sight.Sight`; a higher score is likelier.
        """


CENSUS = Game(
    name="census",
    protocol=CensusAttack,
    sees="the noisy measurements of a hierarchy of geographies, or only the tables made from them",
    says="a score for each of several true tables of one geography",
    success="the true one has the highest score",
    knows="all counts but those in question",
    releases="1",
    labels=False,
    used_by=("dpaudit run",),
)
