"""Rounds of the distinguishing game: a coin, a pair of neighbours, a release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpaudit.experiments.arm import Arm
from dpaudit.numeric.arrays import tensor
from dpaudit.protocols import Array, Stream
from dpaudit.stats import clopper_pearson

__all__ = ["Batch", "batches", "interval", "share", "tensor_batches"]

_BATCH_BYTES = 64 << 20


@dataclass(frozen=True)
class Batch:
    """Rounds: the arm, pairs (n, 2, d), truth (n,) in {0, 1}, the true queries (n, d).

    Arrays or tensors, as the host gives them.
    """

    arm: Arm
    first: bool
    pairs: Array
    truth: Array
    query: Array
    stream: Stream

    def release(self) -> Array:
        """What the arm releases for these queries, shape (n, d)."""
        return self.arm.mitigation.release(
            self.query, self.arm.source, stream=self.stream.child("release")
        )


def share(trials: int, keys: int) -> list[int]:
    """``trials`` split over ``keys`` as evenly as possible; keys beyond the trials get none."""
    return [n for n in (trials * (i + 1) // keys - trials * i // keys for i in range(keys)) if n]


def batches(arm: Arm, *, trials: int, keys: int = 1) -> Iterator[Batch]:
    """All rounds of a cell, in batches that fit in memory; the key changes ``keys`` − 1 times."""
    limit = max(1, _BATCH_BYTES // (16 * arm.host.dim))
    for index, total in enumerate(share(trials, keys)):
        renewed = arm.with_key(index)
        for start in range(0, total, limit):
            n = min(limit, total - start)
            stream = arm.stream.child("key", index, "batch", start)
            pairs = arm.host.neighbours(n, stream=stream.child("pairs"))
            truth = stream.child("coins").numpy().integers(0, 2, n)
            query = pairs[np.arange(n), truth]
            truth = truth if isinstance(pairs, np.ndarray) else tensor(truth)
            yield Batch(renewed, index == 0 and start == 0, pairs, truth, query, stream)


def tensor_batches(arm: Arm, *, trials: int, keys: int = 1) -> Iterator[Batch]:
    """The same rounds as tensors, for measures that are written with torch."""
    for batch in batches(arm, trials=trials, keys=keys):
        pairs, truth, query = map(tensor, (batch.pairs, batch.truth, batch.query))
        yield replace(batch, pairs=pairs, truth=truth, query=query)


def interval(successes: int, trials: int) -> dict[str, float]:
    """A share with its 95 % Clopper-Pearson interval, as reports read it."""
    bounds = clopper_pearson(successes, trials)
    return {"value": successes / trials, "low": bounds.low, "high": bounds.high}
