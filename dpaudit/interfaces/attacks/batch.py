"""Who is in the next batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dpaudit.interfaces.attacks.game import Game

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dpaudit.interfaces.arrays import Array

__all__ = ["BATCH", "BatchAttack"]


@runtime_checkable
class BatchAttack(Protocol):
    """Names the records of the batch after a release."""

    def next_batches(
        self, sums: Array, *, records: int
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Who of ``records`` is in the batch after each noisy sum (t, d): (t, records).

        And whether that is known, (t,); where it is not, nobody is named.
        """


BATCH = Game(
    name="batch",
    protocol=BatchAttack,
    sees="the noisy sum of a DP-SGD step, or the weights before and after it",
    says="which records are in the next step's batch",
    success="these and no others are",
    knows="the number of records, the rate and the network's last layer; nothing of the gradients",
    releases="1 per batch",
    labels=False,
    used_by=("dpaudit run",),
)
