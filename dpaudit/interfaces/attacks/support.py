"""Which values cannot have led to this release?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["SUPPORT", "SupportAttack"]


@runtime_checkable
class SupportAttack(Protocol):
    """Says which values cannot have led to a release, by exact arithmetic or replay."""

    def feasible(
        self, releases: npt.NDArray[np.float64], value: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Whether each unit (coordinate, pair) of a release can have come from ``value``.

        Shapes: ``releases`` (t, k), ``value`` (k,), result (t, u). One False rules the value out.
        All True at the value that a release was made from, if the mechanism is the one that the
        attack is for. Each row is judged by itself, so independent releases give independent
        events. An attack that must look at several releases first offers ``settled(*releases)``,
        which returns one that no longer does; it is called before anything is counted.

        Raises:
            UsageError: wrong shapes, or numbers that are not finite.
        """


SUPPORT = Game(
    name="support",
    protocol=SupportAttack,
    sees="one release with all its bits, and a value that it may be of",
    says="that the value is possible, or ruled out",
    success="a wrong value is ruled out; the right one never may be",
    knows="a guess of the value",
    releases="1",
    labels=False,
    used_by=("dpaudit mechanism --attack",),
)
