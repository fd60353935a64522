"""DP-SGD towards someone who knows part of the batches' coins."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from dpaudit.accounting._checks import least_epsilon, probability
from dpaudit.accounting.dpsgd import DpSgd, losses
from dpaudit.accounting.mechanisms import gaussian_delta, gaussian_epsilon
from dpaudit.errors import UsageError

__all__ = ["known_batch_epsilon", "worst_known_batch_epsilon"]

_REST = 1e-3  # of δ: what the binomial's tails may weigh


def known_batch_epsilon(run: DpSgd, delta: float, *, known: float) -> float:
    """ε at ``delta`` towards someone who knows a coin of each record at each step.

    A record is in a batch with chance ``run.rate``: if its known coin (chance ``known``) and its
    hidden one (``run.rate/known``) both say so. ``known = run.rate`` is a batch that is known, and
    nothing is hidden; ``known = 1`` is a batch of which nothing is known, and ``run.epsilon``.

    *Why.* The known coins do not depend on data, so the attacker's view is (coins, noisy sums), and
    δ(ε) is the mean over coins of δ given the coins. Given k steps at which the record's known coin
    fell on yes, the others do not depend on the record, and these k are Poisson subsampling at the
    hidden rate, composed. So δ(ε) = Σ_k Binomial(k; steps, known)·δ_k(ε). With nothing hidden δ_k
    is that of a Gaussian of σ/√k, exactly (Dong, Roth and Su 2022, Corollary 3.3); otherwise
    dp-accounting bounds it from above. Neighbours differ by one record that is there or not.

    Raises:
        UsageError: ``known`` outside ``run.rate`` … 1, or δ outside (0, 1).
        MissingExtraError: dp-accounting is not installed, and is needed.
    """
    hidden = _hidden(run, known)
    probability(delta)
    if known == 1:
        return run.epsilon(delta)
    counts, weights, tails = _counts(run.steps, known, rest=_REST * delta)
    curves = [_curve(run.sigma, hidden, k) for k in counts]

    def profile(epsilon: float) -> float:
        return tails + math.fsum(
            w * curve(epsilon) for w, curve in zip(weights, curves, strict=True)
        )

    top = 1.0
    while profile(top) > delta:
        top *= 2
    return least_epsilon(profile, delta, top)


def worst_known_batch_epsilon(run: DpSgd, delta: float, *, known: float) -> float:
    """The same for the record whose known coin fell on yes at every step.

    Raises:
        UsageError: as for :func:`known_batch_epsilon`.
        MissingExtraError: dp-accounting is not installed, and is needed.
    """
    hidden = _hidden(run, known)
    if hidden == 1:
        return gaussian_epsilon(delta, sigma=run.sigma / math.sqrt(run.steps))
    return DpSgd(run.sigma, hidden, run.steps).epsilon(delta)


def _hidden(run: DpSgd, known: float) -> float:
    if isinstance(known, (bool, str)) or not run.rate <= known <= 1:
        raise UsageError(f"known={known}: must lie in {run.rate}…1, the rate and everything")
    return run.rate / known


def _counts(steps: int, chance: float, *, rest: float) -> tuple[list[int], list[float], float]:
    """Likely numbers of successes, their probabilities, and that of all others, below ``rest``."""
    from scipy.stats import binom  # takes a third of a second to import

    law = binom(steps, chance)
    low, high = int(law.ppf(rest / 4)), int(law.isf(rest / 4))
    some = np.arange(low, high + 1)
    tails = float(law.cdf(low - 1) + law.sf(high))
    return some.tolist(), law.pmf(some).tolist(), tails


def _curve(sigma: float, hidden: float, steps: int) -> Callable[[float], float]:
    if steps == 0:
        return lambda _: 0.0
    if hidden == 1:
        return partial(gaussian_delta, sigma=sigma / math.sqrt(steps))
    composed = losses(sigma, hidden, steps)
    return lambda epsilon: float(composed.get_delta_for_epsilon(epsilon))
