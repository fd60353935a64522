"""Claims other than (ε, δ) and μ: ρ-zCDP, Rényi, a δ(ε) curve, f as a table, and DP-SGD.

Each says what it implies as (ε, δ), at one δ and at many ε at once, and whether a simultaneous band
of event probabilities contradicts it directly, which is the sharper test.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpaudit.accounting import Loss, gaussian_delta, gaussian_epsilon, optimal_delta
from dpaudit.accounting.dpsgd import DpSgd
from dpaudit.audit.implied_pairs import Profile, of_renyi, of_tests
from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line
from dpaudit.samplers.endpoints.recordings import lines_of, open_text
from dpaudit.stats import rounded_down

if TYPE_CHECKING:
    from dpaudit.audit.epsilon.bounds import Band

__all__ = [
    "DeltaCurve",
    "Gaussian",
    "Renyi",
    "StatedClaim",
    "Steps",
    "Table",
    "TradeOff",
    "ZeroConcentrated",
    "composed",
    "delta_of_renyi",
    "epsilon_of_renyi",
]

_MOST_ROWS = 100_000
_LARGEST_ORDER = 1e6
_LARGEST_EPSILON = 500.0
_REACH = 8.0
_NEAR = 1.02

Array = npt.NDArray[np.float64]
Table = str | Path | Sequence[tuple[float, float]]
"""A file of two columns, ``'A,B;A,B'``, or pairs."""


class StatedClaim(Protocol):
    """A claim in its own terms."""

    @property
    def text(self) -> str:
        """The claim as a reader writes it, e.g. ``0.5-zCDP``."""

    @property
    def words(self) -> dict[str, float | str]:
        """The claim as options of the command line, name and value."""

    @property
    def unit(self) -> str:
        """The letter of the claimed parameter; empty if the claim is a table."""

    @property
    def value(self) -> float | None:
        """The claimed parameter; None if the claim is a table."""

    @property
    def profile(self) -> Profile:
        """Pairs (ε, δ) that the claim implies all at once (:mod:`dpaudit.audit.implied_pairs`)."""

    def with_value(self, value: float) -> StatedClaim | None:
        """The claim with another parameter, weaker if larger; None if there is none such."""

    def implied(self, delta: float) -> tuple[float, float]:
        """A pair (ε, δ) that the claim implies, at ``delta`` or the nearest δ it speaks of."""

    def contradicted(self, band: Band) -> bool:
        """Whether no mechanism that keeps the claim has probabilities within the band."""

    def shown(self, bands: Sequence[Band]) -> tuple[float | None, str]:
        """A lower bound in the claim's unit, if it has one, and the same in words.

        Of one band at least; it holds if all of them do.
        """


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
    def words(self) -> dict[str, float | str]:
        """``--claim-rho``."""
        return {"claim_rho": self.rho}

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


_ORDERS = 1 + np.geomspace(1e-3, 1e4, 71)
_FEW_ORDERS = 1 + np.geomspace(1e-2, 1e3, 26)


def _rho(band: Band) -> float:
    return max(0.0, float((band.renyi(_ORDERS) / _ORDERS).max()))


@dataclass(frozen=True, slots=True)
class Renyi:
    """(α, ε)-Rényi DP: D_α(P‖Q) ≤ ε at one order α > 1 (Mironov 2017, Definition 4).

    Raises:
        UsageError: an order of 1 or less or above 1e6, or ε negative or infinite.
    """

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
                f"most {_LARGEST_ORDER:g}; write ORDER,EPSILON, e.g. 8,0.5"
            )
        if not (self.divergence >= 0 and math.isfinite(self.divergence)):
            raise UsageError(
                f"claim-renyi={self.order},{self.divergence}: ε must be a finite number ≥ 0; "
                "write ORDER,EPSILON, e.g. 8,0.5"
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
                f"claim-renyi={shown}: write ORDER,EPSILON, two numbers, e.g. 8,0.5"
            ) from None
        return cls(order, divergence)

    @property
    def text(self) -> str:
        """``(8, 0.5)-Rényi DP``."""
        return f"({self.order:.6g}, {self.divergence:.6g})-Rényi DP"

    @property
    def words(self) -> dict[str, float | str]:
        """``--claim-renyi``."""
        return {"claim_renyi": f"{_number(self.order)},{_number(self.divergence)}"}

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
    def words(self) -> dict[str, float | str]:
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


@dataclass(frozen=True, slots=True)
class DeltaCurve:
    """δ(ε) at several ε: (ε, δ)-DP for every row, by increasing ε.

    Raises:
        UsageError: no rows, ε outside 0…500, δ outside [0, 1), or a δ that grows with ε.
    """

    pairs: tuple[tuple[float, float], ...]
    source: str = ""
    """The file that it was read from."""

    @classmethod
    def of(cls, table: Table) -> Self:
        """The claim from a file with columns ε and δ, ``'E,D;E,D'``, or pairs.

        Raises:
            UsageError: it cannot be read; otherwise as for the class.
        """
        return cls(*_table(table, "claim-curve", "epsilon,delta"))

    def __post_init__(self) -> None:
        _increasing(self.pairs, "claim-curve", "δ", lambda e, d: 0 <= e <= 500 and 0 <= d < 1)

    @property
    def text(self) -> str:
        """``(ε, δ)-DP for all of (0, 0.3), (1, 0.1)``."""
        return f"(ε, δ)-DP for all of {_counted(self.pairs)}"

    @property
    def words(self) -> dict[str, float | str]:
        """``--claim-curve``."""
        return {"claim_curve": self.source or _inline(self.pairs)}

    @property
    def unit(self) -> str:
        """Empty: a curve has no single parameter."""
        return ""

    @property
    def value(self) -> None:
        """None."""

    @property
    def profile(self) -> Profile:
        """The rows."""
        return self.pairs

    def with_value(self, value: float) -> None:
        """None."""

    def implied(self, delta: float) -> tuple[float, float]:
        """The row of the least ε whose δ is at most ``delta``, else that of the least δ."""
        return next((row for row in self.pairs if row[1] <= delta), self.pairs[-1])

    def contradicted(self, band: Band) -> bool:
        """Whether the band shows more ε at a row's δ than the row claims."""
        return self._excess(band)[0] > 0

    def shown(self, bands: Sequence[Band]) -> tuple[None, str]:
        """``ε ≥ … at δ = …``, at the row where most more than the claim is shown."""
        excess, row = max(map(self._excess, bands))
        epsilon, delta = self.pairs[row]
        bound = max(0.0, epsilon + excess)
        return None, f"ε ≥ {rounded_down(bound)} at δ = {delta:.6g} (claimed: {epsilon:.6g})"

    def _excess(self, band: Band) -> tuple[float, int]:
        rows = np.array(self.pairs)
        bounds = band.epsilons(rows[:, 1])
        excess = bounds - rows[:, 0]
        row = int(np.argmax(np.where(bounds > 0, excess, -np.inf)))
        return float(excess[row]), row


