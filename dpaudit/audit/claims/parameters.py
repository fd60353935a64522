"""Claims of one parameter: ρ-zCDP, Rényi DP at one order, μ-GDP, and the steps of DP-SGD."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from dpaudit.accounting import gaussian_delta, gaussian_epsilon
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.claims.implied import Profile, of_renyi
from dpaudit.audit.claims.tables import number_text
from dpaudit.errors import UsageError
from dpaudit.results.text import one_line
from dpaudit.stats import rounded_down

if TYPE_CHECKING:
    from dpaudit.audit.mechanism.bounds import Band

__all__ = [
    "Gaussian",
    "Renyi",
    "Steps",
    "ZeroConcentrated",
    "epsilon_of_renyi",
]

_LARGEST_ORDER = 1e6
_ORDERS = 1 + np.geomspace(1e-3, 1e4, 71)
_FEW_ORDERS = 1 + np.geomspace(1e-2, 1e3, 26)
_REACH = 8.0
_NEAR = 1.02


def epsilon_of_renyi(delta: float, *, order: float, divergence: float) -> float:
    """The least ε ≥ 0 at ``delta`` > 0 that a divergence of at most D at order α implies here.

    δ = e^{(α−1)(D−ε)}·(1 − 1/α)^{α−1}/α (Canonne, Kamath and Steinke 2020, Proposition 12). Proof:
    for L = ln P/Q, δ = E_P[(1 − e^{ε−L})₊] ≤ E_P[c·e^{(α−1)L}] = c·e^{(α−1)D}, where c is the
    largest (1 − e^{ε−x})₊·e^{−(α−1)x}, which is at e^{ε−x} = 1 − 1/α.

    >>> f"{epsilon_of_renyi(2.614e-4, order=4.0, divergence=1.0):.3f}"
    '3.000'
    """
    spent = math.log(1 / delta) - math.log(order)
    return max(0.0, divergence + math.log1p(-1 / order) + spent / (order - 1))


class _Parameter(Protocol):
    """A claim that is refuted where a band shows more of its parameter, the field ``PARAMETER``."""

    __slots__ = ()

    PARAMETER: ClassVar[str]

    @property
    def unit(self) -> str: ...

    def least(self, band: Band) -> float:
        """The lower bound for the parameter that a band shows."""

    @property
    def value(self) -> float:
        claimed: float = getattr(self, self.PARAMETER)
        return claimed

    @property
    def options(self) -> dict[str, Any]:
        return {self.PARAMETER: self.value}

    def with_value(self, value: float) -> Self:
        return replace(self, **{self.PARAMETER: value})  # type: ignore[type-var]

    def composed(self, calls: int) -> Self:
        """ρ and a Rényi ε add up: Bun and Steinke 2016, Lemma 2.3; Mironov 2017, Proposition 1."""
        return self.with_value(calls * self.value)

    def contradicted(self, band: Band) -> bool:
        return self.least(band) > self.value

    def bound(self, bands: Sequence[Band]) -> tuple[float, str]:
        low = max(map(self.least, bands))
        return low, f"{self.unit} ≥ {rounded_down(low)}"


@dataclass(frozen=True, slots=True)
class ZeroConcentrated(_Parameter):
    """ρ-zCDP: D_α(P‖Q) ≤ ρ·α for every order α > 1 (Bun and Steinke 2016, Definition 1.1).

    Raises:
        UsageError: ρ is negative or infinite.
    """

    PARAMETER: ClassVar[str] = "rho"
    unit: ClassVar[str] = "ρ"

    rho: float

    def __post_init__(self) -> None:
        if not (self.rho >= 0 and math.isfinite(self.rho)):
            raise UsageError(f"claim-rho={self.rho}: must be a finite number ≥ 0")

    @property
    def text(self) -> str:
        return f"{self.rho:.6g}-zCDP"

    @property
    def profile(self) -> Profile:
        """What the divergences at some orders imply."""
        return of_renyi(_FEW_ORDERS, self.rho * _FEW_ORDERS)

    def implied(self, delta: float) -> tuple[float, float]:
        """The least ε over the orders, each of which is valid."""
        orders = 1 + np.geomspace(1e-3, 1e5, 4001)
        spent = np.log(1 / delta) - np.log(orders)
        epsilon = self.rho * orders + np.log1p(-1 / orders) + spent / (orders - 1)
        return max(0.0, float(epsilon.min())) * (1 + 1e-9), delta

    def least(self, band: Band) -> float:
        """The largest of certified divergence/order."""
        return max(0.0, float((band.renyi(_ORDERS) / _ORDERS).max()))


@dataclass(frozen=True, slots=True)
class Renyi(_Parameter):
    """(α, ε)-Rényi DP: D_α(P‖Q) ≤ ε at one order α > 1 (Mironov 2017, Definition 4).

    Raises:
        UsageError: an order of 1 or less or above 1e6, or ε negative or infinite.
    """

    PARAMETER: ClassVar[str] = "divergence"
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
    def of(cls, text: str | tuple[float, float]) -> Self:
        """The claim from ``'ORDER,EPSILON'`` or a pair.

        Raises:
            UsageError: it is neither; otherwise as for the class.
        """
        parts = text.split(",") if isinstance(text, str) else tuple(text)
        try:
            order, divergence = map(float, parts)
        except (TypeError, ValueError):
            excerpt = one_line(str(text), limit=60)
            raise UsageError(
                f"claim-renyi={excerpt}: write ORDER,EPSILON, two numbers, e.g. {cls.EXAMPLE}"
            ) from None
        return cls(order, divergence)

    @property
    def text(self) -> str:
        return f"({self.order:.6g}, {self.divergence:.6g})-Rényi DP"

    @property
    def options(self) -> dict[str, Any]:
        return {"renyi": f"{number_text(self.order)},{number_text(self.divergence)}"}

    @property
    def unit(self) -> str:
        """Rényi's ε, with its order."""
        return f"D_{self.order:.6g}"

    @property
    def profile(self) -> Profile:
        """What the divergence at this order implies."""
        return of_renyi(np.array([self.order]), np.array([self.divergence]))

    def implied(self, delta: float) -> tuple[float, float]:
        """By :func:`epsilon_of_renyi`."""
        epsilon = epsilon_of_renyi(delta, order=self.order, divergence=self.divergence)
        return epsilon * (1 + 1e-9), delta

    def least(self, band: Band) -> float:
        """The certified divergence at this order."""
        return float(band.renyi(np.array([self.order]))[0])


