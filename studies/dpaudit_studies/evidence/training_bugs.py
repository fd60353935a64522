"""Planted bugs of training loops, each at every level of an audit: which level finds it?

``python -m dpaudit_studies.evidence.training_bugs [--runs 20]`` prints a table; ``--mnist`` one of
a network on MNIST (:mod:`training_mnist`). Levels:

- *step*: ``audit_optimizer`` on an Opacus optimizer that has the bug, where it can have it;
- *loader*: ``audit_loader`` on the batches;
- *run*: ``audit_training`` on the weights that a whole training returns, 1,000 canaries;
- *one*: the same with one canary, in or out of 2,000 runs: two neighbouring data sets;
- *all steps*: on the noisy gradients of every step, for someone who sees them all.

``--sequential`` prints another table: one run of up to 400 steps with 100 canaries, whose coins are
tossed anew at every step, and the step at which the capital of ``audit_training(…,
sequential=True)`` crossed 1/α. There, shuffled batches are a random half of the records of each
step, as the data change before an epoch is over.

The training is a small DP-SGD in numpy: 300 records, 1,000 canaries with orthogonal gradients of
norm 10, clipping bound 1. Its claim: noise multiplier 4, rate 0.5, 16 steps. ``--honest N`` repeats
the honest training N times at α = 0.05 instead. ``--ones`` is the number of runs with one canary
(0: none), ``--no-steps`` leaves out Opacus, ``--out`` writes row by row as well.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dpaudit
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.result import MechanismResult
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import options

ALPHA = 0.05
CLAIM = "sigma=4,rate=0.5,steps=16"
SIGMA, RATE, STEPS, EPOCH = 4.0, 0.5, 16, 2
RECORDS = 300

Array = np.ndarray


@dataclass(frozen=True)
class Loop:
    """One DP-SGD, correct by default."""

    sigma: float = SIGMA
    steps: int = STEPS
    clip: str = "record"  # record, none, micro (batches of 8), mean
    sampling: str = "poisson"  # poisson, shuffled, weighted (the last tenth five times as often)
    noise: str = "fresh"  # fresh, once, epoch, last-micro, every-micro
    divide: str = "expected"  # expected, true
    normalised: bool = False  # BatchNorm over the batch

    def batches(self, n: int, rng: np.random.Generator) -> list[Array]:
        if self.sampling == "poisson":
            return [np.flatnonzero(rng.random(n) < RATE) for _ in range(self.steps)]
        if self.sampling == "weighted":
            weights = np.where(np.arange(n) < 0.9 * n, 1.0, 5.0)
            chances = weights / weights.sum()
            return [rng.choice(n, round(RATE * n), p=chances) for _ in range(self.steps)]
        epochs = -(-self.steps // EPOCH)
        parts = [b for _ in range(epochs) for b in np.array_split(rng.permutation(n), EPOCH)]
        return parts[: self.steps]

    def clipped_sum(self, g: Array) -> Array:
        if self.clip == "none":
            return g.sum(axis=0)
        if self.clip == "record":
            return bounded(g).sum(axis=0)
        if self.clip == "micro":
            starts = np.arange(0, len(g), 8)
            return bounded(np.add.reduceat(g, starts, axis=0)).sum(axis=0)
        return bounded(g.mean(axis=0)[None])[0] * RATE * RECORDS

    def __call__(self, data: Array, seed: int) -> Array:
        """The noisy sums of all steps, (steps, d); their sum is where the weights went."""
        rng = np.random.default_rng(seed)
        d = data.shape[1]
        released = np.empty((self.steps, d))
        for t, batch in enumerate(self.batches(len(data), rng)):
            released[t] = self._step(data[batch], t, seed, rng)
        return released

    def _step(self, g: Array, t: int, seed: int, rng: np.random.Generator) -> Array:
        """The noisy sum of a batch of gradients (n, d)."""
        if self.normalised and len(g):
            g = (g - g.mean(axis=0)) / (g.std(axis=0) + 0.1)
        noisy = self.clipped_sum(g) + self.sigma * self._noise(t, g.shape[1], seed, rng)
        return noisy * (RATE * RECORDS / max(1, len(g))) if self.divide == "true" else noisy

    def step_by_step(self, dataset: Any, seed: int) -> Generator[Any, Any, None]:
        """Yields the noisy sum (1, d) of each step, and takes the data of the next one."""
        rng = np.random.default_rng(seed)
        for t in range(self.steps):
            (batch,) = replace(self, steps=1).batches(len(dataset), rng)
            dataset = yield self._step(dataset[batch], t, seed, rng)[None]

    def _noise(self, t: int, d: int, seed: int, rng: np.random.Generator) -> Array:
        if self.noise == "once":
            return np.random.default_rng(seed + 1).standard_normal(d)
        if self.noise == "epoch":
            return np.random.default_rng([seed, t % EPOCH]).standard_normal(d)
        if self.noise == "last-micro":  # lost where gradients are accumulated
            return np.zeros(d)
        fresh = rng.standard_normal(d)
        return 2 * fresh if self.noise == "every-micro" else fresh


def bounded(g: Array) -> Array:
    return g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True))


CANARIES, ONES = 1_000, 2_000
STEP_CANARIES, LONG = 100, 400
STEP_CLAIM = f"sigma=4,rate=0.5,steps={LONG}"

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


def by_weights(released: Array, canaries: Array) -> Array:
    return released.sum(axis=0)[: len(canaries)]


def by_steps(released: Array, _canaries: Any) -> Array:
    """Where noise repeats, an epoch's gradients less those of the one before show batches bare."""
    visible = released[:, :CANARIES]
    return np.abs(visible[EPOCH:] - visible[:-EPOCH]).max(axis=0)


