"""Which seed made the noise of one known step: what is tried, how long it takes, what is found.

`python -m dpaudit_studies.evidence.seeds` makes noise by torch on the CPU, and replays that of
torch on CUDA and of jax from their source; it is rounded as a step of DP-SGD in float32 rounds the
noisy sum. `state-recovery` searches for the seed of each row; seconds are CPU seconds of one
thread. `--write` keeps the table in docs/studies/results/seeds/; `--only` runs some rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpaudit import registry
from dpaudit_studies.evidence import MACHINE, RESULTS, options, write

SEED = 20261129  # of the gradients, and of the noise of another generator
NOW, STD, COUNT = 1_790_000_000.0, 1.1, 32
SECOND, MILLISECOND = int(NOW) - 5000, int(NOW * 1000) - 777
CPU, CUDA, JAX = "on the CPU, float32", "CUDA", "jax"

Floats = npt.NDArray[np.floating[Any]]
Row = tuple[str, str, Callable[[], Floats], dict[str, Any]]
"""A name, which generators are tried, the noise, and how its seed is searched for."""


def part(name: str) -> Any:
    """A module of the attack, by name: studies import no attacks."""
    return import_module(f"dpaudit_attacks.state_recovery.{name}")


def on_cpu(seed: int | None, *, count: int = COUNT, before: int = 0) -> Floats:
    generator = torch.Generator()
    if seed is not None:
        generator.manual_seed(seed)
    torch.rand(before, generator=generator)
    return torch.normal(0.0, STD, (count,), generator=generator).double().numpy()


def on_cuda(seed: int, *, offset: int = 0) -> Floats:
    return np.asarray(part("philox").cuda_normal(seed, std=STD, numel=COUNT, offset=offset))


def in_jax(seed: int, *path: int) -> Floats:
    jax = part("threefry")
    key = jax.key(seed)
    for index in path:
        key = jax.fold_in(key, index)
    bits = jax.random_bits(key, np.arange(COUNT), size=COUNT, partitionable=True)
    return STD * np.asarray(jax.normal(bits))


ROWS: list[Row] = [
    ("torch on the CPU, a fixed seed", CPU, lambda: on_cpu(271_828), {}),
    ("torch on the CPU, 1337 + rank 5", CPU, lambda: on_cpu(1342), {}),
    ("torch on the CPU, the time in seconds", CPU, lambda: on_cpu(SECOND), {}),
    ("torch on the CPU, the time in milliseconds", CPU, lambda: on_cpu(MILLISECOND), {}),
    ("torch.Generator() as it is made", CPU, lambda: on_cpu(None), {}),
    ("torch on the CPU, ten values", "fewer", lambda: on_cpu(271_828, count=10), {}),
    ("torch on the CPU, seed 42, 10⁶ words used before", CPU, lambda: on_cpu(42, before=10**6),
        {"ahead": 1 << 20}),
    ("torch on the CPU, a seed of 63 bits: all 2³²", CPU, lambda: on_cpu((1 << 62) + 2**32 - 9),
        {"ranges": ((0, 1 << 32),)}),
    ("torch on CUDA, 1337 + rank 5", CUDA, lambda: on_cuda(1342), {}),
    ("torch on CUDA, the time in milliseconds", CUDA, lambda: on_cuda(MILLISECOND), {}),
    ("torch on CUDA, seed 42, 1,000 calls before", CUDA, lambda: on_cuda(42, offset=4000),
        {"ahead": 4096}),
    ("torch on CUDA, a seed of 26 bits", CUDA, lambda: on_cuda(2**26 - 9),
        {"ranges": ((0, 1 << 26),)}),
    ("jax.random.key(0)", JAX, lambda: in_jax(0), {}),
    ("jax, split(split(key(7), n)[0], n)[3]", JAX, lambda: in_jax(7, 0, 3), {"ahead": 1 << 11}),
    ("jax, a seed of 26 bits", JAX, lambda: in_jax(2**26 - 9), {"ranges": ((0, 1 << 26),)}),
    ("noise of numpy's PCG64, for which nothing is tried", "",
        lambda: STD * np.random.default_rng(SEED).standard_normal(COUNT), {"ahead": 1 << 10}),
]  # fmt: skip


def measure_row(row: Row) -> dict[str, Any]:
    name, generators, draw, more = row
    noise = np.asarray(draw(), np.float64)
    gradient = np.float32(np.random.default_rng(SEED).normal(0, 5, len(noise)))
    shown = (gradient + np.float32(noise)).astype(np.float64)
    how = {"ranges": part("seeds").usual(NOW), "ahead": 0, "generators": generators} | more
    recovery: Any = registry.load("tests", "state-recovery")
    began = time.process_time()
    found, tries = recovery.seed_of(
        shown - gradient, std=STD, errors=2.0**-22 * np.abs(shown), **how
    )
    seconds = time.process_time() - began
    result = {"name": name, "values": len(noise), "tries": tries, "seconds": seconds}
    if found is None or found.log_p > np.log(1e-9):
        return {**result, "seed": None, "start": None, "log_p": None}
    return {**result, "seed": str(found.seed), "start": found.start, "log_p": found.log_p}


def main() -> None:
    chosen = options(__doc__, only=[""], write=False)
    part("seeds").use_once()
    rows = []
    for row in ROWS:
        if any(words in row[0] for words in chosen.only):
            rows.append(measure_row(row))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if chosen.write:
        write(RESULTS / "seeds" / "results.json", {"machine": MACHINE, "seed": SEED, "rows": rows})


if __name__ == "__main__":
    main()
