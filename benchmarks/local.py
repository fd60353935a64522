"""Local mechanisms: records per CPU second at devices and servers; seconds of estimates.

On one core. Sketches of 65,536 hash functions and m = 1,024, as Apple's, at ε = 4. The best of
three.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import MACHINE, cpu, quickest

from dpaudit.local.count_mean_server import CountMeanServer
from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.local.hadamard_server import HadamardServer
from dpaudit.local.hadamard_sketch import HadamardSketch
from dpaudit.local.hashing import HashFamily, RandomHashes, Sha256Hashes, ThreeWiseHashes
from dpaudit.local.sketch_sampling import sample_sketch
from dpaudit.randomness import KeyedStream

SEED = KeyedStream.from_seed("bench local")
FUNCTIONS, M, UNIVERSE = 65536, 1024, 2000


def hashes() -> None:
    print(f"\n{'hash family':24}{'one function':>16}{'elementwise':>16}   ns per object")
    objects = np.arange(1 << 14)
    functions = SEED.numpy().integers(0, FUNCTIONS, objects.size, dtype=np.uint32)
    names = [f"name {x}" for x in range(objects.size)]
    for family in (
        RandomHashes(FUNCTIONS, M, stream=SEED),
        ThreeWiseHashes(FUNCTIONS, M, stream=SEED),
        Sha256Hashes(FUNCTIONS, M, names=names),
    ):
        calls = 1 if isinstance(family, Sha256Hashes) else 100

        def one(family: HashFamily = family, calls: int = calls) -> None:
            for j in range(calls):
                family.positions(objects, j)

        def each(family: HashFamily = family, calls: int = calls) -> None:
            for _ in range(calls):
                family.each(objects, functions)

        line = f"{type(family).__name__:24}" + "".join(
            f"{1e9 * quickest(f) / calls / objects.size:16.2f}" for f in (one, each)
        )
        print(line + ("   (one function: remembered)" if calls == 1 else ""))


def records(n: int) -> None:
    print(f"\n{'records per CPU second':32}{'device':>12}{'server':>12}")
    objects = SEED.child("objects").numpy().integers(0, UNIVERSE, n)
    for name, mechanism, kind, many in (
        ("Count Mean Sketch", CountMeanSketch(4.0, m=M, functions=FUNCTIONS), CountMeanServer, n),
        (
            "  three-wise hashes",
            CountMeanSketch(4.0, m=M, functions=FUNCTIONS, hashes="three-wise"),
            CountMeanServer,
            n,
        ),
        ("Hadamard sketch", HadamardSketch(4.0, m=M, functions=FUNCTIONS), HadamardServer, n),
    ):
        device = quickest(lambda s=mechanism: s.privatize(objects, stream=SEED))
        reports, server = mechanism.privatize(objects, stream=SEED), kind(mechanism)
        taken = quickest(lambda server=server, reports=reports: server.add(reports))
        print(f"{name:32}{many / device:12,.0f}{many / taken:12,.0f}", flush=True)


def estimates(n: int, universe: int) -> None:
    print(f"\nCPU seconds of estimates over {FUNCTIONS:,} functions")
    objects = SEED.child("objects").numpy().integers(0, UNIVERSE, 4 * n)
    for name, mechanism, kind in (
        ("Count Mean Sketch", CountMeanSketch(4.0, m=M, functions=FUNCTIONS), CountMeanServer),
        ("Hadamard sketch", HadamardSketch(4.0, m=M, functions=FUNCTIONS), HadamardServer),
    ):
        server = kind(mechanism)
        server.add(mechanism.privatize(objects, stream=SEED))
        for u, repeats in ((UNIVERSE, 3), (universe, 1)):
            asked = np.arange(u)
            server.estimate(asked[:10])
            taken = min(
                cpu(lambda server=server, asked=asked: server.estimate(asked))
                for _ in range(repeats)
            )
            print(
                f"  {name:20}{u:>9,} objects{taken:9.2f} s"
                f"{1e9 * taken / u / FUNCTIONS:8.2f} ns per object and function"
            )


def shortcut() -> None:
    print(f"\nCPU seconds to draw the server's state, universe {UNIVERSE:,}, popularity ∝ 1/rank")
    sketch = CountMeanSketch(4.0, m=M, functions=FUNCTIONS)
    share = 1 / np.arange(1, UNIVERSE + 1)
    for z in (10**6, 10**7, 10**8, 10**9):
        counts = SEED.child(z).numpy().multinomial(z, share / share.sum())
        made = []
        taken = cpu(lambda: made.append(sample_sketch(sketch, counts, stream=SEED.child(z))))  # noqa: B023
        server = made[0]
        error = (server.estimate(np.arange(UNIVERSE)) - counts) / server.standard_error(counts)
        print(
            f"  Z = {z:>13,}{taken:8.2f} s   errors / standard error: {error.std():.3f}", flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--universe", type=int, default=250_000)
    args = parser.parse_args()
    print(f"{MACHINE}, one thread")
    hashes()
    records(args.records)
    estimates(args.records, args.universe)
    shortcut()