def run_level(
    loop: Loop, scores: Callable[..., Array], runs: int, seed: int, n: int = CANARIES
) -> MechanismResult:
    return dpaudit.audit_training(
        loop, data(n), canaries=10.0 * np.eye(n, n + 20), scores=scores, runs=runs, dpsgd=CLAIM,
        alpha=ALPHA, seed=seed,
    )  # fmt: skip


def step_by_step_level(loop: Loop, seed: int) -> MechanismResult:
    m = STEP_CANARIES
    return dpaudit.audit_training(
        longer(loop).step_by_step, data(m), canaries=10.0 * np.eye(m, m + 20), scores=by_weights,
        dpsgd=STEP_CLAIM, alpha=ALPHA, seed=seed, sequential=True,
    )  # fmt: skip


def longer(loop: Loop) -> Loop:
    return replace(loop, steps=loop.steps * LONG // STEPS)


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
    sgd = torch.optim.SGD([weights], lr=0.1)
    optimizer = Buggy(sgd, noise_multiplier=SIGMA, max_grad_norm=1.0, expected_batch_size=1)
    audit = dpaudit.audit_optimizer(optimizer, samples=2e5, releases=4_000, alpha=ALPHA, seed=seed)
    return audit.verdict


_OF_BATCHES = ("shuffled", "weighted", "noise seeded", "BatchNorm", "four times")
STEP_BUGS = tuple(name for name in BUGS if not name.startswith(_OF_BATCHES))


def bound_cell(result: MechanismResult) -> str:
    bound = f"≥ {np.floor(100 * result.epsilon.low) / 100:.2f}"
    return f"**{bound}**" if result.verdict == "finding" else bound


def verdict_cell(verdict: str) -> str:
    return "**found**" if verdict == "finding" else verdict


@dataclass(frozen=True)
class Task:
    """A training with its levels; ``ones`` is the number of runs with one canary."""

    title: str
    run: Callable[..., MechanismResult]
    by_weights: Callable[..., Array]
    by_steps: Callable[..., Array]
    step_by_step: Callable[[Loop, int], MechanismResult]
    ones: int
    weights: int

    def one(self, loop: Loop, runs: int, seed: int) -> MechanismResult:
        return self.run(loop, self.by_weights, runs, seed, 1)


def task(*, mnist: bool) -> Task:
    if not mnist:
        return Task("numpy", run_level, by_weights, by_steps, step_by_step_level, ONES, 1_000)
    from dpaudit_studies.evidence import training_mnist as digits

    right = 100 * digits.accuracy(digits.on_digits(HONEST))
    title = f"MNIST, {digits.WEIGHTS:,} weights, {right:.0f} % right"
    return Task(
        title,
        digits.run_level,
        digits.by_weights,
        digits.by_steps,
        digits.step_by_step_level,
        ones=600,
        weights=digits.WEIGHTS,
    )


def table(args: Namespace) -> None:
    """Print the table; rows that ``out`` already has are not computed again."""
    at, runs, seed = task(mnist=args.mnist), args.runs, args.seed
    ones = at.ones if args.ones is None else args.ones
    lines = args.out.read_text().splitlines() if args.out and args.out.exists() else []
    if not lines:
        lines = [
            f"{at.title}; claim {CLAIM}: ε = {DpSgd.parse(CLAIM).epsilon(1e-5):.2f} at δ = 1e-5; "
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
            "" if args.no_steps else verdict_cell(step_level(name, seed, at.weights)),
            verdict_cell(loader_level(loop, seed)),
            bound_cell(at.run(loop, at.by_weights, runs, seed)),
            bound_cell(at.one(loop, ones, seed)) if ones else "",
            bound_cell(at.run(loop, at.by_steps, runs, seed)),
        ]
        took = time.process_time() - began
        lines.append(f"| {name} | {' | '.join(cells)} | {took:.0f} |")
        print(lines[-1], flush=True)
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text("\n".join(lines) + "\n")


def sequential_table(args: Namespace) -> None:
    """Print at which step of one run each bug was found."""
    at = task(mnist=args.mnist)
    lines = [
        f"{at.title}; one run, claim {STEP_CLAIM}, {STEP_CANARIES} canaries; α = {ALPHA}; "
        f"seed {args.seed}",
        "",
        "| bug | contradicted at step | capital | mostly by | CPU seconds |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    found = 0
    for name, loop in BUGS.items():
        began = time.process_time()
        result = at.step_by_step(loop, args.seed)
        steps, capital, _ = result.details["sequential"]["looks"][-1]
        bets, *counted = result.tests
        by = "the number of steps" if counted else bets.details["statistic"]
        step = f"**{steps + len(counted):,}**" if result.verdict == "finding" else ""
        found += result.verdict == "finding"
        took = time.process_time() - began
        lines.append(f"| {name} | {step} | 10^{capital:.1f} | {by} | {took:.0f} |")
        print(lines[-1], flush=True)
    lines.append(f"\nfound: {found} of {len(BUGS)} rows")
    print(lines[-1], flush=True)
    if args.out:
        with args.out.open("a") as file:
            file.write("\n".join(lines) + "\n\n")


def honest(args: Namespace) -> None:
    """How often an honest training is a finding, by its weights in one run and with one canary."""
    at, times = task(mnist=args.mnist), args.honest
    levels = {
        "one run": lambda seed: at.run(HONEST, at.by_weights, 1, seed),
        "one canary in 400 runs": lambda seed: at.one(HONEST, 400, seed),
    }
    if args.sequential:
        levels = {f"step by step, up to {LONG}": lambda seed: at.step_by_step(HONEST, seed)}
    for name, audit in levels.items():
        if name.startswith("one canary") and args.mnist:
            continue  # as in numpy, at fifty times the cost
        findings = sum(audit(seed).verdict == "finding" for seed in range(times))
        interval = clopper_pearson(findings, times)
        line = (
            f"{at.title}, honest, {name}: {findings} of {times} findings at α = {ALPHA}, "
            f"95 % interval {interval.low:.3f} to {interval.high:.3f}"
        )
        print(line, flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(f"{line}\n")


def main() -> None:
    args = options(
        __doc__, mnist=False, runs=20, ones=int, seed=1, honest=0, no_steps=False,
        sequential=False, out=Path,
    )  # fmt: skip
    if args.honest:
        honest(args)
    elif args.sequential:
        sequential_table(args)
    else:
        table(args)


if __name__ == "__main__":
    main()
