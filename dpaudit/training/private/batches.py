"""Batches of a training run by the coins of one party."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpaudit.protocols import BatchCoins, Stream
from dpaudit.vectors.batch_coins import coin_words, members

__all__ = ["HonestCoins", "OneParty"]


class HonestCoins:
    """Coins that nothing but their own stream decides on."""

    def __init__(self, stream: Stream) -> None:
        """From the stream of a party that keeps it to itself."""
        self._stream = stream

    def share(self) -> bytes:
        """The next 32 bytes of the stream."""
        return self._stream.bytes(32)


class OneParty:
    """Poisson batches by the coins of one party: no mitigation, the baseline."""

    trusts = "the one party, for its coins"
    parties = 1

    def draw(
        self, coins: Sequence[BatchCoins], records: int, *, rate: float
    ) -> npt.NDArray[np.bool_]:
        """Who of ``records`` is in the next batch, each with probability ``rate``.

        Raises:
            UsageError: a rate outside (0, 1].
        """
        (party,) = coins
        return members(coin_words(party.share(), records), rate=rate)

    def known(self, rate: float) -> float:
        """The whole batch: ``rate``."""
        return rate
