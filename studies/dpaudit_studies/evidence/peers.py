"""dpaudit's ε bounds compared with jax_privacy's on the same releases. `make evidence ONLY=peers`.

Same scores and confidence, in one run. jax_privacy lives in an environment of its own
($DPAUDIT_ENVS/jax-privacy or .envs/jax-privacy, which `make envs` makes): its release, and with
the same libraries the code of $JAX_PRIVACY, a checkout of google-deepmind/jax_privacy. How each of
its methods is called: environments/jax_privacy_bounds.py. It bounds ε from *scores*: the user says
what to look at and it says how much that shows. dpaudit finds what to look at itself. So each
release is given to it as its own score, which is the best one where noise is added to a number,
and where the flaw hides elsewhere it is given in a second row the score that shows it ("told").

Three parts: whole mechanisms with a planted flaw; canaries of one run; and honest ones many times
over, for the share of bounds that exceed the truth. Writes docs/studies/results/peers/results.json
and the tables in README.md there; without a checkout it prints alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.accounting import gaussian_epsilon, gaussian_sigma
from dpaudit.accounting.mechanisms import laplace_epsilon
from dpaudit.audit.mechanism import (
    MechanismOptions,
    PrivacyClaim,
    audit_scores,
    run_mechanism_audit,
)
from dpaudit.codec import to_dict
from dpaudit.protocols import Facts, Reply, Request
from dpaudit.provenance import collect
from dpaudit.stats import clopper_pearson
from dpaudit.types import Interval
from dpaudit_studies.evidence import RESULTS, commit_of, options, write
from dpaudit_studies.evidence.catalogue_peers import Peer
from dpaudit_studies.evidence.peers_tables import replace_between, tables

ALPHA = 0.05
GRID = 2.0**-20  # releases on it, so that only the planted flaw shows
STEP = 0.3  # of noise that is rounded before it is added
CP = ["epsilon_clopper_pearson/bonferroni", "epsilon_clopper_pearson/split"]
ONE_RUN = ["epsilon_one_run/bonferroni", "epsilon_one_run/split"]
# of the Gaussian trade-off curve, so for Gaussian scores only
FDP = ["epsilon_one_run_fdp/bonferroni", "epsilon_one_run_fdp/split"]

JAX_PRIVACY = Peer("jax-privacy", "JAX_PRIVACY", "google-deepmind/jax_privacy")

Array = np.ndarray
Answers = dict[str, list[dict[str, Any]]]
Release = Callable[[np.random.Generator, float, int], Array]


def coarse(x: Array) -> Array:
    return np.round(x / GRID) * GRID


def laplace(scale: float) -> Release:
    return lambda rng, value, n: coarse(value + rng.laplace(0, scale, n))


def gaussian(sigma: float) -> Release:
    return lambda rng, value, n: coarse(value + rng.normal(0, sigma, n))


def naive(rng: np.random.Generator, value: float, n: int) -> Array:
    return value + rng.laplace(0, 1, n)


def one_sided(rng: np.random.Generator, value: float, n: int) -> Array:
    return value + np.round(rng.laplace(0, 1, n) / STEP) * STEP


def response(rng: np.random.Generator, value: float, n: int) -> Array:
    return np.where(rng.random(n) < 1 / (1 + math.exp(-1)), value, 1 - value)


def blank(rng: np.random.Generator, value: float, n: int) -> Array:
    return coarse(rng.normal(0, 1, n))


def lowest_bit(x: Array) -> Array:
    """Place of the lowest set bit; 0 has none and gets a high one."""
    mantissa, exponent = np.frexp(x)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    return np.where(whole == 0, 5000.0, exponent + np.frexp((whole & -whole).astype(np.float64))[1])


def off_grid(x: Array) -> Array:
    """Distance from the nearest multiple of STEP: 0 for the first neighbour's releases."""
    return np.abs(x - np.round(x / STEP) * STEP)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    says: str
    release: Release
    claim: float
    truth: float
    delta: float = 0.0
    second: float = 1.0  # the other neighbour; the first is 0
    told: Callable[[Array], Array] | None = None
    gdp: bool = False
    mu: float = 0.0  # claimed, where ``gdp``; 0: that of ``SIGMA``

    @property
    def methods(self) -> list[str]:
        return [*CP, *(["epsilon_from_gdp"] if self.gdp else [])]


DELTA = 1e-3
STEP_DELTA = 1e-5
SIGMA = gaussian_sigma(1.0, DELTA)


