"""Flaws of the running sampler: drift, repeated seeds, replay, triggers; each block looks right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpaudit.randomness import KeyedStream
from dpaudit_studies.zoo.specimen import Array, Draw, Make, Specimen, carried, each, placed

__all__ = ["SPECIMENS", "replayed", "scaled_between"]

_LONG = 10_000_000


def _wandering_mean(at_end: float) -> Make:
    """The mean is a random walk that is about ``at_end`` away after 10^7 values."""
    size = at_end / _LONG**0.5

    def step(rng: np.random.Generator, mean: float, m: int) -> tuple[Array, float]:
        walk = mean + np.cumsum(size * rng.standard_normal(m))
        return np.asarray(walk + rng.standard_normal(m)), float(walk[-1])

    return carried(lambda _: 0.0, step)


def _shrinking(total: float) -> Make:
    """σ falls by ``total`` over 10^7 values, around 1, and then stays."""

    def change(z: Array, at: int) -> Array:
        age = np.minimum(np.arange(at, at + len(z)) / _LONG, 1.0)
        return np.asarray(z * (1 + total * (0.5 - age)))

    return placed(change)


def scaled_between(start: int, stop: int, factor: float) -> Make:
    """Values from ``start`` up to ``stop``, counted from the beginning, are scaled."""

    def change(z: Array, at: int) -> None:
        z[max(0, start - at) : max(0, stop - at)] *= factor

    return placed(change)


def _counted(change: Callable[[int, Array], Array]) -> Make:
    """``change`` takes the number of the call, from 0."""

    def make(stream: KeyedStream) -> Draw:
        rng, calls = stream.numpy(), itertools.count()
        return lambda n, d: change(next(calls), rng.standard_normal((n, d)))

    return make


def _reseeded(seed: Callable[[int, np.random.Generator], int]) -> Make:
    """Each call starts a generator afresh under a short seed made from its number or at random."""

    def make(stream: KeyedStream) -> Draw:
        rng, calls = stream.numpy(), itertools.count()
        secret = int.from_bytes(stream.entropy()[:8], "big") << 64

        def draw(n: int, d: int) -> Array:
            bits = np.random.Philox(key=secret | seed(next(calls), rng))
            return np.random.Generator(bits).standard_normal((n, d))

        return draw

    return make


def _fixed_seed(stream: KeyedStream) -> Draw:
    del stream
    rng = KeyedStream.from_seed("always the same").numpy()
    return lambda n, d: rng.standard_normal((n, d))


def _short_seed(bits: int) -> Make:
    def make(stream: KeyedStream) -> Draw:
        seed = int.from_bytes(stream.entropy()[:8], "big") % (1 << bits)
        rng = np.random.Generator(np.random.PCG64(seed))
        return lambda n, d: rng.standard_normal((n, d))

    return make


def replayed(length: int, after: int, *, first: int = 0) -> Make:
    """``length`` values from place ``first`` on come once more ``after`` values later."""

    def step(rng: np.random.Generator, kept: tuple[Array, int], m: int) -> tuple[Array, Any]:
        values, at = kept
        z = rng.standard_normal(m)
        for start in (first, first + after):
            low, high = max(start, at), min(start + length, at + m)
            if low < high:
                z[low - at : high - at] = values[low - start : high - start]
        return z, (values, at + m)

    return carried(lambda rng: (rng.standard_normal(length), 0), step)


def _recycled(length: int) -> Make:
    """Dealt out from a pool of so many values, over and over."""

    def step(_: np.random.Generator, kept: tuple[Array, int], m: int) -> tuple[Array, Any]:
        pool, at = kept
        return pool[np.arange(at, at + m) % length], (pool, (at + m) % length)

    return carried(lambda rng: (rng.standard_normal(length), 0), step)


def _copied_rows(rate: float) -> Make:
    """At this rate a row is a copy of the row before it in the same call."""

    def change(rng: np.random.Generator, z: Array) -> Array:
        hit = 1 + np.flatnonzero(rng.random(len(z) - 1) < rate)
        z[hit] = z[hit - 1]
        return z

    return each(change)


def _first_row(call: int, z: Array) -> Array:
    del call
    z[0] *= 1.1
    return z


def _every(period: int, factor: float) -> Make:
    """The last of every ``period`` calls is scaled."""
    return _counted(lambda call, z: z * factor if call % period == period - 1 else z)


def _at_dim(d: int, factor: float) -> Make:
    """Scaled where that is the requested dimension."""
    return each(lambda _, z: z * factor if z.shape[1] == d else z)


_running = partial(Specimen, family="running")

SPECIMENS = (
    _running("mean-wanders", "the mean walks about 0.02 away in 10^7 values",
             _wandering_mean(0.02)),
    _running("sigma-falls-1pc", "σ falls by 1 % over 10^7 values", _shrinking(0.01)),
    _running("warm-up", "the first 1,000 values have σ = 1.3", scaled_between(0, 1000, 1.3),
             expected="borderline",
             why="plain in those 1,000 values, lost among 10^7: only a look at the start alone "
                 "sees it"),
    _running("late-5pc", "σ is 5 % too large after 9.8 million values",
             scaled_between(9_800_000, 1 << 62, 1.05)),
    _running("seed-every-65536", "call k repeats call k - 65,536",
             _reseeded(lambda call, _: call % (1 << 16))),
    _running("seed-every-256", "call k repeats call k - 256",
             _reseeded(lambda call, _: call % 256)),
    _running("seed-16-bit", "each call seeds afresh from 16 random bits",
             _reseeded(lambda _, rng: int(rng.integers(1 << 16)))),
    _running("seed-32-bit", "each call seeds afresh from 32 random bits",
             _reseeded(lambda _, rng: int(rng.integers(1 << 32))), expected="borderline",
             why="80,000 calls share a seed somewhere with probability 0.53"),
    _running("fixed-seed", "the same seed in every process", _fixed_seed),
    _running("process-seed-16-bit", "each process is seeded with 16 bits", _short_seed(16),
             expected="missed",
             why="two processes coincide with probability 2^-16; it shows in some hundred "
                 "processes, and one asks for two"),
    _running("replay", "after 5 million values the first 10,000 come again",
             replayed(10_000, 5_000_000)),
    _running("pool", "a pool of 2^20 values, over and over", _recycled(1 << 20)),
    _running("copied-rows", "one row in 10,000 is a copy of the row before", _copied_rows(1e-4)),
    _running("every-1000th-call", "every 1,000th call has half the scale", _every(1000, 0.5)),
    _running("every-10000th-call", "every 10,000th call has half the scale", _every(10_000, 0.5),
             expected="borderline",
             why="eight calls of some 80,000 vectors: plain in each, if each call is looked at on "
                 "its own"),
    _running("first-row-of-call", "the first row of each call is 10 % too wide",
             _counted(_first_row)),
    _running("d1-2pc", "σ is 2 % too large where d = 1", _at_dim(1, 1.02)),
    _running("special-d100", "half the scale where d = 100", _at_dim(100, 0.5)),
    _running("special-d77", "half the scale where d = 77", _at_dim(77, 0.5), expected="missed",
             why="the auditor does not ask for d = 77 unless told to: a trigger that it never "
                 "pulls"),
)  # fmt: skip
