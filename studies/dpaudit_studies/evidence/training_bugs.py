"""Planted bugs of training loops, each at every level of an audit: which level finds it?

``python -m dpaudit_studies.evidence.training_bugs [--runs 20]`` prints a table; ``--mnist`` one of
a network on MNIST (:mod:`training_mnist`). Levels:

- *step*: ``audit_optimizer`` on an Opacus optimizer that has the bug, where it can have it;
- *loader*: ``audit_loader`` on the batches;
- *run*: ``audit_training`` on the weights that a whole training returns, 1,000 canaries;
- *one*: the same with one canary, in or out of 2,000 runs: two neighbouring data sets;
- *all steps*: on the noisy gradients of every step, for someone who sees them all.

The training is a small DP-SGD in numpy: 300 records, 1,000 canaries with orthogonal gradients of
norm 10, clipping bound 1. Its claim: noise multiplier 4, rate 0.5, 16 steps. ``--honest N`` repeats
the honest training N times at α = 0.05 instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dpaudit
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.result import MechanismResult
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence.training_loop import (
    ALPHA,
    CLAIM,
    EPOCH,
    RATE,
    RECORDS,
    SIGMA,
    STEPS,
    Array,
    Loop,
)

CANARIES, ONES = 1_000, 2_000

HONEST = Loop()
BUGS: dict[str, Loop] = {
    "none (honest)": HONEST,
    "noise multiplier halved": replace(HONEST, sigma=SIGMA / 2),
    "no clipping": replace(HONEST, clip="none"),
    "clipping per micro-batch": replace(HONEST, clip="micro"),
    "clipping after averaging": replace(HONEST, clip="mean"),
    "divided by the true batch size": replace(HONEST, divide="true"),
    "shuffled, not Poisson": replace(HONEST, sampling="shuffled"),
    "weighted sampler": replace(HONEST, sampling="weighted"),
    "the same noise each step": replace(HONEST, noise="once"),
    "noise seeded per epoch": replace(HONEST, noise="epoch"),
    "noise per micro-batch": replace(HONEST, noise="every-micro"),
    "no noise when accumulating": replace(HONEST, noise="last-micro"),
    "BatchNorm across records": replace(HONEST, normalised=True),
    "four times the accountant's steps": replace(HONEST, steps=4 * STEPS),
}


def data(canaries: int = CANARIES) -> Array:
    """Records with small gradients, which touch no canary's coordinate."""
    rows = np.zeros((RECORDS, canaries + 20))
    rows[:, canaries:] = np.random.default_rng(0).standard_normal((RECORDS, 20)) / 5
    return rows


def canaries() -> Array:
    return 10.0 * np.eye(CANARIES, CANARIES + 20)


def by_weights(released: Array, _canaries: Any) -> Array:
    return released.sum(axis=0)[:CANARIES]


def by_steps(released: Array, _canaries: Any) -> Array:
    """Where noise repeats, an epoch's gradients less those of the one before show batches bare."""
    seen = released[:, :CANARIES]
    return np.abs(seen[EPOCH:] - seen[:-EPOCH]).max(axis=0)


def run_level(loop: Loop, scores: Callable[..., Array], runs: int, seed: int) -> MechanismResult:
    return dpaudit.audit_training(
        loop,
        data(),
        canaries=canaries(),
        scores=scores,
        runs=runs,
        dpsgd=CLAIM,
        alpha=ALPHA,
        seed=seed,
    )


def one_level(loop: Loop, runs: int, seed: int) -> MechanismResult:
    return dpaudit.audit_training(
        loop,
        data(1),
        canaries=10.0 * np.eye(1, 21),
        scores=lambda released, _: released.sum(axis=0)[:1],
        runs=runs,
        dpsgd=CLAIM,
        alpha=ALPHA,
        seed=seed,
    )


def loader_level(loop: Loop, seed: int) -> str:
    rng = np.random.default_rng(seed)
    batches = replace(loop, steps=200).batches(RECORDS, rng)
    return dpaudit.audit_loader(batches, records=RECORDS, rate=RATE, alpha=ALPHA, seed=seed).verdict


def step_level(name: str, seed: int, size: int = 1_000) -> str:
    """The verdict on an Opacus optimizer with the bug; empty if an optimizer cannot have it."""
    import torch
    from opacus.optimizers import DPOptimizer

    class Buggy(DPOptimizer):
        def clip_and_accumulate(self) -> None:
            super().clip_and_accumulate()
            for p in self.params:
                g = p.grad_sample
                if name == "no clipping":
                    p.summed_grad = g.sum(dim=0)
                elif name in ("clipping per micro-batch", "clipping after averaging"):
                    whole = g.sum(dim=0) if "micro" in name else g.mean(dim=0)
                    p.summed_grad = whole / max(1.0, float(whole.norm()) / self.max_grad_norm)

        def add_noise(self) -> None:
            if name == "the same noise each step":
                torch.manual_seed(1)
            super().add_noise()
            for p in self.params:
                if name == "noise multiplier halved":
                    p.grad = (p.grad + p.summed_grad.view_as(p)) / 2
                elif name == "noise per micro-batch":
                    p.grad = 2 * p.grad - p.summed_grad.view_as(p)
                elif name == "no noise when accumulating":
                    p.grad = p.summed_grad.view_as(p).clone()

        def scale_grad(self) -> None:
            super().scale_grad()
            if name == "divided by the true batch size":
                for p in self.params:
                    p.grad *= self.expected_batch_size / max(1, len(p.grad_sample))

    if name not in STEP_BUGS:
        return ""
    weights = torch.nn.Parameter(torch.zeros(size))
    optimizer = Buggy(
        torch.optim.SGD([weights], lr=0.1),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
        expected_batch_size=1,
    )
    return dpaudit.audit_optimizer(
        optimizer, samples=2e5, releases=4_000, alpha=ALPHA, seed=seed
    ).verdict


