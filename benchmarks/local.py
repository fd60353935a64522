"""Local mechanisms: records per CPU second at devices and servers; seconds of estimates.

On one core. Sketches of 65,536 hash functions and m = 1,024, as Apple's, at ε = 4. The best of
three.
"""

from __future__ import annotations

import numpy as np
from harness import MACHINE, clocked, cpu, quickest

from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import (
    CountMeanServer,
    CountMeanSketch,
    sample_sketch,
)
from dpaudit_local.mechanisms.hadamard_sketch import HadamardServer, HadamardSketch
from dpaudit_studies.evidence import options

SEED = KeyedStream.from_seed("bench local")
FUNCTIONS, M, UNIVERSE = 65536, 1024, 2000
KINDS = {
    "Count Mean Sketch": (CountMeanSketch, CountMeanServer),
    "Hadamard sketch": (HadamardSketch, HadamardServer),
}


def records(n: int) -> None:
    print(f"\n{'records per CPU second':32}{'device':>12}{'server':>12}")
    objects = SEED.child("objects").numpy().integers(0, UNIVERSE, n)
    for name, (sketch, kind) in KINDS.items():
        mechanism = sketch(4.0, m=M, functions=FUNCTIONS)
        device = quickest(lambda m=mechanism: m.privatize(objects, stream=SEED))
        reports, server = mechanism.privatize(objects, stream=SEED), kind(mechanism)
        spent = quickest(lambda server=server, reports=reports: server.add(reports))
        print(f"{name:32}{n / device:12,.0f}{n / spent:12,.0f}", flush=True)


def estimates(n: int, universe: int) -> None:
    print(f"\nCPU seconds of estimates over {FUNCTIONS:,} functions")
    objects = SEED.child("objects").numpy().integers(0, UNIVERSE, 4 * n)
    for name, (sketch, kind) in KINDS.items():
        server = kind(sketch(4.0, m=M, functions=FUNCTIONS))
        server.add(server.mechanism.privatize(objects, stream=SEED))
        server.estimate(np.arange(10))
        for u, repeats in ((UNIVERSE, 3), (universe, 1)):
            spent = min(cpu(lambda s=server, u=u: s.estimate(np.arange(u))) for _ in range(repeats))
            each = 1e9 * spent / u / FUNCTIONS
            print(f"  {name:20}{u:>9,} objects{spent:9.2f} s{each:8.2f} ns per object and function")


def shortcut() -> None:
    print(f"\nCPU seconds to draw the server's state, universe {UNIVERSE:,}, popularity ∝ 1/rank")
    sketch = CountMeanSketch(4.0, m=M, functions=FUNCTIONS)
    share = 1 / np.arange(1, UNIVERSE + 1)
    for z in (10**6, 10**7, 10**8, 10**9):
        counts = SEED.child(z).numpy().multinomial(z, share / share.sum())
        server, _, spent = clocked(
            lambda z=z, counts=counts: sample_sketch(sketch, counts, stream=SEED.child(z))
        )
        error = (server.estimate(np.arange(UNIVERSE)) - counts) / server.standard_error(counts)
        print(f"  Z = {z:>13,}{spent:8.2f} s   errors / standard error: {error.std():.3f}")


if __name__ == "__main__":
    args = options(__doc__, records=100_000, universe=250_000)
    print(f"{MACHINE}, one thread")
    records(args.records)
    estimates(args.records, args.universe)
    shortcut()
