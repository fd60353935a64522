"""A zCDP budget by level and query, and the scales of the discrete Gaussian that it pays for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from scipy.optimize import brentq

from dpaudit.accounting.discrete import zcdp_epsilon
from dpaudit.errors import UsageError

__all__ = ["PUBLISHED_DELTA", "PUBLISHED_RHO", "SENSITIVITY", "Budget"]

PUBLISHED_RHO = (542 / 339) ** 2
"""Persons, redistricting data of 2020: a global scale of 339/542 in the Bureau's code, ρ = 2.56."""
PUBLISHED_DELTA = 1e-10
SENSITIVITY = math.sqrt(2)
"""L2 sensitivity of every query at every level, for bounded neighbours.

A query counts each record in exactly one cell of one geography of a level. Replacing a record takes
1 from at most one cell and adds 1 to at most one other: √(1² + 1²).
"""
_LEVELS = {"nation": 104 / 4099, "state": 1440 / 4099, "county": 2555 / 4099}
_QUERIES = {
    "nation": ("detailed", "age-group", "voting-age"),
    "state": ("detailed", "age-group", "voting-age"),
    "county": ("detailed", "age-group", "voting-age", "total"),
}


def _equal() -> dict[str, dict[str, float]]:
    return {level: dict.fromkeys(names, 1 / len(names)) for level, names in _QUERIES.items()}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ρ of the whole run, its shares by level, and each level's shares by query.

    The levels' shares are those of the 2020 redistricting data for persons (Abowd et al. 2022, the
    Bureau's published configuration): nation 104/4099, state 1440/4099; the county, our lowest
    level, has its own 447/4099 and all that the levels below have there. Queries share a level
    equally: theirs are not ours. The totals of nation and states are invariants, and not measured.

    Formal guarantee: measurements with exact discrete Gaussian noise of these scales are ρ-zCDP for
    bounded neighbours (one record replaced) that agree in the invariants. With Δ = √2 a scale σ
    costs Δ²/2σ² = 1/σ² (Canonne, Kamath and Steinke 2020, Theorem 4), and costs add up. All that
    follows is post-processing. Not claimed: anything about neighbours in different states, whose
    totals differ; anything with another noise source.
    """

    rho: float = PUBLISHED_RHO
    levels: Mapping[str, float] = field(default_factory=lambda: dict(_LEVELS))
    queries: Mapping[str, Mapping[str, float]] = field(default_factory=_equal)

    def __post_init__(self) -> None:
        """Check that shares are positive and add up to 1.

        Raises:
            UsageError: they do not, or ρ is not a finite number > 0.
        """
        if not 0 < self.rho < math.inf:
            raise UsageError(f"rho={self.rho}: must be a finite number > 0")
        for name, shares in (("levels", self.levels), *self.queries.items()):
            if min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-9:
                raise UsageError(f"shares of {name}: must be > 0 and add up to 1")
        if set(self.levels) != set(self.queries):
            raise UsageError(f"levels={', '.join(self.levels)}: each needs shares of queries")

    @classmethod
    def of_epsilon(cls, epsilon: float, *, delta: float = PUBLISHED_DELTA) -> Budget:
        """The published shares of the largest ρ that is converted to at most ``epsilon``.

        Raises:
            UsageError: ε not a number above 0 and at most 1000, or below what the conversion gives.
        """
        if not 1e-3 <= epsilon <= 1000:
            raise UsageError(f"epsilon={epsilon}: must be between 0.001 and 1000")
        rho = brentq(lambda at: zcdp_epsilon(delta, rho=at) - epsilon, 1e-12, 1e4, xtol=1e-15)
        return cls(rho=float(rho))

    def epsilon(self, delta: float = PUBLISHED_DELTA) -> float:
        """ε at ``delta`` of the whole run, by the published conversion of zCDP.

        >>> round(Budget().epsilon(), 2)
        17.14
        """
        return zcdp_epsilon(delta, rho=self.rho)

    def scale(self, level: str, query: str) -> float:
        """The discrete Gaussian's σ for ``query`` at ``level``: 1/√(its share of ρ)."""
        return 1 / math.sqrt(self.rho * self.levels[level] * self.queries[level][query])