@dataclass(frozen=True, slots=True)
class TradeOff:
    """f-DP with f as a table: a test with type-I error at most a has type-II error at least b.

    Of f between two rows only this is claimed: f does not increase (Dong, Roth and Su 2022,
    Definition 2.1), so it is at least b of the next row. That holds whether the table is a sample
    of a smooth f or all corners of a broken line; more rows are a stronger claim.

    Raises:
        UsageError: no rows, an error outside [0, 1], b above 1 − a, which no mechanism keeps, or a
            type-II error that grows.
    """

    pairs: tuple[tuple[float, float], ...]
    source: str = ""
    """The file that it was read from."""

    @classmethod
    def of(cls, table: Table) -> Self:
        """The claim from a file with columns type-I and type-II error, ``'A,B;A,B'``, or pairs.

        Raises:
            UsageError: it cannot be read; otherwise as for the class.
        """
        return cls(*_table(table, "claim-f", "type1,type2"))

    def __post_init__(self) -> None:
        _increasing(self.pairs, "claim-f", "type II", lambda a, b: 0 <= a <= 1 and 0 <= b <= 1)
        for a, b in self.pairs:
            if b > 1 - a + 1e-9:
                raise UsageError(
                    f"claim-f={a:.6g},{b:.6g}: the errors add up to more than 1, which guessing "
                    "without looking beats; give columns type-I error and least type-II error"
                )

    @property
    def text(self) -> str:
        """``f-DP with f through (0, 1), (0.5, 0.1)``."""
        return f"f-DP with f through {_counted(self.pairs)}"

    @property
    def words(self) -> dict[str, float | str]:
        """``--claim-f``."""
        return {"claim_f": self.source or _inline(self.pairs)}

    @property
    def unit(self) -> str:
        """Empty: a table has no single parameter."""
        return ""

    @property
    def value(self) -> None:
        """None."""

    @property
    def profile(self) -> Profile:
        """The edges of the least concave curve above the largest P₁(E) at each P₀(E).

        A test of P₀(E) above a row's a, up to the next one's, has P₁(E) of at most 1 − b of the
        next.
        """
        a, b = np.array(self.pairs).T
        corners = zip(np.append(0.0, a).tolist(), np.append(1 - b, 1.0).tolist(), strict=True)
        return of_tests([*corners, (1.0, 1.0)])

    def with_value(self, value: float) -> None:
        """None."""

    def implied(self, delta: float) -> tuple[float, float]:
        """At ``delta``, or at the least δ that the table speaks of.

        P₁(E) ≤ 1 − f(P₀(E)), which is at most e^ε·P₀(E) + δ everywhere if it is at the left end
        of each step of f: ε = max ln((1 − b_i − δ)/a_{i−1}), and δ ≥ 1 − b_i where a_{i−1} = 0.
        """
        a, b = np.array(self.pairs).T
        left, up = np.append(0.0, a), np.append(1 - b, 1.0)
        at = max(delta, float(up[left == 0].max()))
        inside = (left > 0) & (up > at)
        epsilon = np.log(up[inside] - at) - np.log(left[inside])
        return max(0.0, float(epsilon.max(initial=0.0))) * (1 + 1e-9), at

    def contradicted(self, band: Band) -> bool:
        """Whether a certified test has a smaller type-II error than a row allows."""
        return self._below(band)[0] > 0

    def shown(self, bands: Sequence[Band]) -> tuple[None, str]:
        """The two errors of a test, at the row where the second is furthest below the claim."""
        below, row = max(map(self._below, bands))
        a, b = self.pairs[row]
        return None, (
            f"type-II error ≤ {_up(b - below)} at type-I error {a:.6g} (claimed: at least {b:.6g})"
        )

    def _below(self, band: Band) -> tuple[float, int]:
        a, b = np.array(self.pairs).T
        below = b - (1 - band.power(a)) - 1e-12
        row = int(np.argmax(np.where((a > 0) & (b > 0), below, -np.inf)))  # no test beats others
        return float(below[row]), row


