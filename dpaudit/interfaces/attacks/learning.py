"""Which statistic separates releases at two values, learned from examples?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["LEARNING", "LearningAttack"]


@runtime_checkable
class LearningAttack(Protocol):
    """Learns to separate releases at two known values.

    With the class attribute ``timed = True`` releases have one more column, the last: the seconds
    of the call.
    """

    timed: bool

    def learn(
        self,
        first: npt.NDArray[np.float64],
        second: npt.NDArray[np.float64],
        *,
        neighbours: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    ) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
        """A map from other releases (t, k) to scores (t,), larger for a likelier second neighbour.

        ``first`` and ``second`` (t, k) were released at the two ``neighbours``, query results (m,).
        """


LEARNING = Game(
    name="learning",
    protocol=LearningAttack,
    sees="releases at two neighbouring values, and which is from which",
    says="a statistic of other releases",
    success="it is larger for releases at the second value, "
    "counted on releases that it has not seen",
    knows="both neighbours",
    releases="many at each neighbour",
    labels=True,
    used_by=("dpaudit mechanism --attack",),
)