def gauss_case(name: str, description: str, factor: float) -> Case:
    truth = gaussian_epsilon(DELTA, sigma=factor * SIGMA)
    return Case(name, description, gaussian(factor * SIGMA), 1.0, truth, DELTA, gdp=True)


def laplace_case(name: str, description: str, factor: float) -> Case:
    return Case(name, description, laplace(factor), 1.0, laplace_epsilon(0.0, scale=factor))


def step_case(name: str, description: str, mu: float) -> Case:
    """A DP-SGD step with noise multiplier 1, seen along its canary's gradient."""
    claim = gaussian_epsilon(STEP_DELTA, sigma=1.0)
    truth = gaussian_epsilon(STEP_DELTA, sigma=1 / mu)
    return Case(name, description, gaussian(1 / mu), claim, truth, STEP_DELTA, gdp=True, mu=1.0)


FLAWED = (
    laplace_case("laplace-10", "Laplace, scale 10 % too small", 0.9),
    laplace_case("laplace-20", "Laplace, scale 20 % too small", 0.8),
    gauss_case("gaussian-10", "Gaussian, σ 10 % too small", 0.9),
    gauss_case("gaussian-20", "Gaussian, σ 20 % too small", 0.8),
    Case("sensitivity", "Laplace for sensitivity 1, neighbours 2 apart", laplace(1.0), 1.0, 2.0,
         second=2.0),
    Case("low-bits", "Laplace in plain floating point", naive, 1.0, math.inf, told=lowest_bit),
    Case("one-sided", "noise rounded to 0.3, the sum not", one_sided, 1.0, math.inf, told=off_grid),
)  # fmt: skip
STEPS = (
    step_case("step", "DP-SGD step, as claimed", 1.0),
    step_case("step-20", "DP-SGD step, σ 20 % too small", 1.25),
    step_case("step-half", "DP-SGD step, half the σ", 2.0),
    step_case("step-unclipped", "DP-SGD step, a gradient of norm 4 unclipped", 4.0),
)
HONEST = (
    laplace_case("laplace", "Laplace, as claimed", 1.0),
    Case("response", "randomized response, as claimed", response, 1.0, 1.0),
    gauss_case("gaussian", "Gaussian, as claimed", 1.0),
    Case("blank", "releases that depend on nothing", blank, 1.0, 0.0, DELTA, gdp=True),
)
ONE_RUN_DELTA = 1e-5
SPLITS = 11  # of jax_privacy's own, whose bound from the same scores depends on the split


@dataclasses.dataclass(frozen=True)
class Canaries:
    """Independent canaries: in with a fair coin, and then their score is ``shift`` higher."""

    name: str
    says: str
    law: str
    shift: float
    truth: float
    m: int
    delta: float = ONE_RUN_DELTA

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        member = rng.random(self.m) < 0.5
        noise = rng.normal(size=self.m) if self.law == "gaussian" else rng.laplace(size=self.m)
        return noise + self.shift * member, member

    @property
    def methods(self) -> list[str]:
        return [*ONE_RUN, *CP, *(FDP if self.law == "gaussian" else [])]


def gaussian_canaries(mu: float, m: int) -> Canaries:
    truth = gaussian_epsilon(ONE_RUN_DELTA, sigma=1 / mu) if mu else 0.0
    description = f"Gaussian scores, μ = {mu:g}" if mu else "scores that show nothing"
    return Canaries(f"mu-{mu:g}-{m}", f"{description}, {m:,} canaries", "gaussian", mu, truth, m)


def laplace_canaries(epsilon: float, m: int) -> Canaries:
    truth = laplace_epsilon(ONE_RUN_DELTA, scale=1 / epsilon)
    description = f"Laplace scores, ε = {epsilon:g}, {m:,} canaries"
    return Canaries(f"laplace-{epsilon:g}-{m}", description, "laplace", epsilon, truth, m)


CANARIES = (
    gaussian_canaries(1.0, 1000), gaussian_canaries(1.0, 10_000), gaussian_canaries(3.0, 1000),
    gaussian_canaries(3.0, 10_000), laplace_canaries(2.0, 1000), laplace_canaries(2.0, 10_000),
)  # fmt: skip
HONEST_CANARIES = (
    gaussian_canaries(0.0, 500), gaussian_canaries(1.0, 500), laplace_canaries(1.0, 500),
)  # fmt: skip


class Recorded:
    """A mechanism in this process that keeps what it released, by neighbour."""

    def __init__(self, release: Release, rng: np.random.Generator) -> None:
        self.name, self.facts = "recorded", Facts({"releases"})
        self._release, self._rng = release, rng
        self.releases: dict[float, list[Array]] = {}

    def ask(self, request: Request, *, timeout: float) -> Reply:
        value = float(np.asarray(request.input).ravel()[0])
        releases = self._release(self._rng, value, request.n)
        self.releases.setdefault(value, []).append(releases)
        return Reply(releases[:, None])


