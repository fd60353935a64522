"""The catalogue: sound and broken mechanisms, with fixed features alone and with learned scores.

    python -m dpaudit_studies.evidence.catalogue [--samples 1e5] [--seed 1] [NAME …]
    python -m dpaudit_studies.evidence.catalogue --validity 150

The second audits honest ones at exactly their claim, α = 0.05.

The mechanisms are those of StatDP (Ding et al. 2018), DP-Sniper (Bichsel et al. 2021) and
DP-Auditorium (Kong et al. 2023) at one pair of neighbours each, and leaks that no single coordinate
shows. All noise is rounded to multiples of 2^-20, so that the last bits tell nothing. ``true`` is ε
at that pair, exact where it is known and else a bound ("≤"). α = 0.01; ``samples`` releases are
drawn at each neighbour, half of them to learn from. A sound mechanism may be a finding once in 100
audits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpaudit.accounting import gaussian_epsilon, gaussian_sigma
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.judge import Aim, Judgement, LearnedEvents, judge, learn
from dpaudit.provenance import hardware
from dpaudit.stats import clopper_pearson
from dpaudit_studies.evidence import options

Array = np.ndarray
Rng = np.random.Generator
Release = Callable[[Rng, int, int], Array]
GRID = 2.0**-20
ALPHA = 0.01
STOP = -1000.0


def grid(x: Array) -> Array:
    return np.round(x / GRID) * GRID


def lap(rng: Rng, scale: float, shape: tuple[int, ...]) -> Array:
    return grid(rng.laplace(0, scale, shape))


@dataclass(frozen=True)
class Case:
    """``release(rng, side, n)`` → (n, k) at neighbour 0 or 1; ``true`` ε there, "" if unknown."""

    name: str
    release: Release
    true: str
    sound: bool
    claim: float = 1.0
    delta: float = 0.0


def added(noise: Callable[[Rng, tuple[int, ...]], Array], *pair: list[float]) -> Release:
    """Noise of one law added to one of two vectors."""
    values = np.array(pair)
    return lambda rng, side, n: values[side] + noise(rng, (n, values.shape[1]))


def laplace(scale: float, first: list[float], second: list[float]) -> Release:
    return added(lambda rng, shape: lap(rng, scale, shape), first, second)


def gaussian(sigma: float, first: list[float], second: list[float]) -> Release:
    return added(lambda rng, shape: grid(rng.normal(0, sigma, shape)), first, second)


def geometric(ratio: float, first: list[float], second: list[float]) -> Release:
    def noise(rng: Rng, shape: tuple[int, ...]) -> Array:
        return (rng.geometric(1 - ratio, shape) - rng.geometric(1 - ratio, shape)).astype(float)

    return added(noise, first, second)


def response(keep: float, bits: int) -> Release:
    """Randomised response: the secret bit is the first, the others are 0."""

    def release(rng: Rng, side: int, n: int) -> Array:
        truth = np.zeros((n, bits))
        truth[:, 0] = side
        return np.where(rng.random((n, bits)) < keep, truth, 1 - truth)

    return release


def rappor(flip: float, hashes: int) -> Release:
    """Permanent response of a Bloom filter: the neighbours differ in 2·hashes of 16 bits."""

    def release(rng: Rng, side: int, n: int) -> Array:
        truth = np.zeros((n, 16))
        truth[:, hashes * side : hashes * (side + 1)] = 1
        coin = rng.random((n, 16))
        return np.where(coin < flip / 2, 1.0, np.where(coin < flip, 0.0, truth))

    return release


QUERIES = (np.array([1.0, 1, 1, 1, 1]), np.array([2.0, 0, 0, 0, 0]))


def noisy_max(*, value: bool, exponential: bool, scale: float) -> Release:
    def release(rng: Rng, side: int, n: int) -> Array:
        shape = (n, 5)
        noise = rng.exponential(scale, shape) if exponential else rng.laplace(0, scale, shape)
        noisy = grid(QUERIES[side] + noise)
        if value:
            return noisy.max(axis=1, keepdims=True)
        return noisy.argmax(axis=1)[:, None].astype(float)

    return release


def exponential_mechanism(rng: Rng, side: int, n: int) -> Array:
    weight = np.exp(0.5 * QUERIES[side])
    return rng.choice(5, size=(n, 1), p=weight / weight.sum()).astype(float)


def permute_and_flip(rng: Rng, side: int, n: int) -> Array:
    noisy = QUERIES[side] + rng.exponential(2.0, (n, 5))
    return noisy.argmax(axis=1)[:, None].astype(float)


def sparse_vector(variant: int) -> Release:
    """The six of Lyu, Su and Li 2017 (arXiv 1603.01699): ε = 1, 10 queries, threshold 1, c = 1.

    The fourth is wrong only where queries move in opposite directions: at (0 … 0, 1 … 1) it has
    ε = 0.25, with the last query moving against the others 1.73 (both integrated numerically).
    """
    low, high = np.zeros(10), np.ones(10)
    last, mixed = (np.where(np.arange(10) < at, low, high) for at in (9, 5))
    pairs = {4: (last, 1 - last), 5: (mixed, 1 - mixed), 6: (mixed, 1 - mixed)}
    pair = pairs.get(variant, (low, high))

    def release(rng: Rng, side: int, n: int) -> Array:
        q = pair[side]
        rho = lap(rng, 2.0 if variant != 4 else 4.0, (n, 1))
        scale = {1: 4.0, 2: 4.0, 3: 2.0, 4: 4.0 / 3.0, 5: 0.0, 6: 2.0}[variant]
        nu = lap(rng, scale, (n, 10)) if scale else np.zeros((n, 10))
        above = q + nu >= 1 + rho
        shown = np.where(above, q + nu if variant == 3 else 1.0, 0.0)
        if variant in (1, 2, 3, 4):
            done = np.cumsum(above, axis=1) - above > 0
            shown[done] = STOP
        return shown

    return release


def tree(rng: Rng, side: int, n: int) -> Array:
    """Binary counts of 4 records: a record is in 3 nodes, Laplace of scale 3 each."""
    leaf = np.array([[1.0, 0, 1, 1], [1.0, 1, 1, 1]][side])
    nodes = np.concatenate([leaf, leaf.reshape(2, 2).sum(1), [leaf.sum()]])
    return nodes + lap(rng, 3.0, (n, 7))


def smart_sum(rng: Rng, side: int, n: int) -> Array:
    """Block sums get noise of their own, and so does every prefix: half the noise it needs."""
    x = np.array([[1.0, 1, 1, 1, 1, 1], [0.0, 1, 1, 1, 1, 1]][side])
    single = x + lap(rng, 1.0, (n, 6))
    blocks = np.cumsum(x.reshape(2, 3).sum(1)) + np.cumsum(lap(rng, 1.0, (n, 2)), axis=1)
    return np.concatenate([np.cumsum(single[:, :3], axis=1), blocks], axis=1)


def prefix_sums(scale: float) -> Release:
    def release(rng: Rng, side: int, n: int) -> Array:
        x = np.ones(10)
        x[0] += side
        return np.cumsum(x) + np.cumsum(lap(rng, scale, (n, 10)), axis=1)

    return release


def parity(bits: int, of: int, noise: float) -> Release:
    def release(rng: Rng, side: int, n: int) -> Array:
        x = rng.integers(0, 2, (n, of)).astype(float)
        x[:, 0] = (x[:, 1:bits].sum(1) + side) % 2
        return grid(x + rng.normal(0, noise, (n, of))) if noise else x

    return release


def gated(rng: Rng, side: int, n: int) -> Array:
    x = rng.standard_normal((n, 4))
    gate = (np.abs(x[:, :2]) > 0.5).all(axis=1)
    x[gate, 2] = np.abs(x[gate, 2]) * np.sign(x[gate, 0] * x[gate, 1]) * (1 if side else -1)
    return grid(x)


def shared_noise(rng: Rng, side: int, n: int) -> Array:
    return np.array([[0.0, 0, 0], [1.0, 0, 0]][side]) + lap(rng, 1.0, (n, 1))


def sorted_outlier(rng: Rng, side: int, n: int) -> Array:
    """Ten noisy values in order; the neighbour's outlier is clipped a little too late."""
    x = rng.laplace(0, 1, (n, 10))
    x[:, 0] = np.where(rng.random(n) < 0.5, x[:, 0], 12.0 + 0.2 * x[:, 0]) if side else x[:, 0]
    return grid(np.sort(x, axis=1))


