"""How near the one-run bounds are to the best that can be shown from a number of right guesses.

``python -m dpaudit_studies.evidence.one_run_exact`` prints, for r guesses about m canaries of which
v are right, the bounds for P(V ≥ v) of Steinke, Nasr and Jagielski's theorem and of the recursion
for trade-off curves, and the largest P(V ≥ v) that any (ε, δ)-DP mechanism has: a linear program
over the law of V. No valid bound is smaller than that.
"""

from __future__ import annotations

import math

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
)


def largest_tail(
    m: int, r: int, v: int, *, epsilon: float, delta: float
) -> tuple[float, np.ndarray]:
    """The largest P(V ≥ v) under (ε, δ)-DP, and the law (r + 1,) of V that has it.

    Turning a canary's coin turns "guessed right, t right in all" into "guessed wrong, t − 1 right",
    so the law p of V keeps Σ (t·p_t − e^ε·(r−t+1)·p_{t−1})₊ + Σ ((r−t)·p_t − e^ε·(t+1)·p_{t+1})₊ ≤
    m·δ. A mechanism that draws t by such a p and then the canaries to guess, and which of them are
    guessed right, uniformly, is (ε, δ)-DP: the sums are its hockey-stick divergence.
    """
    n = r + 1
    t, grow = np.arange(n), math.exp(epsilon)
    right = sparse.diags([t, -grow * (r - t[1:] + 1)], [0, -1])
    wrong = sparse.diags([r - t, -grow * (t[:-1] + 1)], [0, 1])
    zero, one = sparse.csr_matrix((n, n)), sparse.identity(n)
    total = sparse.csr_matrix(np.concatenate([np.zeros(n), np.ones(2 * n)])[None])
    solution = linprog(
        np.concatenate([-1.0 * (t >= v), np.zeros(2 * n)]),
        A_ub=sparse.vstack(
            [sparse.bmat([[right, -one, zero], [wrong, zero, -one]]), total], format="csr"
        ),
        b_ub=np.concatenate([np.zeros(2 * n), [m * delta]]),
        A_eq=sparse.csr_matrix(np.concatenate([np.ones(n), np.zeros(2 * n)])[None]),
        b_eq=[1.0],
        method="highs-ds",
    )
    return -float(solution.fun), solution.x[:n]


def main() -> None:
    print("| canaries | guesses | right | ε | δ | theorem | recursion | the most any has |")
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