@dataclass(frozen=True, slots=True)
class Steps:
    """What the accountant of DP-SGD counts on: noise multiplier, sampling rate, steps.

    What is shown is a noise multiplier: with rate and steps as claimed, all from the least refuted
    one on are refuted at once, as a larger one keeps a tighter curve.
    """

    dpsgd: DpSgd
    delta: float
    """Where ε is given."""

    @property
    def text(self) -> str:
        """``DP-SGD with sigma=1,rate=0.05,steps=80``."""
        return f"DP-SGD with {self.dpsgd}"

    @property
    def words(self) -> dict[str, float | str]:
        """``--claim-dpsgd``."""
        return {"claim_dpsgd": str(self.dpsgd)}

    @property
    def unit(self) -> str:
        """ε."""
        return "ε"

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

    def implied(self, delta: float) -> tuple[float, float]:
        """The accountant's ε."""
        return self.dpsgd.epsilon(delta), delta

    def contradicted(self, band: Band) -> bool:
        """Whether the band shows more ε than the accountant's at some δ."""
        return _exceeded(self.profile, band)

    def shown(self, bands: Sequence[Band]) -> tuple[float, str]:
        """The ε of the noise multiplier that the bands leave, and the multiplier in words."""
        return self.with_noise(
            self.noise_left(lambda profile: any(_exceeded(profile, band) for band in bands))
        )

    def with_noise(self, sigma: float | None) -> tuple[float, str]:
        """ε and words for a noise multiplier that is refuted; 0 and nothing for None."""
        if sigma is None:
            return 0.0, ""
        says = f"a noise multiplier below {sigma:.3g} (claimed: {self.dpsgd.sigma:.4g})"
        return self.dpsgd.with_sigma(sigma).epsilon(self.delta), says

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


