"""Queries whose results are released with noise: ``dpaudit.hosts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dpaudit.interfaces.arrays import Array
    from dpaudit.interfaces.streams import Stream

__all__ = ["Host"]


@runtime_checkable
class Host(Protocol):
    """Turns data into pairs of neighbouring query results of known L2 sensitivity.

    ``differences`` are those that the query's definition allows, for any data: all d unit vectors
    of a histogram, not the non-empty bins. Where they are too many to list, a method
    ``slack(direction) -> float`` bounds the distance from any other neighbour's difference to the
    nearest of ``differences``, Δ for the whole ball of a clipped gradient; without it, 0.
    """

    @property
    def dim(self) -> int:
        """Length d of a query result."""

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity Δ of the query."""

    def neighbours(self, n: int, *, stream: Stream) -> Array:
        """Query results of ``n`` random pairs of neighbours (D, D′), shape (n, 2, d), float64.

        Arrays or tensors; a host always gives the same kind.
        """

    def differences(self, direction: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """⟨q(D) − q(D′), direction⟩ over all neighbours, shape (m,), float64; see the class."""
