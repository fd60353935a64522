"""Which seed made the noise of one known step: what is tried, how long it takes, what is found.

`python -m dpaudit_studies.evidence.seeds` makes noise of torch on the CPU; that of torch on CUDA
and of jax is replayed from their source. It is rounded as a step of DP-SGD in float32 rounds the
noisy sum. Each row searches for its seed with `state-recovery`; the clock is the process's own.
`--write` keeps the table in docs/studies/results/seeds/; `--only` runs some rows. The row of all
2^32 seeds takes minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpaudit import registry
from dpaudit_studies.evidence import MACHINE, RESULTS, options, write

SEED = 20261129  # of the gradients, and of the noise of another generator
NOW = 1_790_000_000.0
STD = 1.1
DEFAULT = 67280421310721

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """Noise, and how its seed is searched for; ``seeds`` is a range in place of the usual ones."""

    name: str
    draw: Callable[[], Floats]
    generators: str = "float32"
    seeds: tuple[int, int] | None = None
    ahead: int = 0


def on_cpu(seed: int | None, *, count: int = 32, before: int = 0) -> Floats:
    generator = torch.Generator()
    if seed is not None:
        generator.manual_seed(seed)
    if before:
        torch.rand(before, generator=generator)
    return torch.normal(0.0, STD, (count,), generator=generator).double().numpy()


def on_cuda(seed: int, *, offset: int = 0) -> Floats:
    replay = import_module("dpaudit_attacks.state_recovery.philox")
    made: Floats = replay.cuda_normal(seed, std=STD, numel=32, offset=offset)
    return made


def in_jax(seed: int, *path: int) -> Floats:
    replay = import_module("dpaudit_attacks.state_recovery.threefry")
    key = replay.key(seed)
    for index in path:
        key = replay.fold_in(key, index)
    bits = replay.random_bits(key, np.arange(32), size=32, partitionable=True)
    return STD * np.asarray(replay.normal(bits))


def of_pcg64() -> Floats:
    return STD * np.random.default_rng(SEED).standard_normal(32)


CPU, CUDA, JAX = "on the CPU, float32", "CUDA", "jax"
ROWS = [
    Row("torch on the CPU, a fixed seed", lambda: on_cpu(271_828), CPU),
    Row("torch on the CPU, 1337 + rank 5", lambda: on_cpu(1342), CPU),
    Row("torch on the CPU, the time in seconds", lambda: on_cpu(int(NOW) - 5000), CPU),
    Row("torch on the CPU, the time in milliseconds", lambda: on_cpu(int(NOW * 1000) - 777), CPU),
    Row("torch.Generator() as it is made", lambda: on_cpu(None), CPU),
    Row("torch on the CPU, ten values", lambda: on_cpu(271_828, count=10), "fewer"),
    Row("torch on the CPU, seed 42, 10⁶ words used before", lambda: on_cpu(42, before=10**6), CPU,
        ahead=1 << 20),
    Row("torch on the CPU, a seed of 63 bits", lambda: on_cpu((1 << 62) + 2**32 - 9), CPU,
        (0, 1 << 32)),
    Row("torch on CUDA, 1337 + rank 5", lambda: on_cuda(1342), CUDA),
    Row("torch on CUDA, the time in milliseconds", lambda: on_cuda(int(NOW * 1000) - 777), CUDA),
    Row("torch on CUDA, seed 42, 1,000 calls before", lambda: on_cuda(42, offset=4000), CUDA,
        ahead=4096),
    Row("torch on CUDA, a seed of 26 bits", lambda: on_cuda(2**26 - 9), CUDA, (0, 1 << 26)),
    Row("jax.random.key(0)", lambda: in_jax(0), JAX),
    Row("jax, split(split(key(7), n)[0], n)[3]", lambda: in_jax(7, 0, 3), JAX, ahead=1 << 11),
    Row("jax, a seed of 26 bits", lambda: in_jax(2**26 - 9), JAX, (0, 1 << 26)),
    Row("noise of numpy's PCG64, for which nothing is tried", of_pcg64, "", ahead=1 << 12),
]  # fmt: skip


def measure_row(row: Row) -> dict[str, Any]:
    noise = np.asarray(row.draw(), np.float64)
    gradient = np.float32(np.random.default_rng(SEED).normal(0, 5, len(noise)))
    shown = (gradient + np.float32(noise)).astype(np.float64)
    seeds = import_module("dpaudit_attacks.state_recovery.seeds")
    ranges = seeds.usual(NOW) if row.seeds is None else (row.seeds,)
    recovery: Any = registry.load("tests", "state-recovery")
    how = {"ranges": ranges, "ahead": row.ahead, "generators": row.generators}
    began = time.process_time()
    found, tries = recovery.seed_of(
        shown - gradient, std=STD, errors=2.0**-22 * np.abs(shown), **how
    )
    seconds = time.process_time() - began
    found = found if found is not None and found.log_p < np.log(1e-9) else None
    return {
        "name": row.name, "values": len(noise), "tries": tries, "seconds": seconds,
        "seed": found and str(found.seed), "start": found and found.start,
        "log_p": found and found.log_p,
    }  # fmt: skip


def main() -> None:
    chosen = options(__doc__, only=[""], write=False)
    import_module("dpaudit_attacks.state_recovery.seeds").use_once()
    rows = []
    for row in ROWS:
        if any(part in row.name for part in chosen.only):
            rows.append(measure_row(row))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if chosen.write:
        write(RESULTS / "seeds" / "results.json", {"machine": MACHINE, "seed": SEED, "rows": rows})


if __name__ == "__main__":
    main()
