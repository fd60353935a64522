"""The search for neighbours: how many audits of tight honest mechanisms are findings.

    python benchmarks/neighbours.py --validity 100 [--rows validity.jsonl]  # α = 0.05

Six honest mechanisms release exactly at their claim at some pair of neighbours; each audit
searches for the pair and judges it, learned scores included. A finding is a false one. With
``--rows``, each audit is one row of that file, and the audits that it has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpaudit
from dpaudit.accounting import gaussian_sigma
from dpaudit.provenance import hardware
from dpaudit.stats import clopper_pearson

ALPHA = 0.05
SAMPLES = 2000
DELTA = 1e-3
SIGMA = gaussian_sigma(1.0, DELTA)
KEEP = math.e / (1 + math.e)
Rng = np.random.Generator
Release = Callable[[Any, int], list[Any]]


def geometric(rng: Rng, shape: int | tuple[int, ...]) -> np.ndarray:
    """Two-sided geometric noise: exactly ε = 1 for sensitivity 1."""
    p = 1 - math.exp(-1)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def response(rng: Rng) -> Release:
    """Randomised response of whether the first record is at least a half."""

    def release(data: Any, n: int) -> list[Any]:
        truth = data[0] >= 0.5
        return [bool(truth) == bool(kept) for kept in rng.random(n) < KEEP]

    return release


def responses(rng: Rng) -> Release:
    """Randomised response of each record, one bit each."""

    def release(data: Any, n: int) -> list[Any]:
        truth = np.array([x >= 0.5 for x in data])
        return (truth == (rng.random((n, len(data))) < KEEP)).tolist()

    return release


def count(rng: Rng) -> Release:
    return lambda data, n: (len(data) + geometric(rng, n)).tolist()


def text(rng: Rng) -> Release:
    """The number of records that are at least a half, as a sentence."""

    def release(data: Any, n: int) -> list[Any]:
        true = sum(x >= 0.5 for x in data)
        return [f"there are {k} of them" for k in true + geometric(rng, n)]

    return release


def histogram(rng: Rng) -> Release:
    """Counts of three cities as a dict."""

    def release(data: Any, n: int) -> list[Any]:
        true = np.array(
            [sum(row["city"] == city for row in data) for city in ("Bonn", "Graz", "Ulm")]
        )
        noisy = true + geometric(rng, (n, 3))
        return [dict(zip(("Bonn", "Graz", "Ulm"), row, strict=True)) for row in noisy.tolist()]

    return release


def gaussian(rng: Rng) -> Release:
    """A sum clipped to 0…1, on a grid, with Gaussian noise for (1, 10⁻³)."""

    def release(data: Any, n: int) -> list[Any]:
        true = sum(min(max(x, 0.0), 1.0) for x in data)
        return (np.round((true + rng.normal(0, SIGMA, n)) * 64) / 64).tolist()

    return release


@dataclass(frozen=True)
class Tight:
    """A mechanism of ε = 1 exactly, by ``adjacency``, at a pair that the search has to find."""

    release: Callable[[Rng], Release]
    adjacency: str
    data: tuple[Any, ...] = (0.0, 0.5, 1.0, 0.0, 1.0, 0.5)
    bounds: tuple[float, float] | None = (0, 1)
    delta: float = 0.0


TIGHT = (
    Tight(response, "replace"),
    Tight(responses, "replace"),
    Tight(count, "add-remove"),
    Tight(text, "add-remove"),
    Tight(
        histogram,
        "add-remove",
        tuple({"city": city} for city in ("Bonn", "Bonn", "Graz", "Ulm")),
        None,
    ),
    Tight(gaussian, "add-remove", delta=DELTA),
)


def audited(case: Tight, seed: int) -> dict[str, Any]:
    """One searched audit, as a row."""
    name = case.release.__name__
    result = dpaudit.audit_mechanism(
        case.release(np.random.default_rng([seed, *name.encode()])),
        dataset=list(case.data),
        neighbours="search",
        adjacency=case.adjacency,
        bounds=case.bounds,
        epsilon=1,
        delta=case.delta,
        alpha=ALPHA,
        samples=SAMPLES,
        seed=seed,
        in_process=True,
    )
    return {
        "mechanism": name,
        "seed": seed,
        "verdict": result.verdict,
        "epsilon": result.epsilon.low,
        "tried": result.details["search"]["tried"],
    }


def validity(times: int, *, seed: int, file: Path | None) -> None:
    """How many searched audits of honest mechanisms are findings, at α = 0.05."""
    rows = [] if file is None or not file.exists() else file.read_text().splitlines()
    done = {(row["mechanism"], row["seed"]): row for row in map(json.loads, rows)}
    all_found, tried = 0, 0
    for case in TIGHT:
        own = []
        for i in range(seed, seed + times):
            row = done.get((case.release.__name__, i)) or audited(case, i)
            own.append(row)
            if file is not None and (row["mechanism"], i) not in done:
                with file.open("a") as out:
                    out.write(json.dumps(row) + "\n")
        found = sum(row["verdict"] == "finding" for row in own)
        undecided = sum(row["verdict"] == "inconclusive" for row in own)
        bounds = np.array([row["epsilon"] for row in own])
        print(
            f"{case.release.__name__:12}{case.adjacency:12}{found:4} of {times}, inconclusive "
            f"{undecided}; ε shown: median {np.median(bounds):.3f}, largest {bounds.max():.3f}",
            flush=True,
        )
        all_found += found
        tried += sum(row["tried"] for row in own)
    total = times * len(TIGHT)
    share = clopper_pearson(all_found, total)
    print(
        f"\nfindings at alpha {ALPHA}, over {tried:,} pairs tried: {all_found} of {total}: "
        f"{all_found / total:.2%} [{share.low:.2%}, {share.high:.2%}]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The search for neighbours, counted.")
    parser.add_argument("--validity", type=int, default=0)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.process_time()
    print(f"{SAMPLES:,} releases per neighbour, seeds from {given.seed}, {hardware()}\n")
    validity(given.validity, seed=given.seed, file=given.rows)
    print(f"{time.process_time() - began:.0f} CPU seconds")


if __name__ == "__main__":
    main()