def rare_zero(rng: Rng, side: int, n: int) -> Array:
    """Every 50th release of neighbour 1 has one coordinate without noise."""
    x = lap(rng, 4.0, (n, 4)) + np.array([1.0, 1, 1, 1]) * side / 4
    bare = (rng.random(n) < 0.02) & (side == 1)
    x[bare, rng.integers(0, 4, bare.sum())] = 0.25
    return x


def clipped_noise(rng: Rng, side: int, n: int) -> Array:
    return side + np.clip(lap(rng, 1.0, (n, 1)), -4.0, 4.0)


def keyed_counts(rng: Rng, side: int, n: int) -> Array:
    """Groups that exist are released with noise, the others not at all."""
    x = np.array([5.0, 3.0, 1.0 * side]) + lap(rng, 1.0, (n, 3))
    x[:, 2] = x[:, 2] if side else STOP
    return x


def averaged(rng: Rng, side: int, n: int) -> Array:
    """A mean over the true number of records, which is 9 or 10: noise for n = 10 always."""
    total, count = (9.0, 9) if side else (20.0, 10)
    return np.column_stack([total / count + lap(rng, 0.6, (n,)), count + lap(rng, 2.0, (n,))])


def unclipped_step(rng: Rng, side: int, n: int) -> Array:
    """A DP-SGD step for clipping 1 with one record's gradient of norm 2.5."""
    return grid(side * 2.5 / math.sqrt(20) + rng.normal(0, 4.0, (n, 20)))


