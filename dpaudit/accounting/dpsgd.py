"""DP-SGD: the (ε, δ) curve over many steps, also for someone who knows part of the coins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, Self

import numpy as np

from dpaudit.accounting._checks import least_epsilon, pld_modules, positive, probability
from dpaudit.accounting.mechanisms import gaussian_delta, gaussian_epsilon
from dpaudit.errors import UsageError
from dpaudit.results.text import one_line
from dpaudit.types import Reference

__all__ = ["DpSgd", "known_batch_epsilon", "losses", "worst_known_batch_epsilon"]

_STEP = 2e-3

_LARGEST = 60.0

_POINTS = 240

_MOST_STEPS = 10_000_000


@dataclass(frozen=True)
class DpSgd:
    """``steps`` steps of noise multiplier ``sigma``, each record in a batch with chance ``rate``.

    Neighbours differ by one record that is there or not. Needs dp-accounting.

    Raises:
        UsageError: σ not above 0, a rate outside (0, 1], or not a whole number of steps ≥ 1.
    """

    EXAMPLE: ClassVar[str] = "sigma=1,rate=0.05,steps=80"

    sigma: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        positive(sigma=self.sigma)
        if not 0 < self.rate <= 1:
            raise UsageError(f"rate={self.rate}: must lie in (0, 1]; it is batch size / records")
        if self.steps != int(self.steps) or not 1 <= self.steps <= _MOST_STEPS:
            raise UsageError(f"steps={self.steps}: must be a whole number in 1…{_MOST_STEPS:,}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``sigma=1,rate=0.05,steps=80``.

        >>> DpSgd.parse("sigma=1,rate=0.05,steps=80")
        DpSgd(sigma=1.0, rate=0.05, steps=80)

        Raises:
            UsageError: a part is missing, unknown or no number, or out of range.
        """
        rule = f"claim-dpsgd={one_line(text)}: write e.g. {cls.EXAMPLE}"
        try:
            options = Reference.parse(f"dpsgd:{text}").options
        except UsageError as error:
            raise UsageError(rule) from error
        values = {name: options.get(name) for name in ("sigma", "rate", "steps")}
        wrong = [
            name
            for name, value in values.items()
            if isinstance(value, bool) or not isinstance(value, (int, float))
        ]
        if wrong or set(options) != set(values):
            raise UsageError(rule)
        numbers: dict[str, Any] = values
        if not math.isfinite(numbers["steps"]) or numbers["steps"] != int(numbers["steps"]):
            raise UsageError(f"steps={numbers['steps']}: must be a whole number")
        return cls(float(numbers["sigma"]), float(numbers["rate"]), int(numbers["steps"]))

    def __str__(self) -> str:
        return f"sigma={self.sigma:.6g},rate={self.rate:.6g},steps={self.steps}"

    def with_sigma(self, sigma: float) -> Self:
        """The same training with another noise multiplier."""
        return type(self)(sigma, self.rate, self.steps)

    def epsilon(self, delta: float) -> float:
        """The least ε at ``delta``, from above.

        Raises:
            MissingExtraError: dp-accounting is not installed.
        """
        probability(delta)
        return float(losses(self.sigma, self.rate, self.steps).get_epsilon_for_delta(delta))

    @cached_property
    def profile(self) -> tuple[tuple[float, float], ...]:
        """Pairs (ε, δ) that the training keeps all at once: δ is an upper bound at each ε."""
        composed = losses(self.sigma, self.rate, self.steps)
        farthest = min(_LARGEST, max(1.0, 2 * float(composed.get_epsilon_for_delta(1e-7))))
        grid = np.linspace(0.0, farthest, _POINTS)
        deltas = np.minimum(1.0, np.asarray(composed.get_delta_for_epsilon(grid)))
        return tuple(zip(grid.tolist(), deltas.tolist(), strict=True))


@lru_cache(maxsize=64)
def losses(sigma: float, rate: float, steps: int) -> Any:
    """dp-accounting's distribution of the privacy loss of such a training, from above."""
    (distribution,) = pld_modules("claim-dpsgd", "privacy_loss_distribution")
    one = distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        value_discretization_interval=_STEP,
        pessimistic_estimate=True,
    )
    return one.self_compose(steps)


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
