"""How much of ε one run's audit shows, beside the best that a count of right guesses can show.

``python -m dpaudit_studies.evidence.one_run_bounds`` writes docs/studies/results/one-run/: normal
scores, half of them moved by μ, and the same streams for all methods. "Best" is
:func:`~dpaudit.audit.mechanism.one_run.one_run_p`, which is the optimum of the linear program in
:mod:`~dpaudit_studies.evidence.one_run_exact`, at all of α, with the number of guesses whose mean
over these streams is largest. Methods of arXiv 2509.08704 were implemented from its authors'
description (docs/IMPLEMENTATION.md of zihangxiang/tight-privacy-audit-in-one-run, commit 6359b19),
and a normal fit in the spirit of arXiv 2606.12733, of which only the beginning could be read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.accounting import gaussian_epsilon
from dpaudit.audit.claims import PrivacyClaim
from dpaudit.audit.mechanism.one_run import Guesses, Ranked, one_run, one_run_p
from dpaudit_studies.evidence import MACHINE, RESULTS, options, write

WRITTEN = RESULTS / "one-run" / "results.json"
ALPHA, DELTA, SEED = 0.05, 1e-5, 20261130
SHARE = 0.9
"""Of the α of ε, of the guesses whose number is chosen."""
CELLS = tuple((mu, m) for mu in (1.0, 2.0, 4.0) for m in (1_000, 10_000))

Array = npt.NDArray[np.float64]
Stream = tuple[Array, npt.NDArray[np.bool_], np.random.Generator]


def normal_scores(mu: float, m: int, stream: int) -> Stream:
    """Scores (m,) and members (m,): a Gaussian mechanism of its own for each canary."""
    rng = np.random.default_rng([SEED, round(10 * mu), m, stream])
    member = rng.random(m) < 0.5
    return rng.standard_normal(m) + mu * member, member, rng


def responses(epsilon: float, delta: float, m: int, stream: int) -> Stream:
    """Coins by randomized response, or bare with probability δ: exactly (ε, δ)-DP per canary."""
    rng = np.random.default_rng([SEED, 0, m, stream])
    member = rng.random(m) < 0.5
    told = member ^ (rng.random(m) >= scipy.special.expit(epsilon))
    bare = rng.random(m) < delta
    return np.where(bare, 3.0, 1.0) * (2.0 * np.where(bare, member, told) - 1), member, rng


def largest(refuted: Callable[[float], bool], high: float = 32.0) -> float:
    """The largest refuted parameter, to 1e-4."""
    low = 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def best_epsilon(m: int, guesses: Guesses, level: float = ALPHA) -> float:
    return largest(lambda e: one_run_p(m, guesses, epsilon=e, delta=DELTA) <= level)


def independent_tail(m: int, guesses: Guesses, mean_error: Callable[[Array], Array]) -> float:
    """P(so few wrong), if each canary leaks independently: arXiv 2509.08704, Theorem 2.

    E[P(Bin(r, γ(W)) ≤ u)] with W ~ Beta(m − r, r + 1) the quantile of the best score that is not
    guessed, and ``mean_error`` γ(w) the share of errors above the quantile w.
    """
    r, wrong = guesses.count, guesses.count - guesses.right
    middles = (np.arange(1000) + 0.5) / 1000
    cut = scipy.special.betaincinv(m - r, r + 1, middles) if r < m else np.zeros(1)
    return float(scipy.stats.binom.cdf(wrong, r, mean_error(cut)).mean())


def gaussian_errors(mu: float) -> Callable[[Array], Array]:
    """Of the null "each canary has a Gaussian mechanism of its own"."""
    c = np.linspace(0.0, 12.0 + mu, 20_001)
    wrong, right = scipy.special.ndtr(-c - mu / 2), scipy.special.ndtr(mu / 2 - c)
    below = 1 - wrong - right

    def mean_error(w: Array) -> Array:
        at = np.interp(w, below, c)
        high, low = scipy.special.ndtr(-at - mu / 2), scipy.special.ndtr(mu / 2 - at)
        return np.asarray(high / (high + low))

    return mean_error


def response_errors(epsilon: float) -> Callable[[Array], Array]:
    """Of the null "randomized response for each canary, and its coin bare with probability δ"."""
    q = scipy.special.expit(-epsilon)
    return lambda w: np.asarray(q * np.maximum(0.0, 1 - DELTA / (1 - w)))


def as_gaussian(m: int, guesses: Guesses) -> float:
    """The ε of 2509.08704 where the mechanism is taken to be Gaussian."""
    mu = largest(lambda u: independent_tail(m, guesses, gaussian_errors(u)) <= ALPHA, 12.0)
    return float(gaussian_epsilon(DELTA, sigma=1 / mu)) if mu else 0.0


def as_response(m: int, guesses: Guesses) -> float:
    """The ε of 2509.08704 where it may be any (ε, δ)-DP mechanism with independent canaries."""
    return largest(lambda e: independent_tail(m, guesses, response_errors(e)) <= ALPHA)


def normal_fit(scores: Array, member: npt.NDArray[np.bool_]) -> float:
    """ε of two normal laws of equal width: a lower limit of their distance, by its large-m law."""
    inside, outside = scores[member], scores[~member]
    spread = math.sqrt((inside.var(ddof=1) + outside.var(ddof=1)) / 2)
    distance = (inside.mean() - outside.mean()) / spread
    error = math.sqrt(1 / len(inside) + 1 / len(outside) + distance**2 / (2 * len(scores)))
    low = distance - NormalDist().inv_cdf(1 - ALPHA) * error
    return float(gaussian_epsilon(DELTA, sigma=1 / low)) if low > 0 else 0.0


def cell(mu: float, m: int, streams: int) -> dict[str, Any]:
    """All methods on the same streams; ``ratio`` is of means, ± two standard errors, paired.

    ``of_alpha``: what the best number of guesses shows at the α that chosen guesses have.
    """
    truth = float(gaussian_epsilon(DELTA, sigma=1 / mu))
    counts = sorted({2 * round(r / 2) for r in np.geomspace(24, m, 20)})
    ours, same, gauss, fit, best = [], [], [], [], np.zeros((streams, len(counts)))
    for i in range(streams):
        scores, member, rng = normal_scores(mu, m, i)
        ranked = Ranked.of(scores, member, rng)
        found = one_run(scores, member, claim=PrivacyClaim(truth, DELTA), alpha=ALPHA, ties=rng)
        by = found.by_epsilon
        ours.append(found.epsilon)
        same.append(best_epsilon(m, by.guesses, 0.9 * ALPHA * by.share))
        best[i] = [best_epsilon(m, ranked.guess(r // 2, r // 2)) for r in counts]
        gauss.append(as_gaussian(m, ranked.guess(m // 4, m // 4)))
        fit.append(normal_fit(scores, member))
    at = int(best.mean(axis=0).argmax())
    r, top = counts[at], best[:, at]
    again = [
        Ranked.of(*normal_scores(mu, m, i)).guess(r // 2, r // 2)  # the same streams
        for i in range(streams)
    ]
    level = 0.9 * ALPHA * SHARE
    ratio = np.mean(ours) / top.mean()
    spread = np.std(np.array(ours) - ratio * top, ddof=1) / math.sqrt(streams) / top.mean()
    return {
        "mu": mu,
        "canaries": m,
        "true": truth,
        "best": float(top.mean()),
        "best_guesses": r,
        "ours": float(np.mean(ours)),
        "ratio": float(ratio),
        "ratio_error": float(2 * spread),
        "of_same_guesses": float(np.mean(ours) / np.mean(same)),
        "of_alpha": float(np.mean([best_epsilon(m, g, level) for g in again]) / top.mean()),
        "independent": float(np.mean([as_response(m, g) for g in again])),
        "gaussian": float(np.mean(gauss)),
        "normal_fit": float(np.mean(fit)),
        "above_truth": {
            name: int(np.sum(np.array(values) > truth))
            for name, values in (("ours", ours), ("gaussian", gauss), ("normal_fit", fit))
        },
    }


def errors(times: int) -> Iterator[dict[str, Any]]:
    """How often a bound exceeds ε where the mechanism keeps exactly its claim."""
    for epsilon, delta, m in ((1.0, 0.0, 1_000), (1.0, 1e-3, 1_000)):
        above = {"ours": 0, "gaussian": 0, "normal_fit": 0}
        for i in range(times):
            scores, member, rng = responses(epsilon, delta, m, i)
            claim = PrivacyClaim(epsilon, delta)
            found = one_run(scores, member, claim=claim, alpha=ALPHA, ties=rng)
            above["ours"] += found.epsilon > epsilon or found.p <= ALPHA
            if delta < DELTA and i < 100:  # these bounds are at 1e-5
                guesses = Ranked.of(scores, member, rng).guess(m // 4, m // 4)
                above["gaussian"] += as_gaussian(m, guesses) > epsilon
                above["normal_fit"] += normal_fit(scores, member) > epsilon
        yield {"epsilon": epsilon, "delta": delta, "canaries": m, "times": times, "above": above}


def main() -> None:
    chosen = options(__doc__, streams=100, times=2_000)
    began = time.process_time()
    cells = [cell(mu, m, chosen.streams) for mu, m in CELLS]
    done = {"alpha": ALPHA, "delta": DELTA, "seed": SEED, "streams": chosen.streams, "rows": cells}
    done |= {"errors": list(errors(chosen.times)), "machine": MACHINE}
    write(WRITTEN, done | {"cpu_seconds": round(time.process_time() - began)})


if __name__ == "__main__":
    main()
