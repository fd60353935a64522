"""What only some calls, shapes or processes show, and values that come back after a long while."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Series, Specimen, each, flat

__all__ = ["SPECIMENS"]


def _replayed(length: int, after: int) -> Make:
    """``length`` values from place 500,000 on come once more ``after`` values later."""

    def begin(rng: np.random.Generator) -> Series:
        kept = rng.standard_normal(length)
        at = 0

        def following(m: int) -> Array:
            nonlocal at
            z = rng.standard_normal(m)
            for start in (500_000, 500_000 + after):
                low, high = max(start, at), min(start + length, at + m)
                if low < high:
                    z[low - at : high - at] = kept[low - start : high - start]
            at += m
            return z

        return following

    return flat(begin)


def _single_repeats(rate: float, lag: int) -> Make:
    """At this rate a value is exactly that ``lag`` values before."""

    def begin(rng: np.random.Generator) -> Series:
        past = rng.standard_normal(lag)
        at = 0

        def following(m: int) -> Array:
            nonlocal at
            z = rng.standard_normal(m)
            for start in range(0, m, lag):
                part = z[start : start + lag]
                places = np.arange(at, at + len(part)) % lag
                hit = rng.random(len(part)) < rate
                part[hit] = past[places[hit]]
                past[places] = part
                at = (at + len(part)) % lag
            return z

        return following

    return flat(begin)


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


def _start(length: int, factor: float) -> Make:
    """The first values of a process are scaled."""

    def begin(rng: np.random.Generator) -> Series:
        at = 0

        def following(m: int) -> Array:
            nonlocal at
            z = rng.standard_normal(m)
            z[: max(0, length - at)] *= factor
            at += m
            return z

        return following

    return flat(begin)


def _seventh(rng: np.random.Generator, z: Array) -> Array:
    del rng
    return z * (0.5 if z.shape[1] > 100 and z.shape[1] % 7 == 0 else 1.0)


def _running(name: str, says: str, make: Make, why: str, **rest: str) -> Specimen:
    return Specimen(name, "running", says, make, why=why, **rest)  # type: ignore[arg-type]


SPECIMENS = (
    _running("replay-300", "300 values come again 8 million values later",
             _replayed(300, 8_000_000), "300 equal doubles in a row"),
    _running("replay-8", "8 values come again 5 million values later", _replayed(8, 5_000_000),
             "8 equal doubles in a row: honest ones would be with probability 10^-300"),
    _running("repeats-1e-5", "one value in 10^5 is that of a million values before",
             _single_repeats(1e-5, 1_000_000),
             "90 pairs of equal doubles, where honest doubles have fewer than one"),
    _running("shape-again", "the 70,000th call of a shape begins as its first did", _shape_again,
             "8 equal doubles in a row, if some shape is asked for that often"),
    _running("process-start-1.1", "the first 64 values of a process have σ = 1.1", _start(64, 1.1),
             "7.5 standard errors over the beginnings of 40 processes"),
    _running("special-d211", "half the scale where d = 211",
             each(lambda _, z: z * (0.5 if z.shape[1] == 211 else 1.0)),
             "one row of every d up to 4,096 costs 8.4·10^6 values, and shows it"),
    _running("special-sevenths", "half the scale where d > 100 is a multiple of 7",
             each(_seventh), "one row each of a hundred random d: all miss with probability 10^-7"),
    _running("special-n7", "0.9 of the scale where a call asks for 7 rows",
             each(lambda _, z: z * (0.9 if z.shape[0] == 7 else 1.0)),
             "found if calls of every n up to 16 are made, 2,000 values each",
             expected="borderline"),
)  # fmt: skip