class Jobs:
    """The jobs of jax_privacy, all in one process per version of it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}
        self._jobs: list[dict[str, Any]] = []

    def add(
        self, inside: Array, outside: Array, *, delta: float, methods: list[str], splits: int = 1
    ) -> int:
        i = len(self._jobs)
        self._arrays[f"in_{i}"], self._arrays[f"out_{i}"] = inside, outside
        job = {"significance": ALPHA, "delta": delta, "methods": methods}
        self._jobs.append({**job, "seed": i, "splits": splits})
        return i

    def answers(self) -> tuple[dict[str, dict[str, str]], Answers]:
        """Of the release and of the checkout, by version and commit: libraries, and answers."""
        libraries, answers = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.npz"
            np.savez(path, jobs=json.dumps(self._jobs), **self._arrays)
            for code in dict.fromkeys(["", os.environ.get(JAX_PRIVACY.checkout, "")]):
                out = JAX_PRIVACY.start([str(path)], code, subprocess.PIPE).stdout
                versions, *rows = map(json.loads, out.splitlines())
                release = versions.pop("jax_privacy")
                version = commit_of(code) if code else release
                libraries[version], answers[version] = versions, rows
        return libraries, answers


def by_mu(interval: Interval | None, delta: float) -> dict[str, float]:
    """A bound for μ, and the ε at ``delta`` that a Gaussian trade-off curve implies."""
    assert interval is not None
    mu = interval.low
    return {"mu": mu, "epsilon_by_mu": gaussian_epsilon(delta, sigma=1 / mu) if mu > 0 else 0.0}


def audit(case: Case, samples: int, seed: str) -> tuple[dict[str, Any], Array, Array]:
    """Dpaudit on one case, and all releases that it saw, at the two neighbours."""
    mechanism = Recorded(case.release, np.random.default_rng([int(seed), *case.name.encode()]))
    began = time.perf_counter()
    result = run_mechanism_audit(
        mechanism,
        neighbours=(np.array([0.0]), np.array([case.second])),
        claim=PrivacyClaim(case.claim, case.delta, (case.mu or 1 / SIGMA) if case.gdp else None),
        options=MechanismOptions(samples=samples, alpha=ALPHA, seed=seed),
    )
    seconds = time.perf_counter() - began
    row = {"epsilon": result.epsilon.low, "verdict": result.verdict, "seconds": seconds}
    if case.gdp:
        row |= by_mu(result.mu, case.delta)
    first, second = (np.concatenate(mechanism.releases[v]) for v in (0.0, case.second))
    return row, first, second


def audit_canaries(canaries: Canaries, seed: int) -> tuple[dict[str, Any], Array, Array]:
    """Dpaudit on one set of canaries, and the scores of those out and in."""
    scores, member = canaries.draw(np.random.default_rng([seed, *canaries.name.encode()]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.npz"
        np.savez(path, score=scores, member=member)
        began = time.perf_counter()
        result = audit_scores(
            path, claim=PrivacyClaim(canaries.truth, ONE_RUN_DELTA), alpha=ALPHA, seed=str(seed)
        )
        seconds = time.perf_counter() - began
        row = {"epsilon": result.epsilon.low, "seconds": seconds}
        if canaries.law == "gaussian":  # for μ alone, as by epsilon_one_run_fdp
            claim = PrivacyClaim.of(None, ONE_RUN_DELTA, canaries.shift)
            result = audit_scores(path, claim=claim, alpha=ALPHA, seed=str(seed))
            row |= by_mu(result.mu, ONE_RUN_DELTA)
    return row, scores[~member], scores[member]


def log(case: Case | Canaries, text: str) -> None:
    print(f"{case.says}: {text}", file=sys.stderr)


def flawed_part(jobs: Jobs, samples: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for case in (*FLAWED, HONEST[0], HONEST[2], *STEPS):
        row, first, second = audit(case, samples, str(seed))
        scores = [("release", lambda x: x), *([("told", case.told)] if case.told else [])]
        numbers = {
            name: jobs.add(of(second), of(first), delta=case.delta, methods=case.methods)
            for name, of in scores
        }
        rows.append({**_plain(case), "dpaudit": row, "jobs": numbers})
        log(case, f"ε ≥ {row['epsilon']:.3f} (claimed {case.claim:g}, true {case.truth:.3f})")
    return rows


def canary_part(jobs: Jobs, seed: int) -> list[dict[str, Any]]:
    rows = []
    for canaries in CANARIES:
        row, outside, inside = audit_canaries(canaries, seed)
        methods, delta = canaries.methods, canaries.delta
        job = jobs.add(inside, outside, delta=delta, methods=methods, splits=SPLITS)
        rows.append({**_plain(canaries), "dpaudit": row, "jobs": {"score": job}})
        log(canaries, f"ε ≥ {row['epsilon']:.3f} (true {canaries.truth:.3f})")
    return rows


def honest_part(jobs: Jobs, repeats: int, samples: int, seed: int) -> list[dict[str, Any]]:
    """Many honest ones; the f-DP recursion, which is slow, on 100."""
    rows = []
    for case in (*HONEST, *HONEST_CANARIES):
        ours, numbers = [], []
        for i in range(repeats):
            if isinstance(case, Canaries):
                row, first, second = audit_canaries(case, seed + 1 + i)
            else:
                row, first, second = audit(case, samples, str(seed + 1 + i))
            chosen = [m for m in case.methods if i < 100 or m not in FDP]
            ours.append(row)
            numbers.append(jobs.add(second, first, delta=case.delta, methods=chosen))
        rows.append({**_plain(case), "dpaudit": ours, "jobs": numbers})
        log(case, f"{repeats} repeats")
    return rows


def _plain(case: Case | Canaries) -> dict[str, Any]:
    names = "name", "says", "law", "shift", "claim", "truth", "m", "delta"
    return {name: getattr(case, name) for name in names if hasattr(case, name)}


def settle(rows: list[dict[str, Any]], answers: Answers) -> None:
    """Put jax_privacy's answers, by version, where their job numbers stand."""
    for row in rows:
        jobs = row.pop("jobs")
        row["jax_privacy"] = {v: {n: own[i] for n, i in jobs.items()} for v, own in answers.items()}


