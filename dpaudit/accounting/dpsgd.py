"""DP-SGD: the (ε, δ) curve of Gaussian noise on Poisson-sampled batches over many steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from dpaudit.accounting._checks import pld_modules, positive, probability
from dpaudit.errors import UsageError
from dpaudit.results.text import one_line
from dpaudit.types import Reference

__all__ = ["DpSgd", "losses"]

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
        wanted = f"claim-dpsgd={one_line(text)}: write e.g. {cls.EXAMPLE}"
        try:
            options = Reference.parse(f"dpsgd:{text}").options
        except UsageError as error:
            raise UsageError(wanted) from error
        given = {name: options.get(name) for name in ("sigma", "rate", "steps")}
        wrong = [
            name
            for name, value in given.items()
            if isinstance(value, bool) or not isinstance(value, (int, float))
        ]
        if wrong or set(options) != set(given):
            raise UsageError(wanted)
        numbers: dict[str, Any] = given
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
