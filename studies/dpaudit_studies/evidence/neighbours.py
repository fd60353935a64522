"""The search for neighbours: what it finds next to every pair, and how often it is wrong.

    python -m dpaudit_studies.evidence.neighbours [NAME …]  # searched, and all pairs tried
    python -m dpaudit_studies.evidence.neighbours --validity 84 [--rows validity.jsonl]  # α = 0.05

The table has mechanisms whose worst pair is not obvious, and four sound ones. ``true`` is the exact
ε at the pair that the search found, ``worst`` the largest exact ε of ``all`` pairs of neighbours
with up to eight records of three values, in any order: data sets of up to seven with one more
record at any place, or of up to eight with one replaced. ``as bad`` is how many of them have it.
The search knows the bounds, not the three values.

With ``--validity``, six honest mechanisms release exactly at their claim at some pair of
neighbours; each audit searches for the pair and judges it, learned scores included. A finding is a
false one. With ``--rows``, each audit is one row of that file; those that it has are counted and
not repeated.
"""

from __future__ import annotations

import itertools
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
from dpaudit.audit.result import MechanismResult
from dpaudit.provenance import hardware
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import options

ALPHA = 0.05
SAMPLES = 2000
DELTA = 1e-3
SIGMA = gaussian_sigma(1.0, DELTA)
KEEP = math.e / (1 + math.e)
CITIES = ("Bonn", "Graz", "Ulm")
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
        true = np.array([sum(row["city"] == city for row in data) for city in CITIES])
        noisy = true + geometric(rng, (n, 3))
        return [dict(zip(CITIES, row, strict=True)) for row in noisy.tolist()]

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
    Tight(histogram, "add-remove",
          tuple({"city": city} for city in ("Bonn", "Bonn", "Graz", "Ulm")), None),
    Tight(gaussian, "add-remove", delta=DELTA),
)  # fmt: skip

Answer = float | str | dict[Any, float] | list[float]
Query = Callable[[tuple[float, ...]], Answer]


def median(data: tuple[float, ...]) -> float:
    return float(np.median(data)) if data else 0.5


def spread(data: tuple[float, ...]) -> float:
    return max(data) - min(data) if data else 0.0


def quarters(data: tuple[float, ...]) -> float:
    """Distance of the quartiles."""
    return float(np.subtract(*np.quantile(data, (0.75, 0.25)))) if data else 0.0


def gap(data: tuple[float, ...]) -> float:
    """Largest distance of two values with none between."""
    return max((b - a for a, b in itertools.pairwise(sorted(data))), default=0.0)


def most_frequent(data: tuple[float, ...]) -> float:
    """The least of the most frequent values."""
    return max(sorted(set(data)), key=data.count) if data else 0.0


def share(data: tuple[float, ...]) -> float:
    """The share of ones among those that are at least a half."""
    large = [x for x in data if x >= 0.5]
    return large.count(1.0) / len(large) if large else 0.5


def changes(data: tuple[float, ...]) -> float:
    """How much each record differs from the one before, in all."""
    return math.fsum(abs(b - a) for a, b in itertools.pairwise(data))


def runs(data: tuple[float, ...]) -> float:
    """The longest run of one value."""
    return float(max((len(list(run)) for _, run in itertools.groupby(data)), default=0))


