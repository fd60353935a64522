"""What one release costs, as the composition takes it: (ε, δ), or the noise itself where its exact profile is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpaudit.accounting._checks import below_one, positive
from dpaudit.errors import UsageError

__all__ = ["GaussianLoss", "LaplaceLoss", "Loss", "PrivacyLoss"]


@dataclass(frozen=True, slots=True)
class Loss:
    """An (ε, δ)-DP release of which nothing else is known; δ = 0: a local report, randomised response.

    Raises:
        UsageError: ε not a finite number above 0, or δ outside [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        below_one(self.delta)


@dataclass(frozen=True, slots=True)
class LaplaceLoss:
    """One number of sensitivity Δ plus Laplace noise of this scale.

    Raises:
        UsageError: a value that is not a finite number above 0.
    """

    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        positive(scale=self.scale, sensitivity=self.sensitivity)


@dataclass(frozen=True, slots=True)
class GaussianLoss:
    """A query of L2 sensitivity Δ plus N(0, σ²I).

    Raises:
        UsageError: a value that is not a finite number above 0, or a Δ/σ that is not.
    """

    sigma: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        positive(sigma=self.sigma, sensitivity=self.sensitivity)
        if not 0 < self.sensitivity / self.sigma < math.inf:
            raise UsageError(f"sigma={self.sigma}: Δ/σ is not a finite number above 0; take the two in other units")


PrivacyLoss = Loss | LaplaceLoss | GaussianLoss