def shares(rows: list[dict[str, Any]], answers: Answers) -> list[dict[str, Any]]:
    """How often each bound exceeds the truth, with Clopper and Pearson's 95 % interval."""
    table = []
    for row in rows:
        bounds: dict[str, list[float]] = {"dpaudit": [r["epsilon"] for r in row["dpaudit"]]}
        if "epsilon_by_mu" in row["dpaudit"][0]:
            bounds["dpaudit, μ turned into ε"] = [r["epsilon_by_mu"] for r in row["dpaudit"]]
        for version, i in itertools.product(answers, row["jobs"]):
            for method, answer in answers[version][i].items():
                bounds.setdefault(f"`{method}`, {version}", []).append(answer["epsilon"])
        for tool, values in bounds.items():
            over = sum(v > row["truth"] + 1e-9 for v in values)
            interval = clopper_pearson(over, len(values))
            table.append(
                {
                    "case": row["name"], "says": row["says"],
                    "truth": row["truth"], "delta": row["delta"],
                    "tool": tool, "exceeds": over, "of": len(values),
                    "low": interval.low, "high": interval.high,
                    "median_bound": float(np.median(values)),
                }
            )  # fmt: skip
    return table


def main() -> None:
    # releases at each neighbour: of flawed mechanisms, and of honest ones, which are repeated
    args = options(
        __doc__, samples=50_000, honest_samples=2_000, repeats=300, seed=1, out=RESULTS / "peers"
    )
    if not JAX_PRIVACY.python.exists():
        sys.exit(f"{JAX_PRIVACY.python}: no such environment; make envs, or set DPAUDIT_ENVS")
    jobs, began = Jobs(), time.perf_counter()
    flawed = flawed_part(jobs, args.samples, args.seed)
    canaries = canary_part(jobs, args.seed)
    honest = honest_part(jobs, args.repeats, args.honest_samples, args.seed)
    libraries, answers = jobs.answers()
    settle(flawed, answers)
    settle(canaries, answers)
    provenance = collect(seed=str(args.seed), plugins=())
    document = to_dict(
        {
            "command": "make evidence ONLY=peers", "alpha": ALPHA, "samples": args.samples,
            "honest_samples": args.honest_samples, "repeats": args.repeats, "flawed": flawed,
            "one_run": canaries, "soundness": shares(honest, answers), "peers": libraries,
            "provenance": provenance, "seconds": time.perf_counter() - began,
        },
    )  # fmt: skip
    if not JAX_PRIVACY.missing():
        write(args.out / "results.json", document)
        replace_between(args.out / "README.md", "peers", tables(document))
    print(tables(document))


if __name__ == "__main__":
    main()
