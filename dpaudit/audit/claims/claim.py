"""What a mechanism claims, as an audit judges it, and what every claim of its own terms answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from dpaudit.accounting import gaussian_epsilon
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.claims.implied import Profile, of_gaussian
from dpaudit.audit.claims.parameters import Gaussian, Renyi, Steps, ZeroConcentrated
from dpaudit.audit.claims.tables import LARGEST_EPSILON, DeltaCurve, TradeOff, composed_pair
from dpaudit.audit.options import ClaimOptions
from dpaudit.audit.result import StatedClaim as Shown
from dpaudit.audit.result import at_least
from dpaudit.errors import UsageError

if TYPE_CHECKING:
    from dpaudit.audit.mechanism.bounds import Band

__all__ = ["PrivacyClaim", "StatedClaim"]

_DELTA = 1e-5
"""Where ε is given of a claim that has no δ."""


class StatedClaim(Protocol):
    """A claim in its own terms."""

    @property
    def text(self) -> str:
        """The claim as a reader writes it, e.g. ``0.5-zCDP``."""

    @property
    def options(self) -> dict[str, Any]:
        """The claim as options, name and value (:class:`~dpaudit.audit.options.ClaimOptions`)."""

    @property
    def unit(self) -> str:
        """The letter of the claimed parameter; empty if the claim is a table."""

    @property
    def value(self) -> float | None:
        """The claimed parameter; None if the claim is a table."""

    @property
    def profile(self) -> Profile:
        """Pairs (ε, δ) that the claim implies all at once (:mod:`dpaudit.audit.claims.implied`)."""

    def with_value(self, value: float) -> StatedClaim | None:
        """The claim with another parameter, weaker if larger; None if there is none such."""

    def composed(self, calls: int) -> StatedClaim:
        """What ``calls`` calls keep together.

        Raises:
            UsageError: it is a table.
        """

    def implied(self, delta: float) -> tuple[float, float]:
        """A pair (ε, δ) that the claim implies, at ``delta`` or the nearest δ it speaks of."""

    def contradicted(self, band: Band) -> bool:
        """Whether no mechanism that keeps the claim has probabilities within the band."""

    def bound(self, bands: Sequence[Band]) -> tuple[float | None, str]:
        """A lower bound in the claim's unit, if it has one, and the same in words.

        Of one band at least; it holds if all of them do.
        """


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """What a mechanism claims: (ε, δ)-DP, and μ-Gaussian DP if ``mu`` is given.

    ``only_mu``: μ-GDP alone was claimed; (ε, δ) is what it implies (see :meth:`of`). ``stated``:
    another claim was made, which implies (ε, δ). ``of_each``: it was made of each of ``calls``
    calls, and this is the claim of all together.

    Raises:
        UsageError: ε outside 0…500, δ outside [0, 1), or μ negative or infinite.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    only_mu: bool = False
    stated: StatedClaim | None = None
    calls: int = 1
    of_each: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= LARGEST_EPSILON:
            raise UsageError(
                f"claim-epsilon={self.epsilon}: must lie in 0…{LARGEST_EPSILON:g}; "
                "a larger one promises nothing"
            )
        if not 0 <= self.delta < 1:
            raise UsageError(f"claim-delta={self.delta}: must lie in [0, 1), e.g. 1e-5")
        if self.mu is not None and not (self.mu >= 0 and math.isfinite(self.mu)):
            raise UsageError(f"claim-mu={self.mu}: must be a finite number ≥ 0")

    @classmethod
    def of(cls, *values: Any, **keywords: Any) -> PrivacyClaim:
        """The claim that options state; see :meth:`dpaudit.audit.options.ClaimOptions.claim`."""
        return cls.from_options(ClaimOptions(*values, **keywords))

    @classmethod
    def from_options(cls, options: ClaimOptions) -> PrivacyClaim:
        """As :meth:`dpaudit.audit.options.ClaimOptions.claim`."""
        epsilon, delta, mu = options.epsilon, options.delta, options.mu
        names = [name for name in _STATED if getattr(options, name) is not None]
        if names:
            _alone(names, epsilon=epsilon, delta=delta, mu=mu)
            cls(0.0, delta)  # checks it
            stated = _STATED[names[0]](getattr(options, names[0]), delta or _DELTA)
            implied, at = stated.implied(delta or _DELTA)
            _refuse_nothing(f"claim-{names[0]}={stated.text}", implied, at)
            return cls(implied, at, stated=stated)
        if epsilon is not None:
            return cls(epsilon, delta, mu)
        if mu is None:
            raise UsageError(
                "claim-epsilon: there is no claim; give --claim-epsilon 1 (and --claim-delta), "
                "or --claim-mu 1 for Gaussian DP, or another --claim-… of --help"
            )
        cls(0.0, delta, mu)  # checks both
        at = delta or _DELTA
        implied = gaussian_epsilon(at, sigma=1 / mu) * (1 + 1e-9) if mu > 0 else 0.0
        _refuse_nothing(f"claim-mu={mu}", implied, at)
        return cls(implied, at, mu, only_mu=True)

    def repeated(self, calls: int) -> Self:
        """The claim of ``calls`` calls together, each of which keeps this one.

        The calls may depend on what was released before (adaptive composition): ρ, a Rényi ε and μ²
        add up (Bun and Steinke 2016, Lemma 2.3; Mironov 2017, Proposition 1; Dong, Roth and Su
        2022, Corollary 3.3), and (ε, δ) becomes the curve of the optimal composition
        (:func:`dpaudit.accounting.optimal_delta`).

        Raises:
            UsageError: a table, or ε and μ together.
        """
        if calls == 1:
            return self
        if self.mu is not None and not self.only_mu:
            raise UsageError(
                f"claim-mu={self.mu}: with calls={calls}, ε and μ are composed apart; give one"
            )
        one = self.stated if self.mu is None else Gaussian(self.mu)
        stated: StatedClaim
        if one is None:
            stated = composed_pair(self.epsilon, self.delta, calls=calls)
        else:
            stated = one.composed(calls)
        epsilon, delta = stated.implied(_DELTA if self.stated is None else self.delta)
        _refuse_nothing(f"calls={calls}: {self.text} composed", epsilon, delta)
        return type(self)(epsilon, delta, stated=stated, calls=calls, of_each=self.text)

    def refuse_pure_gaussian(self, law: str | None, *, name: str) -> None:
        """Refuse this claim at δ = 0 of noise whose ``law`` is Gaussian, before anything is drawn.

        The likelihood ratio of neighbours grows without limit in the tails of Gaussian noise,
        discrete or not, so no ε holds at δ = 0 (Dwork and Roth 2014, Appendix A).

        Raises:
            UsageError: it is such a claim.
        """
        family = (law or "").partition(":")[0]
        if self.delta == 0 and family in ("gaussian", "discrete-gaussian"):
            raise UsageError(
                f"claim-delta=0: {name} adds Gaussian noise, which is not (ε, 0)-DP for any ε; "
                "give --claim-delta, e.g. 1e-5, or --claim-mu alone"
            )

    @property
    def text(self) -> str:
        """The claim as a reader writes it, e.g. ``(1, 1e-05)-DP`` or ``0.5-zCDP``."""
        if self.stated is not None:
            return self.stated.text
        pair = f"({self.epsilon:.6g}, {self.delta:.6g})-DP"
        if self.mu is None:
            return pair
        return f"{self.mu:.6g}-GDP" if self.only_mu else f"both {pair} and {self.mu:.6g}-GDP"

    @property
    def profile(self) -> Profile:
        """Pairs (ε, δ) that the claim says hold at once."""
        if self.stated is not None:
            return self.stated.profile
        gaussian = () if self.mu is None else of_gaussian(self.mu)
        return gaussian if self.only_mu else (*gaussian, (self.epsilon, self.delta))

    @property
    def options(self) -> ClaimOptions:
        """The options that state the claim."""
        if self.stated is None:
            return ClaimOptions(None if self.only_mu else self.epsilon, self.delta, self.mu)
        delta = 0.0 if self.stated.value is None else self.delta
        return ClaimOptions(delta=delta, **self.stated.options)

    @property
    def details(self) -> dict[str, str]:
        """What a result's ``details`` say of the claim."""
        if (dpsgd := self.options.dpsgd) is not None:
            return {"claimed": "dpsgd", "dpsgd": dpsgd}
        return {"claimed": "mu"} if self.only_mu else {}

    def contradicted(self, band: Band) -> bool:
        """Whether no mechanism that keeps the claim has probabilities within the band."""
        if self.stated is not None:
            return self.stated.contradicted(band)
        mu = self.mu is not None and band.mu() > self.mu
        return mu or band.epsilon(self.delta) > self.epsilon

    def statement(self, bands: Sequence[Band], alpha: float) -> Shown | None:
        """What ``bands``, which all hold with confidence 1 − ``alpha``, show of a stated claim.

        None if the claim is of ε or μ.
        """
        stated = self.stated
        if stated is None:
            return None
        low, statement = stated.bound(bands) if bands else (None, "")
        claim = stated.text
        if self.of_each:
            claim = f"{self.of_each} in each of {self.calls} calls"
            if low is not None:
                statement += f" (claimed of all together: {stated.value:.6g})"
        method = "events and trade-off curve, Clopper-Pearson"
        bound = None if low is None else at_least(low, alpha, method)
        return Shown(claim=claim, unit=stated.unit, value=stated.value, shown=bound, says=statement)


