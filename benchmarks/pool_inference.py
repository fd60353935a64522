"""Pool inference: CPU time of one core for evidence and for the posterior.

Evidence at two sizes of the universe. News pools (60 websites in five), Count Mean Sketch with m =
1,024 at ε = 8, weak adversary; emoji pools at ε = 4 for the posterior. 4,096 hash functions, as a
table of 250,000 objects is filled for each once; of 65,536 it takes 16 times as long.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from harness import MACHINE, cpu

from dpaudit.randomness import KeyedStream
from dpaudit_local.mechanisms.count_mean_sketch import CountMeanSketch
from dpaudit_local.pool_inference.evidence import evidence_for
from dpaudit_local.pool_inference.game import people
from dpaudit_local.pool_inference.posterior import pool_posterior
from dpaudit_local.pool_inference.settings import Setting, load_setting

SEED = KeyedStream.from_seed("bench pool inference")
FUNCTIONS, USERS, DAYS = 4096, 2000, 180
TIMES = (7, 30, 90, 180)


def chosen(setting: Setting) -> np.ndarray:
    """The objects that the people of a setting choose, one after the other."""
    objects = people(setting, USERS, DAYS, stream=SEED.child("people")).objects
    return objects.reshape(-1).astype(np.int64)


def main() -> None:
    print(f"{MACHINE}, one thread")
    print(f"\n{'universe':>10}{'tables, once, s':>18}{'evidence, µs per observation':>30}")
    for universe in (2_000, 250_000):
        setting = load_setting(f"news:universe={universe}")
        mechanism = CountMeanSketch(8.0, functions=FUNCTIONS, seed=1)
        objects = chosen(setting)
        reports = mechanism.privatize(objects, stream=SEED.child("reports"))
        judge = evidence_for(mechanism, setting.pools)
        first, *later = (cpu(partial(judge, reports, threads=1)) for _ in range(4))
        print(f"{universe:10,}{first - min(later):18.2f}{1e6 * min(later) / len(objects):30.2f}")
    setting = load_setting("emojis")
    mechanism = CountMeanSketch(4.0, functions=FUNCTIONS, seed=1)
    reports = mechanism.privatize(chosen(setting), stream=SEED.child("reports"))
    evidence = evidence_for(mechanism, setting.pools)(reports).reshape(USERS, DAYS, -1)
    print(
        f"\nposterior of {setting.pools.k} pools after {', '.join(map(str, TIMES))} "
        "observations, ms per person"
    )
    for nodes in (None, 91):
        posterior = partial(pool_posterior, prefixes=TIMES, nodes=nodes, threads=1)
        posterior(evidence[:10])
        seconds = min(cpu(partial(posterior, evidence)) for _ in range(2))
        print(
            f"{'default nodes' if nodes is None else 'exact nodes (91)':>20}"
            f"{1e3 * seconds / USERS:8.3f}"
        )


if __name__ == "__main__":
    main()
