"""Claims of one parameter: ρ-zCDP, Rényi DP at one order, and μ-GDP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpaudit.accounting import gaussian_delta, gaussian_epsilon
from dpaudit.audit.implied_pairs import Profile, of_renyi
from dpaudit.audit.stated_claims.claim import number_text
from dpaudit.errors import UsageError
from dpaudit.results.text import one_line
from dpaudit.stats import rounded_down

if TYPE_CHECKING:
    from dpaudit.audit.epsilon.bounds import Band

__all__ = ["Gaussian", "Renyi", "ZeroConcentrated", "delta_of_renyi", "epsilon_of_renyi"]

_LARGEST_ORDER = 1e6
_ORDERS = 1 + np.geomspace(1e-3, 1e4, 71)
_FEW_ORDERS = 1 + np.geomspace(1e-2, 1e3, 26)


def delta_of_renyi(epsilon: float, *, order: float, divergence: float) -> float:
    """The least δ at ε that a Rényi divergence of at most ``divergence`` at ``order`` implies here.

    δ = e^{(α−1)(D−ε)}·(1 − 1/α)^{α−1}/α (Canonne, Kamath and Steinke 2020, Proposition 12). Proof:
    for L = ln P/Q, δ = E_P[(1 − e^{ε−L})₊] ≤ E_P[c·e^{(α−1)L}] = c·e^{(α−1)D}, where c is the
    largest (1 − e^{ε−x})₊·e^{−(α−1)x}, which is at e^{ε−x} = 1 − 1/α.

    >>> f"{delta_of_renyi(3.0, order=4.0, divergence=1.0):.3e}"
    '2.614e-04'
    """
    log = (order - 1) * (divergence - epsilon + math.log1p(-1 / order)) - math.log(order)
    return math.exp(min(0.0, log))


def epsilon_of_renyi(delta: float, *, order: float, divergence: float) -> float:
    """The least ε ≥ 0 at ``delta`` > 0 by :func:`delta_of_renyi`."""
    spent = math.log(1 / delta) - math.log(order)
    return max(0.0, divergence + math.log1p(-1 / order) + spent / (order - 1))


@dataclass(frozen=True, slots=True)
class ZeroConcentrated:
    """ρ-zCDP: D_α(P‖Q) ≤ ρ·α for every order α > 1 (Bun and Steinke 2016, Definition 1.1).

    Raises:
        UsageError: ρ is negative or infinite.
    """

    rho: float

    def __post_init__(self) -> None:
        if not (self.rho >= 0 and math.isfinite(self.rho)):
            raise UsageError(f"claim-rho={self.rho}: must be a finite number ≥ 0")

    @property
    def text(self) -> str:
        """``0.5-zCDP``."""
        return f"{self.rho:.6g}-zCDP"

    @property
    def options(self) -> dict[str, Any]:
        """``--claim-rho``."""
        return {"rho": self.rho}

    @property
    def unit(self) -> str:
        """ρ."""
        return "ρ"

    @property
    def value(self) -> float:
        """ρ."""
        return self.rho

    @property
    def profile(self) -> Profile:
        """What the divergences at some orders imply."""
        return of_renyi(_FEW_ORDERS, self.rho * _FEW_ORDERS)

    def with_value(self, value: float) -> Self:
        """Another ρ."""
        return type(self)(value)

    def implied(self, delta: float) -> tuple[float, float]:
        """The least ε over the orders, each of which is valid."""
        orders = 1 + np.geomspace(1e-3, 1e5, 4001)
        spent = np.log(1 / delta) - np.log(orders)
        epsilon = self.rho * orders + np.log1p(-1 / orders) + spent / (orders - 1)
        return max(0.0, float(epsilon.min())) * (1 + 1e-9), delta

    def contradicted(self, band: Band) -> bool:
        """Whether the certified divergence exceeds ρ·α at an order."""
        return _rho(band) > self.rho

    def shown(self, bands: Sequence[Band]) -> tuple[float, str]:
        """``ρ ≥ …``: the largest of divergence/order."""
        return _at_least("ρ", max(map(_rho, bands)))


def _rho(band: Band) -> float:
    return max(0.0, float((band.renyi(_ORDERS) / _ORDERS).max()))


@dataclass(frozen=True, slots=True)
class Renyi:
    """(α, ε)-Rényi DP: D_α(P‖Q) ≤ ε at one order α > 1 (Mironov 2017, Definition 4).

    Raises:
        UsageError: an order of 1 or less or above 1e6, or ε negative or infinite.
    """

    EXAMPLE: ClassVar[str] = "8,0.5"

    order: float
    divergence: float

    def __post_init__(self) -> None:
        if self.order == math.inf:
            raise UsageError(
                "claim-renyi=inf: Rényi DP of infinite order is pure ε-DP; write --claim-epsilon"
            )
        if not 1 < self.order <= _LARGEST_ORDER:
            raise UsageError(
                f"claim-renyi={self.order},{self.divergence}: the order must lie above 1 and at "
                f"most {_LARGEST_ORDER:g}; write ORDER,EPSILON, e.g. {self.EXAMPLE}"
            )
        if not (self.divergence >= 0 and math.isfinite(self.divergence)):
            raise UsageError(
                f"claim-renyi={self.order},{self.divergence}: ε must be a finite number ≥ 0; "
                f"write ORDER,EPSILON, e.g. {self.EXAMPLE}"
            )

    @classmethod
    def of(cls, given: str | tuple[float, float]) -> Self:
        """The claim from ``'ORDER,EPSILON'`` or a pair.

        Raises:
            UsageError: it is neither; otherwise as for the class.
        """
        parts = given.split(",") if isinstance(given, str) else tuple(given)
        try:
            order, divergence = map(float, parts)
        except (TypeError, ValueError):
            shown = one_line(str(given), limit=60)
            raise UsageError(
                f"claim-renyi={shown}: write ORDER,EPSILON, two numbers, e.g. {cls.EXAMPLE}"
            ) from None
        return cls(order, divergence)

    @property
    def text(self) -> str:
        """``(8, 0.5)-Rényi DP``."""
        return f"({self.order:.6g}, {self.divergence:.6g})-Rényi DP"

    @property
    def options(self) -> dict[str, Any]:
        """``--claim-renyi``."""
        return {"renyi": f"{number_text(self.order)},{number_text(self.divergence)}"}

    @property
    def unit(self) -> str:
        """Rényi's ε, with its order."""
        return f"D_{self.order:.6g}"

    @property
    def value(self) -> float:
        """ε."""
        return self.divergence

    @property
    def profile(self) -> Profile:
        """What the divergence at this order implies."""
        return of_renyi(np.array([self.order]), np.array([self.divergence]))

    def with_value(self, value: float) -> Self:
        """Another ε at this order."""
        return type(self)(self.order, value)

    def implied(self, delta: float) -> tuple[float, float]:
        """By :func:`epsilon_of_renyi`."""
        epsilon = epsilon_of_renyi(delta, order=self.order, divergence=self.divergence)
        return epsilon * (1 + 1e-9), delta

    def contradicted(self, band: Band) -> bool:
        """Whether the certified divergence exceeds ε."""
        return self._least(band) > self.divergence

    def shown(self, bands: Sequence[Band]) -> tuple[float, str]:
        """``D_α ≥ …``."""
        return _at_least(self.unit, max(map(self._least, bands)))

    def _least(self, band: Band) -> float:
        return float(band.renyi(np.array([self.order]))[0])