@dataclass(frozen=True, slots=True)
class Gaussian(_Parameter):
    """μ-GDP, of several calls together."""

    PARAMETER: ClassVar[str] = "mu"
    unit: ClassVar[str] = "μ"

    mu: float

    @property
    def text(self) -> str:
        return f"{self.mu:.6g}-GDP"

    @property
    def profile(self) -> Profile:
        """By Dong, Roth and Su 2022, Corollary 2.13."""
        if self.mu == 0:
            return ((0.0, 0.0),)
        grid = np.linspace(0.0, self.implied(1e-12)[0], 240).tolist()
        return tuple((e, gaussian_delta(e, sigma=1 / self.mu) * (1 + 1e-9)) for e in grid)

    def composed(self, calls: int) -> Self:
        """By Dong, Roth and Su 2022, Corollary 3.3."""
        return self.with_value(math.sqrt(calls) * self.mu)

    def implied(self, delta: float) -> tuple[float, float]:
        """By Dong, Roth and Su 2022, Corollary 2.13."""
        if self.mu == 0:
            return 0.0, delta
        return gaussian_epsilon(delta, sigma=1 / self.mu) * (1 + 1e-9), delta

    def least(self, band: Band) -> float:
        return band.mu()


@dataclass(frozen=True, slots=True)
class Steps:
    """What the accountant of DP-SGD counts on: noise multiplier, sampling rate, steps.

    It is compared as the whole curve that the accountant gives. What is shown is a noise
    multiplier: with rate and steps as claimed, all from the least refuted one on are refuted at
    once, as a larger one keeps a tighter curve.
    """

    unit: ClassVar[str] = "ε"

    dpsgd: DpSgd
    delta: float
    """Where ε is given."""

    @property
    def text(self) -> str:
        return f"DP-SGD with {self.dpsgd}"

    @property
    def options(self) -> dict[str, Any]:
        return {"dpsgd": str(self.dpsgd)}

    @property
    def value(self) -> float:
        """The accountant's ε."""
        return self.dpsgd.epsilon(self.delta)

    @property
    def profile(self) -> Profile:
        """The privacy loss of the composed steps, rounded up."""
        return self.dpsgd.profile

    def with_value(self, value: float) -> None:
        """None: there is a parameter for each of three."""

    def composed(self, calls: int) -> Self:
        return type(self)(replace(self.dpsgd, steps=calls * self.dpsgd.steps), self.delta)

    def implied(self, delta: float) -> tuple[float, float]:
        """The accountant's ε."""
        return self.dpsgd.epsilon(delta), delta

    def contradicted(self, band: Band) -> bool:
        """Whether the band shows more ε than the accountant's at some δ."""
        return _exceeded(self.profile, band)

    def bound(self, bands: Sequence[Band]) -> tuple[float, str]:
        """The ε of the noise multiplier that the bands leave, and the multiplier in words."""
        return self.with_noise(
            self.noise_left(lambda profile: any(_exceeded(profile, band) for band in bands))
        )

    def with_noise(self, sigma: float | None) -> tuple[float, str]:
        """ε and words for a noise multiplier that is refuted; 0 and nothing for None."""
        if sigma is None:
            return 0.0, ""
        text = f"a noise multiplier below {sigma:.3g} (claimed: {self.dpsgd.sigma:.4g})"
        return self.dpsgd.with_sigma(sigma).epsilon(self.delta), text

    def noise_left(self, refuted: Callable[[Profile], bool]) -> float | None:
        """The least noise multiplier whose curve is ``refuted``, within 2 % from above.

        Searched up to eight times the claimed one, and down to an eighth of it; None if not even
        the largest is refuted.
        """

        def at(sigma: float) -> bool:
            return refuted(self.dpsgd.with_sigma(sigma).profile)

        claimed = low = high = self.dpsgd.sigma
        if at(high):
            while low > claimed / _REACH and at(low / 2**0.5):
                low /= 2**0.5
            low, high = low / 2**0.5, low
            if high <= claimed / _REACH:
                return high
        else:
            while not at(high):
                low, high = high, high * 2
                if high > claimed * _REACH:
                    return None
        while high / low > _NEAR:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if at(middle) else (middle, high)
        return high


def _exceeded(profile: Profile, band: Band) -> bool:
    rows = np.array(profile)
    return bool((band.epsilons(rows[:, 1]) > rows[:, 0]).any())