STEP_BUGS = (
    "none (honest)",
    "noise multiplier halved",
    "no clipping",
    "clipping per micro-batch",
    "clipping after averaging",
    "divided by the true batch size",
    "the same noise each step",
    "noise per micro-batch",
    "no noise when accumulating",
)


def shown(result: MechanismResult) -> str:
    bound = f"≥ {np.floor(100 * result.epsilon.low) / 100:.2f}"
    return f"**{bound}**" if result.verdict == "finding" else bound


def marked(verdict: str) -> str:
    return {"finding": "**found**", "": ""}.get(verdict, verdict)


@dataclass(frozen=True)
class Task:
    """A training with its levels; ``ones`` is the number of runs with one canary."""

    says: str
    run: Callable[..., MechanismResult]
    one: Callable[..., MechanismResult]
    by_weights: Callable[..., Array]
    by_steps: Callable[..., Array]
    ones: int
    weights: int


def task(*, mnist: bool) -> Task:
    if not mnist:
        return Task("numpy", run_level, one_level, by_weights, by_steps, ONES, 1_000)
    from dpaudit_studies.evidence import training_mnist as digits

    def one(loop: Loop, runs: int, seed: int) -> MechanismResult:
        return digits.run_level(loop, digits.by_weights, runs, seed, 1)

    right = digits.accuracy(digits.on_digits(HONEST))
    return Task(
        f"MNIST, {digits.WEIGHTS:,} weights, {100 * right:.0f} % right",
        *(digits.run_level, one, digits.by_weights, digits.by_steps, 600, digits.WEIGHTS),
    )


def table(given: argparse.Namespace) -> None:
    """Print the table; rows that ``out`` already has are not computed again."""
    at, runs, seed = task(mnist=given.mnist), given.runs, given.seed
    ones = at.ones if given.ones is None else given.ones
    lines = given.out.read_text().splitlines() if given.out and given.out.exists() else []
    if not lines:
        lines = [
            f"{at.says}; claim {CLAIM}: ε = {DpSgd.parse(CLAIM).epsilon(1e-5):.2f} at δ = 1e-5; "
            f"{runs} runs, of one canary {at.ones:,}; α = {ALPHA}; seed {seed}",
            "",
            "| bug | step | loader | run: ε | one: ε | all steps: ε | CPU seconds |",
            "|---|---|---|---|---|---|---|",
        ]
    print("\n".join(lines), flush=True)
    done = {line.split("|")[1].strip() for line in lines if line.startswith("| ")}
    for name, loop in BUGS.items():
        if name in done:
            continue
        began = time.process_time()
        cells = [
            "" if given.no_steps else marked(step_level(name, seed, at.weights)),
            marked(loader_level(loop, seed)),
            shown(at.run(loop, at.by_weights, runs, seed)),
            shown(at.one(loop, ones, seed)) if ones else "",
            shown(at.run(loop, at.by_steps, runs, seed)),
        ]
        took = time.process_time() - began
        lines.append(f"| {name} | {' | '.join(cells)} | {took:.0f} |")
        print(lines[-1], flush=True)
        if given.out:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text("\n".join(lines) + "\n")


def honest(given: argparse.Namespace) -> None:
    """How often an honest training is a finding, by its weights in one run and with one canary."""
    at, times = task(mnist=given.mnist), given.honest
    levels = {
        "one run": lambda seed: at.run(HONEST, at.by_weights, 1, seed),
        "one canary in 400 runs": lambda seed: at.one(HONEST, 400, seed),
    }
    for name, audit in levels.items():
        if name != "one run" and given.mnist:
            continue  # as in numpy, at fifty times the cost
        found = sum(audit(seed).verdict == "finding" for seed in range(times))
        interval = clopper_pearson(found, times)
        line = (
            f"{at.says}, honest, {name}: {found} of {times} findings at α = {ALPHA}, "
            f"95 % interval {interval.low:.3f} to {interval.high:.3f}"
        )
        print(line, flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", action="store_true", help="a network on MNIST")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ones", type=int, help="runs of one canary; 0 leaves them out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--honest", type=int, default=0, metavar="N")
    parser.add_argument("--no-steps", action="store_true", help="without Opacus")
    parser.add_argument("--out", type=Path, help="also written there, row by row")
    given = parser.parse_args()
    if given.honest:
        honest(given)
    else:
        table(given)


if __name__ == "__main__":
    main()