@dataclass(frozen=True, slots=True)
class Gaussian:
    """μ-GDP, of several calls together."""

    mu: float

    @property
    def text(self) -> str:
        """``1-GDP``."""
        return f"{self.mu:.6g}-GDP"

    @property
    def options(self) -> dict[str, Any]:
        """``--claim-mu``."""
        return {"claim_mu": self.mu}

    @property
    def unit(self) -> str:
        """μ."""
        return "μ"

    @property
    def value(self) -> float:
        """μ."""
        return self.mu

    @property
    def profile(self) -> Profile:
        """By Dong, Roth and Su 2022, Corollary 2.13."""
        if self.mu == 0:
            return ((0.0, 0.0),)
        grid = np.linspace(0.0, self.implied(1e-12)[0], 240).tolist()
        return tuple((e, gaussian_delta(e, sigma=1 / self.mu) * (1 + 1e-9)) for e in grid)

    def with_value(self, value: float) -> Self:
        """Another μ."""
        return type(self)(value)

    def implied(self, delta: float) -> tuple[float, float]:
        """By Dong, Roth and Su 2022, Corollary 2.13."""
        if self.mu == 0:
            return 0.0, delta
        return gaussian_epsilon(delta, sigma=1 / self.mu) * (1 + 1e-9), delta

    def contradicted(self, band: Band) -> bool:
        """Whether the band shows a larger μ."""
        return band.mu() > self.mu

    def shown(self, bands: Sequence[Band]) -> tuple[float, str]:
        """``μ ≥ …``."""
        return _at_least("μ", max(band.mu() for band in bands))


def _at_least(unit: str, bound: float) -> tuple[float, str]:
    return bound, f"{unit} ≥ {rounded_down(bound)}"
