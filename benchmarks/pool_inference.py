"""Pool inference: CPU time of one core for evidence at two sizes of the universe, and for the posterior.

News pools (60 websites in five), Count Mean Sketch with m = 1,024 at ε = 8, weak adversary; emoji
pools at ε = 4 for the posterior. 4,096 hash functions, as a table of 250,000 objects is filled for
each once; of 65,536 it takes 16 times as long.
"""

from __future__ import annotations

import argparse
import os
import platform
import time

import numpy as np

from dpaudit.local.count_mean_sketch import CountMeanSketch
from dpaudit.randomness import KeyedStream
from dpaudit_attacks.pool_inference.evidence import evidence_for
from dpaudit_attacks.pool_inference.game import people
from dpaudit_attacks.pool_inference.posterior import pool_posterior
from dpaudit_attacks.pool_inference.settings import load_setting

SEED = KeyedStream.from_seed("bench pool inference")
FUNCTIONS, USERS, DAYS = 4096, 2000, 180
TIMES = (7, 30, 90, 180)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, one thread"
    )
    print(f"\n{'universe':>10}{'tables, once, s':>18}{'evidence, µs an observation':>30}")
    for universe in (2_000, 250_000):
        setting = load_setting(f"news:universe={universe}")
        mechanism = CountMeanSketch(8.0, functions=FUNCTIONS, seed=1)
        objects = (
            people(setting, USERS, DAYS, stream=SEED.child("people"))
            .objects.reshape(-1)
            .astype(np.int64)
        )
        reports = mechanism.privatize(objects, stream=SEED.child("reports"))
        judge = evidence_for(mechanism, setting.pools)
        first, *later = (cpu(lambda: judge(reports, threads=1)) for _ in range(4))  # noqa: B023 called at once
        print(f"{universe:10,}{first - min(later):18.2f}{1e6 * min(later) / len(objects):30.2f}")
    setting = load_setting("emojis")
    mechanism = CountMeanSketch(4.0, functions=FUNCTIONS, seed=1)
    objects = (
        people(setting, USERS, DAYS, stream=SEED.child("people"))
        .objects.reshape(-1)
        .astype(np.int64)
    )
    judge = evidence_for(mechanism, setting.pools)
    evidence = judge(mechanism.privatize(objects, stream=SEED.child("reports"))).reshape(
        USERS, DAYS, -1
    )
    print(
        f"\nposterior of {setting.pools.k} pools after {', '.join(map(str, TIMES))} observations, ms a person"
    )
    for nodes in (None, 91):
        pool_posterior(evidence[:10], prefixes=TIMES, nodes=nodes, threads=1)
        seconds = min(
            cpu(lambda: pool_posterior(evidence, prefixes=TIMES, nodes=nodes, threads=1))  # noqa: B023
            for _ in range(2)
        )
        print(
            f"{'default nodes' if nodes is None else 'exact nodes (91)':>20}{1e3 * seconds / USERS:8.3f}"
        )


def cpu(work: object) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - began


if __name__ == "__main__":
    main()
