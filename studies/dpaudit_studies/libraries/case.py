"""A case: a mechanism, the law it is used for, two values it should hide, and an attack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpaudit.accounting import gaussian_epsilon

__all__ = ["DELTA", "Case", "gaussian", "laplace"]

DELTA = 1e-5
"""At which a Gaussian's ε is claimed."""

Promise = Literal["DP", "none", "specimen"]


@dataclass(frozen=True, slots=True)
class Case:
    """``mechanism``, ``attack`` and ``neighbours`` as on the command line, and a ``claim`` (ε, δ).

    ``promise`` is "DP" where the library itself promises differential privacy of this mechanism;
    "none" where it is a generator of random numbers to which people add the value themselves (then
    the claim is that of the law in real arithmetic); "specimen" for dpaudit's own. ``samples``
    releases are made at each neighbour.
    """

    library: str
    mechanism: str
    attack: str
    neighbours: str | None
    claim: tuple[float, float]
    promise: Promise
    samples: int = 20_000
    draft: str = ""

    @property
    def epsilon(self) -> float:
        """The ε that is claimed, at :attr:`delta`."""
        return self.claim[0]

    @property
    def delta(self) -> float:
        return self.claim[1]

    @property
    def name(self) -> str:
        """Its name in a spec."""
        plain = self.neighbours in ("0,1", None) or len(str(self.neighbours)) >= 12
        return f"{self.mechanism} {self.attack}" + ("" if plain else f" {self.neighbours}")

    @property
    def command(self) -> str:
        """The command that repeats it."""
        where = f" --neighbours '{self.neighbours}'" if self.neighbours is not None else ""
        claim = f"--claim-epsilon {self.epsilon:.6g}" + (
            f" --claim-delta {self.delta:g}" if self.delta else ""
        )
        return (
            f"dpaudit mechanism {self.mechanism}{where} {claim} "
            f"--attack {self.attack} --samples {self.samples}"
        )


def laplace(scale: float, *, distance: float = 1.0) -> tuple[float, float]:
    """(ε, δ) of Laplace noise for values ``distance`` apart in L1."""
    return distance / scale, 0.0


def gaussian(sigma: float, *, distance: float = 1.0) -> tuple[float, float]:
    """(ε, δ) of Gaussian noise for values ``distance`` apart in L2, δ = 1e-5 (Balle, Wang 2018)."""
    epsilon = gaussian_epsilon(DELTA, sigma=sigma, sensitivity=distance)
    return math.ceil(epsilon * 1e6) / 1e6, DELTA
