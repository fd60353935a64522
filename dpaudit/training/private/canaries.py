"""Canaries: records whose membership is a fair coin, to be guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpaudit.errors import UsageError
from dpaudit.protocols import Stream
from dpaudit.training.data import Images

__all__ = ["Canaries", "mislabelled"]

_CLASSES = 10


@dataclass(frozen=True)
class Canaries:
    """Record numbers (K,), and whether each is a member of the training set (K,)."""

    records: npt.NDArray[np.int64]
    member: npt.NDArray[np.bool_]

    @classmethod
    def draw(cls, number: int, *, of: int, stream: Stream) -> Canaries:
        """``number`` different random records of ``of``, each a member by a fair coin of its own.

        Raises:
            UsageError: a negative number, or more than half the records.
        """
        if not 0 <= number <= of // 2:
            raise UsageError(f"canaries={number}: must lie in 0 … {of // 2}, half the records")
        rng = stream.numpy()
        return cls(
            rng.choice(of, number, replace=False).astype(np.int64), rng.integers(0, 2, number) == 1
        )

    @classmethod
    def none(cls) -> Canaries:
        """No canary: all records are trained on."""
        return cls(np.empty(0, np.int64), np.empty(0, np.bool_))

    def training_records(self, of: int) -> npt.NDArray[np.int64]:
        """All of ``of`` records except canaries that are no members, shape (n,), ascending."""
        kept = np.ones(of, np.bool_)
        kept[self.records[~self.member]] = False
        return np.flatnonzero(kept)


def mislabelled(images: Images, records: npt.NDArray[np.int64], *, stream: Stream) -> Images:
    """``images`` with a random wrong class for each of ``records`` (m,).

    Such a record stays hard, and its gradient long.
    """
    labels = images.labels.copy()
    labels[records] = (
        labels[records] + stream.numpy().integers(1, _CLASSES, len(records))
    ) % _CLASSES
    return replace(images, labels=labels)
