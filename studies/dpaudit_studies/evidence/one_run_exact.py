"""The largest tail of right guesses that any (ε, δ)-DP mechanism has, by linear programming.

``python -m dpaudit_studies.evidence.one_run_exact`` prints, for r guesses about m canaries of which
v are right, the bound for P(V ≥ v) in closed form, that of the recursion for trade-off curves, and
the largest P(V ≥ v) that any (ε, δ)-DP mechanism has: a linear program over the law of V. No valid
bound is smaller than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse
from scipy.optimize import linprog

from dpaudit.audit.mechanism.one_run import (
    Guesses,
    one_run_p,
    one_run_p_tradeoff,
    tradeoff_of_epsilon,
)

CASES = (
    *((100, 100, 75, e, d) for e, d in ((0.5, 1e-5), (0.5, 1e-3), (1.0, 0.01))),
    *((1_000, 600, 470, e, d) for e, d in ((1.0, 1e-5), (1.0, 1e-3), (1.0, 0.01))),
    *((1_000, 160, 150, e, d) for e, d in ((2.0, 1e-5), (2.0, 1e-3), (2.0, 0.01))),
    (10_000, 200, 182, 2.0, 1e-5),
    (10_000, 700, 694, 4.0, 1e-5),
    (10_000, 5_000, 4_000, 1.3, 1e-5),
)


def largest_tail(
    m: int, r: int, v: int, *, epsilon: float, delta: float
) -> tuple[float, np.ndarray]:
    """The largest P(V ≥ v) under (ε, δ)-DP, and the law (r + 1,) of V that has it.

    A mechanism that draws t by it and then the canaries to guess, and which of them are guessed
    right, uniformly, is (ε, δ)-DP: the sums of :func:`largest_joint_tail` are its hockey-stick
    divergence.
    """
    tail, (law,) = largest_joint_tail(m, [(r, v)], epsilon=epsilon, delta=delta)
    return tail, law


def largest_joint_tail(
    m: int, plans: Sequence[tuple[int, int]], *, epsilon: float, delta: float
) -> tuple[float, list[np.ndarray]]:
    """The largest P(V ≥ v of its plan), if the mechanism chooses among plans (r, v), by scipy.

    Turning a canary's coin turns "guessed right, t right in all" into "guessed wrong, t − 1 right",
    so the laws p of V keep Σ (t·p_t − e^ε·(r−t+1)·p_{t−1})₊ + Σ ((r−t)·p_t − e^ε·(t+1)·p_{t+1})₊ ≤
    m·δ, summed over plans. Returned with the (r + 1,) probabilities of each plan and V.
    """
    grow, blocks, gains = math.exp(epsilon), [], []
    for r, v in plans:
        t = np.arange(r + 1)
        right = sparse.diags([t, -grow * (r - t[1:] + 1)], [0, -1])
        wrong = sparse.diags([r - t, -grow * (t[:-1] + 1)], [0, 1])
        blocks.append(sparse.vstack([right, wrong]))
        gains.append(-1.0 * (t >= v))
    demands = sparse.block_diag(blocks)
    excesses, n = demands.shape
    total = sparse.csr_matrix(np.append(np.zeros(n), np.ones(excesses))[None])
    solution = linprog(
        np.append(np.concatenate(gains), np.zeros(excesses)),
        A_ub=sparse.vstack([sparse.hstack([demands, -sparse.identity(excesses)]), total]).tocsr(),
        b_ub=np.append(np.zeros(excesses), m * delta),
        A_eq=sparse.csr_matrix(np.append(np.ones(n), np.zeros(excesses))[None]),
        b_eq=[1.0],
        method="highs-ds",
    )
    ends = np.cumsum([r + 1 for r, _ in plans])
    return -float(solution.fun), np.split(solution.x[:n], ends[:-1])


def main() -> None:
    print("| canaries | guesses | right | ε | δ | closed form | recursion | the most any has |")
    print("|---|---|---|---|---|---|---|---|")
    for m, r, v, epsilon, delta in CASES:
        guesses = Guesses(r, 0, v)
        bounds = (
            one_run_p(m, guesses, epsilon=epsilon, delta=delta),
            one_run_p_tradeoff(m, guesses, tradeoff_of_epsilon(epsilon, delta)),
            largest_tail(m, r, v, epsilon=epsilon, delta=delta)[0],
        )
        cells = " | ".join(f"{p:.3g}" for p in bounds)
        print(f"| {m:,} | {r} | {v} | {epsilon:g} | {delta:g} | {cells} |")


if __name__ == "__main__":
    main()
