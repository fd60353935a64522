"""What only some calls, shapes or processes show, and values that come back after a long while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.running import replayed, scaled_between
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen, carried, each

__all__ = ["SPECIMENS"]

_FIRST = 500_000  # where what is replayed begins


def _single_repeats(rate: float, lag: int) -> Make:
    """At this rate a value is exactly that ``lag`` values before."""

    def step(rng: np.random.Generator, kept: tuple[Array, int], m: int) -> tuple[Array, Any]:
        past, at = kept
        z = rng.standard_normal(m)
        for start in range(0, m, lag):
            part = z[start : start + lag]
            places = np.arange(at, at + len(part)) % lag
            hit = rng.random(len(part)) < rate
            part[hit] = past[places[hit]]
            past[places] = part
            at = (at + len(part)) % lag
        return z, (past, at)

    return carried(lambda rng: (rng.standard_normal(lag), 0), step)


def _where(chosen: Callable[[int, int], bool], factor: float) -> Make:
    """Scaled in calls of chosen shapes (n, d)."""
    return each(lambda _, z: z * (factor if chosen(*z.shape) else 1.0))


def _shape_again(stream: KeyedStream) -> Draw:
    """The 70,000th call of one shape gives the first 8 values of its first call again."""
    rng, calls = stream.numpy(), Counter[tuple[int, int]]()
    first: dict[tuple[int, int], Array] = {}

    def draw(n: int, d: int) -> Array:
        z = rng.standard_normal(n * d)
        calls[n, d] += 1
        if calls[n, d] == 1:
            first[n, d] = z[:8].copy()
        elif calls[n, d] == 70_000:
            z[:8] = first[n, d]
        return z.reshape(n, d)

    return draw


_running = partial(Specimen, family="running")

SPECIMENS = (
    _running("replay-8", "8 values come again 5 million values later",
             replayed(8, 5_000_000, first=_FIRST),
             "8 equal doubles in a row: honest ones would be with probability 10^-300"),
    _running("repeats-1e-5", "one value in 10^5 is that of a million values before",
             _single_repeats(1e-5, 1_000_000),
             "90 pairs of equal doubles, where honest doubles have fewer than one"),
    _running("shape-again", "the 70,000th call of a shape begins as its first did", _shape_again,
             "8 equal doubles in a row, if some shape is asked for that often"),
    _running("process-start-1.1", "the first 64 values of a process have σ = 1.1",
             scaled_between(0, 64, 1.1),
             "7.5 standard errors over the beginnings of 40 processes"),
    _running("special-sevenths", "half the scale where d > 100 is a multiple of 7",
             _where(lambda _, d: d > 100 and d % 7 == 0, 0.5),
             "one row each of a hundred random d: all miss with probability 10^-7"),
    _running("special-n7", "0.9 of the scale where a call asks for 7 rows",
             _where(lambda n, _: n == 7, 0.9),
             "found if calls of every n up to 16 are made, 2,000 values each",
             expected="borderline"),
)  # fmt: skip