def composed(
    stated: StatedClaim | None, epsilon: float, delta: float, mu: float | None, *, calls: int
) -> StatedClaim:
    """What ``calls`` calls keep together: of ``stated``, or else of ``mu``, or else of (ε, δ).

    Raises:
        UsageError: ``stated`` is a table.
    """
    if isinstance(stated, ZeroConcentrated):
        return ZeroConcentrated(calls * stated.rho)
    if isinstance(stated, Renyi):
        return Renyi(stated.order, calls * stated.divergence)
    if isinstance(stated, Steps):
        together = replace(stated.dpsgd, steps=calls * stated.dpsgd.steps)
        return Steps(together, stated.delta)
    if stated is not None:
        raise UsageError(
            f"calls={calls}: a table is not composed; claim ε, μ, ρ or Rényi DP of one call"
        )
    if mu is not None:
        return Gaussian(math.sqrt(calls) * mu)
    if epsilon == 0:
        return DeltaCurve(((0.0, -math.expm1(calls * math.log1p(-delta))),))
    losses = [Loss(epsilon, delta)] * calls
    corners = [0.0, *(i * epsilon for i in range(2 - calls % 2, calls, 2)), calls * epsilon]
    pairs = [(at, optimal_delta(at, losses=losses) * (1 + 1e-9)) for at in corners]
    if delta == 0:
        pairs[-1] = (calls * epsilon, 0.0)  # but for rounding
    kept = tuple((at, least) for at, least in pairs if at <= _LARGEST_EPSILON and least < 1)
    return DeltaCurve(kept)


def _table(given: Table, option: str, header: str) -> tuple[tuple[tuple[float, float], ...], str]:
    """The rows, sorted, and the file's name if it was one."""
    how = f"write a .csv with the columns {header}, or 'A,B;A,B'"
    source = ""
    try:
        if isinstance(given, str | Path) and str(given).lower().endswith(".csv"):
            source = str(given)
            with open_text(Path(given), newline="") as file:
                lines = islice(csv.reader(lines_of(file)), _MOST_ROWS + 2)
                rows = [row for row in lines if row]
            if rows and not _is_number(rows[0][0]):
                rows = rows[1:]
        elif isinstance(given, str | Path):
            rows = [pair.split(",") for pair in str(given).split(";") if pair.strip()]
        else:
            rows = [list(map(str, pair)) for pair in given]
        if len(rows) > _MOST_ROWS:
            raise UsageError(f"{option}: more than {_MOST_ROWS:,} rows; leave some out")
        pairs = sorted((float(a), float(b)) for a, b in rows)
    except (RefusedError, OSError) as error:
        raise UsageError(f"{option}={source}: {one_line(error)}; check the path") from None
    except (TypeError, ValueError, csv.Error) as error:
        shown = one_line(str(given), limit=60)
        raise UsageError(
            f"{option}={shown}: not pairs of numbers ({one_line(error)}); {how}"
        ) from None
    return tuple(pairs), source


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _increasing(
    pairs: tuple[tuple[float, float], ...],
    option: str,
    second: str,
    allowed: Callable[[float, float], bool],
) -> None:
    if not pairs:
        raise UsageError(f"{option}: has no rows, so nothing is claimed; give at least one")
    for a, b in pairs:
        if not allowed(a, b):
            raise UsageError(f"{option}={a},{b}: out of range; see --help for the two columns")
    for (a, b), (c, d) in pairwise(pairs):
        if d > b:
            raise UsageError(
                f"{option}: {second} grows from {b:.6g} at {a:.6g} to {d:.6g} at {c:.6g}; "
                "it must not: check the order of the columns"
            )


def _counted(pairs: tuple[tuple[float, float], ...]) -> str:
    """Up to four pairs themselves, or the first and the last."""
    shown = [f"({a:.6g}, {b:.6g})" for a, b in pairs]
    if len(shown) <= 4:
        return ", ".join(shown)
    return f"{len(pairs):,} pairs from {shown[0]} to {shown[-1]}"


def _inline(pairs: tuple[tuple[float, float], ...]) -> str:
    return ";".join(f"{_number(a)},{_number(b)}" for a, b in pairs)


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _at_least(unit: str, bound: float) -> tuple[float, str]:
    return bound, f"{unit} ≥ {rounded_down(bound)}"


def _up(error: float) -> str:
    """An upper bound of a probability, rounded up."""
    return f"{min(1.0, math.ceil(error * 1e4) / 1e4):g}"