_STATED: dict[str, Callable[[Any, float], StatedClaim]] = {
    "rho": lambda given, _: ZeroConcentrated(given),
    "renyi": lambda given, _: Renyi.of(given),
    "curve": lambda given, _: DeltaCurve.of(given),
    "f": lambda given, _: TradeOff.of(given),
    "dpsgd": lambda given, delta: Steps(
        DpSgd.parse(given) if isinstance(given, str) else given, delta
    ),
}
"""Claims that stand alone, by the option that states them; each also gets δ for its ε."""


def _alone(names: list[str], *, epsilon: float | None, delta: float, mu: float | None) -> None:
    """Refuse a second claim beside one that stands alone, or a δ that it has no use for."""
    more = names[1:] + [n for n, v in (("epsilon", epsilon), ("mu", mu)) if v is not None]
    if more:
        raise UsageError(
            f"claim-{more[0]}: cannot be given with claim-{names[0]}, as one audit judges one "
            "claim (only ε and μ go together); leave one out, or audit twice"
        )
    if delta and names[0] in ("curve", "f"):
        raise UsageError(
            f"claim-delta={delta}: claim-{names[0]} has its own δ at every row; "
            "leave --claim-delta out"
        )


def _refuse_nothing(claim: str, epsilon: float, delta: float) -> None:
    if epsilon > LARGEST_EPSILON or delta >= 1:
        raise UsageError(
            f"{claim}: implies ε = {epsilon:.4g} at δ = {delta:g}, which promises nothing; "
            "give a smaller one"
        )
