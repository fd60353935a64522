"""Time of the attacks on last bits and of the sound noise sources, 10^6 values each; run by `make bench`."""

from __future__ import annotations

import platform
import time

import numpy as np

from dpaudit import registry
from dpaudit.randomness import KeyedStream

N = 1_000_000
VALUE, OTHER = np.array([0.0]), np.array([1.0])


def seconds(work) -> float:
    """The quickest of three runs, after one that compiles."""
    work()
    taken = []
    for _ in range(3):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def attacks():
    rng, legacy = np.random.default_rng(1), np.random.RandomState(1)
    normal, laplace = rng.standard_normal((N, 1)), rng.laplace(0.0, 1.0, (N, 1))
    single = rng.standard_normal((N, 1), np.float32).astype(np.float64)
    pairs = legacy.normal(0.0, 1.0, (N // 2, 2))
    for name, y, v in (
        ("reach", normal, OTHER),
        ("reach:divisor=60,dtype=float32", single, OTHER),
        ("laplace-support:sampler=numpy", laplace, OTHER),
        ("pair-inversion:sampler=numpy-legacy", pairs, np.ones(2)),
    ):
        attack = registry.create("attacks", name)
        yield name, seconds(lambda a=attack, y=y, v=v: a.feasible(y, v))
    learner = registry.create("attacks", "bit-features")
    statistic = learner.learn(normal[:20_000], normal[:20_000] + 1, neighbours=(VALUE, OTHER))
    yield "bit-features", seconds(lambda: statistic(normal))


def sources():
    import torch

    query = torch.zeros((1, N), dtype=torch.float64)
    for name in ("gaussian", "secure-gaussian", "discrete-gaussian", "discrete-laplace", "snapping"):
        source, stream = registry.create("sources", name), KeyedStream.from_seed("bench")
        release = getattr(source, "release", None)
        work = (lambda s=source: s.sample(1, N, stream=stream)) if release is None else None
        yield name, seconds(work or (lambda r=release: r(query, stream=stream)))


if __name__ == "__main__":
    print(f"{platform.machine()}, Python {platform.python_version()}, CPU seconds for 10^6 numbers, best of 3")
    for name, taken in (*attacks(), *sources()):
        print(f"{name:40} {taken:6.2f}")