@dataclass(frozen=True)
class Searched:
    """Laplace noise of one scale on every number of an answer; claimed: ε = 1."""

    name: str
    query: Query
    scale: float
    adjacency: str = "add-remove"
    bounds: tuple[float, float] = (0, 1)

    def releases(self, rng: Rng) -> Release:
        """``n`` releases of a data set, noise on a grid of 2⁻¹⁰, values clipped to the bounds."""

        def noisy(true: float, n: int) -> list[float]:
            return (np.round((true + rng.laplace(0, self.scale, n)) * 1024) / 1024).tolist()

        def release(data: list[float], n: int) -> list[Any]:
            answer = self.answer(data)
            if isinstance(answer, dict):
                columns = [noisy(v, n) for v in answer.values()]
                rows = zip(*columns, strict=True) if columns else [()] * n
                return [dict(zip(answer, row, strict=True)) for row in rows]
            if isinstance(answer, list):
                return np.transpose([noisy(v, n) for v in answer]).reshape(n, -1).tolist()
            return [answer] * n if isinstance(answer, str) else noisy(answer, n)

        return release

    def answer(self, data: Any) -> Answer:
        low, high = self.bounds
        return self.query(tuple(min(max(float(x), low), high) for x in data))

    def loss(self, first: Answer, second: Answer) -> float:
        """The exact ε of two answers: of Laplace noise, the L1 distance in units of its scale."""
        if isinstance(first, float) and isinstance(second, float):
            return abs(first - second) / self.scale
        if isinstance(first, dict) and isinstance(second, dict) and list(first) == list(second):
            return math.fsum(abs(first[k] - second[k]) for k in first) / self.scale
        if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            return math.fsum(map(abs, np.subtract(first, second))) / self.scale
        return 0.0 if first == second else math.inf

    def worst(self) -> tuple[float, tuple[Any, Any], int, int]:
        """The largest exact ε of all pairs, the first that has it, how many have it, and all."""
        low, high = self.bounds
        values = (low, (low + high) / 2, high)
        answers = {
            data: self.answer(data)
            for k in range(9)
            for data in itertools.product(values, repeat=k)
        }
        pairs: set[tuple[Any, Any]] = set()
        for data in answers:
            for i in range(len(data)):
                if self.adjacency == "add-remove":
                    pairs.add((data[:i] + data[i + 1 :], data))
                else:
                    others = ((*data[:i], x, *data[i + 1 :]) for x in values)
                    pairs.update((data, other) for other in others if data < other)
        ordered = sorted(pairs, key=lambda pair: (len(pair[1]), pair))
        losses = [self.loss(answers[a], answers[b]) for a, b in ordered]
        most = max(losses)
        alike = [loss >= most - 1e-9 for loss in losses]
        return most, ordered[alike.index(True)], sum(alike), len(ordered)


SEARCHED = (
    Searched("median", median, 0.25),
    Searched("median, one replaced", median, 0.25, "replace"),
    Searched("distance of quartiles", quarters, 0.25),
    Searched("maximum", lambda data: max(data, default=0.0), 0.5),
    Searched("range", spread, 0.5),
    Searched("variance", lambda data: float(np.var(data)) if data else 0.0, 1 / 32),
    Searched("mean, n of the data", lambda data: math.fsum(data) / len(data) if data else 0.5,
             1 / 8),
    Searched("share among the large", share, 1 / 8),
    Searched("largest gap", gap, 0.5),
    Searched("most frequent value", most_frequent, 0.5),
    Searched("sum of changes", changes, 1.0),
    Searched("longest run", runs, 1.0, "replace"),
    Searched("two at the top", lambda data: 4.0 * (data.count(1.0) == 2), 1.0),
    Searched("sum clipped above only", math.fsum, 1.0, bounds=(-4, 1)),
    Searched("numbers of those that occur", lambda data: [0.0] * len(set(data)), 1.0),
    Searched("counts of those that occur",
             lambda data: {x: float(data.count(x)) for x in sorted(set(data))}, 1.0),
    Searched("count, exact from six on", lambda data: str(len(data)) if len(data) > 5 else "few",
             1.0),
    Searched("sum (sound)", math.fsum, 1.0),
    Searched("median (sound)", median, 0.5),
    Searched("histogram (sound)", lambda data: [float(data.count(x)) for x in (0.0, 0.5, 1.0)],
             1.0),
    Searched("range (sound)", spread, 1.0, "replace"),
)  # fmt: skip
DATA = (0.0, 0.5, 1.0, 0.0, 1.0, 0.5, 0.5, 0.0)


def data_text(data: Any) -> str:
    """A data set in a cell of a table."""
    counted = [(x, len(list(run))) for x, run in itertools.groupby(data)]
    parts = [f"{x:.3g}" + (f"×{times}" if times > 1 else "") for x, times in counted]
    return f"[{' '.join(parts)}]"


