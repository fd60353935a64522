"""Time of the attacks on last bits and of the sound noise sources, 10^6 values. `make bench`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from harness import MACHINE, quickest

from dpaudit import registry
from dpaudit.protocols import UnitSupport
from dpaudit.randomness import KeyedStream

N = 1_000_000
VALUE, OTHER = np.array([0.0]), np.array([1.0])
SOURCES = ("gaussian", "secure-gaussian", "discrete-gaussian", "discrete-laplace", "snapping")


def attacks():
    rng, legacy = np.random.default_rng(1), np.random.RandomState(1)
    normal, laplace = rng.standard_normal((N, 1)), rng.laplace(0.0, 1.0, (N, 1))
    single = rng.standard_normal((N, 1), np.float32).astype(np.float64)
    for name, y, v in (
        ("reach", normal, OTHER),
        ("reach:divisor=60,dtype=float32", single, OTHER),
        ("laplace-support:sampler=numpy", laplace, OTHER),
        ("pair-inversion:sampler=numpy-legacy", legacy.normal(0.0, 1.0, (N // 2, 2)), np.ones(2)),
    ):
        attack = registry.create("attacks", name)
        yield name, quickest(partial(attack.score, y, UnitSupport(v)))
    learner = registry.create("attacks", "bit-features")
    statistic = learner.learn(normal[:20_000], normal[:20_000] + 1, neighbours=(VALUE, OTHER))
    yield "bit-features", quickest(lambda: statistic(normal))


def sources():
    stream, query = KeyedStream.from_seed("bench"), torch.zeros((1, N), dtype=torch.float64)
    for name in SOURCES:
        source = registry.create("sources", name)
        whole = hasattr(source, "release")
        draw = partial(source.release, query) if whole else partial(source.sample, 1, N)
        yield name, quickest(partial(draw, stream=stream))


if __name__ == "__main__":
    print(f"{MACHINE}, CPU nanoseconds per number, 10^6 at once, best of 3")
    for name, taken in (*attacks(), *sources()):
        print(f"{name:40} {1e9 * taken / N:8.1f}")
