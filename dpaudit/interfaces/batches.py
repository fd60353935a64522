"""Who decides on a DP-SGD step's batch: ``dpaudit.batches``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["BatchCoins", "BatchDraw"]


@runtime_checkable
class BatchCoins(Protocol):
    """One party's coins: ``dpaudit.vectors.batch_coins`` makes a batch of them."""

    def share(self) -> bytes:
        """32 secret bytes that make the coins of the next batch; another 32 at each call."""


@runtime_checkable
class BatchDraw(Protocol):
    """Makes a Poisson batch of the coins of one party or more."""

    trusts: str
    """Who must be trusted for what, in one line."""
    parties: int
    """How many parties' coins it takes."""

    def draw(
        self, coins: Sequence[BatchCoins], records: int, *, rate: float
    ) -> npt.NDArray[np.bool_]:
        """Who of ``records`` is in the next batch, each with probability ``rate``: (records,)."""

    def known(self, rate: float) -> float:
        """The chance of a coin that the owner of the first party's coins knows of each record.

        A record is in the batch if that coin and one of chance ``rate/known``, which stays hidden,
        both say so: ``rate`` if the whole batch is known, 1 if nothing of it is.
        """