def search_and_audit(
    case: Tight | Searched, name: str, releases: Callable[[Rng], Release], data: list[Any],
    seed: int, **more: Any,
) -> MechanismResult:  # fmt: skip
    """An audit that searches for the pair of neighbours; claimed: ε = 1."""
    return dpaudit.audit_datasets(
        releases(np.random.default_rng([seed, *name.encode()])),
        dataset=data,
        neighbours="search",
        adjacency=case.adjacency,
        bounds=case.bounds,
        epsilon=1,
        seed=seed,
        in_process=True,
        **more,
    )


def table(names: list[str], *, seed: int, samples: int) -> None:
    """Each mechanism: what the search found, and what trying every pair finds."""
    print(
        f"{samples:,} releases per neighbour in the audit after the search, alpha 0.01, claimed "
        "epsilon 1\n\n"
        "mechanism                   verdict      ε ≥     true    worst   tried  as bad   of all  "
        "releases  CPU s  found pair | a worst pair"
    )
    for case in SEARCHED:
        if names and case.name not in names:
            continue
        began = time.process_time()
        low, high = case.bounds
        result = search_and_audit(
            case, case.name, case.releases, [low + (high - low) * x for x in DATA], seed,
            samples=samples,
        )  # fmt: skip
        seconds = time.process_time() - began
        pair = [json.loads(text) for text in result.details["pair"]]
        true = case.loss(*map(case.answer, pair))
        worst, example, alike, count = case.worst()
        search = result.details["search"]
        print(
            f"{case.name:28}{result.verdict:11}{result.epsilon.low:6.3f} {true:8.3f} {worst:8.3f} "
            f"{search['tried']:7} {alike:7,} {count:8,} {search['releases']:9,} {seconds:6.1f}  "
            f"{' '.join(map(data_text, pair))} | {' '.join(map(data_text, example))}",
            flush=True,
        )


def audit(case: Tight, seed: int) -> dict[str, Any]:
    """One searched audit, as a row."""
    name = case.release.__name__
    result = search_and_audit(
        case, name, case.release, list(case.data), seed,
        samples=SAMPLES, alpha=ALPHA, delta=case.delta,
    )  # fmt: skip
    return {
        "mechanism": name,
        "seed": seed,
        "verdict": result.verdict,
        "epsilon": result.epsilon.low,
        "tried": result.details["search"]["tried"],
    }


def validity(names: list[str], times: int, *, seed: int, file: Path | None) -> None:
    """How many searched audits of honest mechanisms are findings, at α = 0.05."""
    rows = [] if file is None or not file.exists() else file.read_text().splitlines()
    done = {(row["mechanism"], row["seed"]): row for row in map(json.loads, rows)}
    all_found = total = tried = 0
    for case in TIGHT:
        name = case.release.__name__
        if names and name not in names:
            continue
        for i in range(seed, seed + times):
            if (name, i) in done:
                continue
            done[name, i] = audit(case, i)
            if file is not None:
                with file.open("a") as out:
                    out.write(json.dumps(done[name, i]) + "\n")
        own = [row for (mechanism, _), row in done.items() if mechanism == name]
        findings = sum(row["verdict"] == "finding" for row in own)
        undecided = sum(row["verdict"] == "inconclusive" for row in own)
        bounds = np.array([row["epsilon"] for row in own])
        print(
            f"{name:12}{case.adjacency:12}{findings:4} of {len(own)}, inconclusive "
            f"{undecided}; ε shown: median {np.median(bounds):.3f}, largest {bounds.max():.3f}",
            flush=True,
        )
        all_found += findings
        tried += sum(row["tried"] for row in own)
        total += len(own)
    share = clopper_pearson(all_found, total)
    print(
        f"\nfindings at alpha {ALPHA}, over {tried:,} pairs tried: {all_found} of {total}: "
        f"{all_found / total:.2%} [{share.low:.2%}, {share.high:.2%}]"
    )


def main() -> None:
    args = options(__doc__, names=(), validity=int, samples=100_000, rows=Path, seed=1)
    began = time.process_time()
    if args.validity is None:
        print(f"seed {args.seed}, {hardware()}")
        table(args.names, seed=args.seed, samples=args.samples)
    else:
        print(f"{SAMPLES:,} releases per neighbour, seeds from {args.seed}, {hardware()}\n")
        validity(args.names, args.validity, seed=args.seed, file=args.rows)
    print(f"{time.process_time() - began:.0f} CPU seconds")


if __name__ == "__main__":
    main()