def staircase(rng: Rng, side: int, n: int) -> Array:
    """Geng and Viswanath 2014, ε = 1, Δ = 1, γ = 1/2."""
    b = math.exp(-1.0)
    g, sign = rng.geometric(1 - b, (n, 1)) - 1, rng.choice([-1.0, 1.0], (n, 1))
    far = rng.random((n, 1)) < b * 0.5 / (0.5 + b * 0.5)
    u = rng.random((n, 1)) * 0.5
    return grid(side + sign * (g + np.where(far, 0.5 + u, u)))


def gauss_true(sensitivity: float, sigma: float, delta: float) -> str:
    return f"{gaussian_epsilon(delta, sigma=sigma, sensitivity=sensitivity):.3g}"


ZEROS, FIRST = [0.0] * 5, [1.0, 0, 0, 0, 0]
TEN = [0.0] * 10
SPREAD = [1 / math.sqrt(10)] * 10
D = 1e-3
SIGMA = gaussian_sigma(1.0, D)

CASES = (
    Case("laplace", laplace(1.0, [0.0], [1.0]), "1", True),
    Case("laplace-rounded", added(lambda r, s: np.round(r.laplace(0, 1, s)), [0.0], [1.0]), "1",
         True),
    Case("geometric", geometric(math.exp(-1), [0.0], [1.0]), "1", True),
    Case("histogram", laplace(1.0, ZEROS, FIRST), "1", True),
    Case("histogram-replace", laplace(2.0, FIRST, [0.0, 1, 0, 0, 0]), "1", True),
    Case("vector-geometric", geometric(math.exp(-1 / 3), [0.0] * 3, [1.0] * 3), "1", True),
    Case("randomised-response", response(1 / (1 + math.exp(-1)), 1), "1", True),
    Case("response-of-8-bits", response(1 / (1 + math.exp(-1)), 8), "1", True),
    Case("rappor", rappor(0.7553, 1), "1", True),
    Case("noisy-max-index", noisy_max(value=False, exponential=False, scale=2.0), "≤ 1", True),
    Case("noisy-max-exponential", noisy_max(value=False, exponential=True, scale=2.0), "≤ 1", True),
    Case("exponential-mechanism", exponential_mechanism, "≤ 1", True),
    Case("permute-and-flip", permute_and_flip, "≤ 1", True),
    Case("sparse-vector-1", sparse_vector(1), "≤ 1", True),
    Case("sparse-vector-2", sparse_vector(2), "≤ 1", True),
    Case("prefix-sums", prefix_sums(1.0), "1", True),
    Case("tree", tree, "1", True),
    Case("staircase", staircase, "1", True),
    Case("gaussian", gaussian(SIGMA, [0.0], [1.0]), gauss_true(1, SIGMA, D), True, 1.0, D),
    Case("gaussian-vector", gaussian(SIGMA, TEN, SPREAD), gauss_true(1, SIGMA, D), True, 1.0, D),
    Case("blank", lambda r, _, n: lap(r, 1.0, (n, 5)), "0", True),
    Case("blank-coins", lambda r, _, n: r.integers(0, 2, (n, 20)).astype(float), "0", True),
    Case("laplace-20", laplace(0.8, [0.0], [1.0]), "1.25", False),
    Case("histogram-half", laplace(0.5, ZEROS, FIRST), "2", False),
    Case("histogram-both-bins", laplace(1.0, FIRST, [0.0, 1, 0, 0, 0]), "2", False),
    Case("gaussian-20", gaussian(0.8 * SIGMA, TEN, SPREAD), gauss_true(1, 0.8 * SIGMA, D), False,
         1.0, D),
    Case("response-off", response(0.8, 8), "1.39", False),
    Case("rappor-two-hashes", rappor(0.7553, 2), "2", False),
    Case("noisy-max-value", noisy_max(value=True, exponential=True, scale=2.0), "∞", False),
    Case("sparse-vector-3", sparse_vector(3), "∞", False),
    Case("sparse-vector-4", sparse_vector(4), "1.73", False),
    Case("sparse-vector-5", sparse_vector(5), "∞", False),
    Case("sparse-vector-6", sparse_vector(6), "> 1", False),
    Case("smart-sum", smart_sum, "2", False),
    Case("prefix-sums-half", prefix_sums(0.5), "2", False),
    Case("parity-4-of-20", parity(4, 20, 0.0), "∞", False),
    Case("parity-4-noisy", parity(4, 20, 0.2), "> 1", False),
    Case("parity-3-noisy", parity(3, 20, 0.5), "> 1", False),
    Case("gated", gated, "∞", False),
    Case("shared-noise", shared_noise, "∞", False),
    Case("sorted-outlier", sorted_outlier, "> 1", False),
    Case("rare-zero", rare_zero, "> 9", False),
    Case("clipped-noise", clipped_noise, "∞", False),
    Case("keyed-counts", keyed_counts, "∞", False),
    Case("averaged", averaged, "2.17", False),
    Case("unclipped-step", unclipped_step, gauss_true(2.5, 4.0, D), False, 1.0, D),
)  # fmt: skip


def draw_releases(case: Case, *, samples: int, seed: int) -> tuple[list[Array], list[Array]]:
    """Releases of ``case`` at each neighbour: to learn from, and to count."""
    rng = np.random.default_rng([seed, *case.name.encode()])
    half = samples // 2
    second = int(rng.binomial(2 * half, 0.5))
    learn_from = [case.release(rng, side, half) for side in (0, 1)]
    return learn_from, [case.release(rng, 0, 2 * half - second), case.release(rng, 1, second)]


def learn_and_judge(
    case: Case, x: list[Array], y: list[Array], *, seed: int, seconds: float, alpha: float = ALPHA
) -> tuple[LearnedEvents, Judgement, float]:
    """What was learned of releases ``x``, its judgement on ``y``, and the CPU seconds of both.

    ``seconds`` for learned scores, 0 for none.
    """
    began = time.process_time()
    aim, rng = Aim(case.delta, alpha, case.claim, real_numbers=True), np.random.default_rng(seed)
    pair = np.zeros(1), np.ones(1)
    learned = learn(*x, neighbours=pair, aim=aim, rng=rng, seconds=seconds)
    judged = judge(learned, *y, claim=PrivacyClaim(case.claim, case.delta), alpha=alpha)
    return learned, judged, time.process_time() - began


def best_event(judged: Judgement) -> str:
    """The event with the largest bound."""
    best = max((t for t in judged.tests if not t.advisory), key=lambda test: test.statistic)
    return best.effect.partition(":")[0]


TIGHT = ("histogram", "response-of-8-bits", "gaussian-vector", "prefix-sums")


def validity(times: int, *, seed: int) -> None:
    """Audits of mechanisms whose ε is exactly the claim: how many are findings, at α = 0.05."""
    wrong = 0
    print(f"{times} audits each, 4,000 releases per neighbour, seed {seed}, {hardware()}\n")
    for case in (case for case in CASES if case.name in TIGHT):
        findings = 0
        for i in range(times):
            x, y = draw_releases(case, samples=4000, seed=seed + i)
            judged = learn_and_judge(case, x, y, seed=seed + i, seconds=20.0, alpha=0.05)[1]
            findings += any(test.finding for test in judged.tests)
        print(f"{case.name:22}{findings:5} of {times}", flush=True)
        wrong += findings
    total = times * len(TIGHT)
    bounds = clopper_pearson(wrong, total)
    print(
        f"\nfindings at alpha 0.05, learned scores included: {wrong} of {total}: "
        f"{wrong / total:.2%} [{bounds.low:.2%}, {bounds.high:.2%}]"
    )


def main() -> None:
    args = options(__doc__, names=(), samples=100_000, seed=1, validity=0)
    if args.validity:
        validity(args.validity, seed=args.seed)
        return
    samples = args.samples
    setup = f"alpha {ALPHA}, seed {args.seed}, CPU seconds, {hardware()}"
    print(f"{samples:,} releases per neighbour, {setup}\n")
    print(f"{'mechanism':22}{'claim':>6}{'true':>7}{'fixed':>8}{'learned':>9}{'s':>7}  event")
    wrong = missed = 0
    for case in CASES:
        if args.names and case.name not in args.names:
            continue
        x, y = draw_releases(case, samples=samples, seed=args.seed)
        _, fixed, _ = learn_and_judge(case, x, y, seed=args.seed, seconds=0.0)
        _, both, seconds = learn_and_judge(case, x, y, seed=args.seed, seconds=30.0)
        is_finding = any(test.finding for test in both.tests)
        wrong += is_finding and case.sound
        missed += not is_finding and not case.sound
        print(
            f"{case.name:22}{case.claim:6g}{case.true:>7}{fixed.epsilon:8.2f}{both.epsilon:9.2f}"
            f"{seconds:7.1f}  {'FINDING ' if is_finding else ''}{best_event(both)[:90]}",
            flush=True,
        )
    print(f"\nfindings of sound mechanisms: {wrong}; broken mechanisms that pass: {missed}")


if __name__ == "__main__":
    main()
