"""Claims that are tables: a δ(ε) curve, f as pairs of errors, and (ε, δ) of several calls."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpaudit.accounting import Loss, optimal_delta
from dpaudit.audit.claims.implied import Profile, of_tests
from dpaudit.errors import UsageError
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import one_line
from dpaudit.stats import rounded_down
from dpaudit.targets.endpoints.file import lines_of, open_text

if TYPE_CHECKING:
    from dpaudit.audit.mechanism.bounds import Band

__all__ = ["LARGEST_EPSILON", "DeltaCurve", "TradeOff", "composed_pair", "number_text"]

LARGEST_EPSILON = 500.0
"""A larger ε promises nothing."""
_MOST_ROWS = 100_000

Table = str | Path | Sequence[tuple[float, float]]
"""A file of two columns, ``'A,B;A,B'``, or pairs."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of numbers, each of which is claimed; a table has no single parameter."""

    OPTION: ClassVar[str]
    COLUMNS: ClassVar[str]
    EXAMPLE: ClassVar[str]
    unit: ClassVar[str] = ""
    value: ClassVar[None] = None

    pairs: tuple[tuple[float, float], ...]
    source: str = ""
    """The file that it was read from."""

    @classmethod
    def of(cls, table: Table) -> Self:
        """The claim from a .csv file of two columns, ``'A,B;A,B'``, or pairs.

        Raises:
            UsageError: it cannot be read; otherwise as for the class.
        """
        return cls(*_table(table, f"claim-{cls.OPTION}", cls.COLUMNS, cls.EXAMPLE))

    @property
    def options(self) -> dict[str, Any]:
        rows = ";".join(f"{number_text(a)},{number_text(b)}" for a, b in self.pairs)
        return {self.OPTION: self.source or rows}

    def with_value(self, value: float) -> None:
        """None: there is no parameter."""

    def composed(self, calls: int) -> Self:
        raise UsageError(
            f"calls={calls}: a table is not composed; claim ε, μ, ρ or Rényi DP of one call"
        )

    def _check(self, second: str, allowed: Callable[[float, float], bool]) -> None:
        """Refuse rows that are out of range, or of which the second number grows."""
        pairs, option, how = (
            self.pairs,
            f"claim-{self.OPTION}",
            f"write pairs, e.g. '{self.EXAMPLE}'",
        )
        if not pairs:
            raise UsageError(f"{option}: has no rows, so nothing is claimed; {how}")
        for a, b in pairs:
            if not allowed(a, b):
                raise UsageError(f"{option}={a},{b}: out of range; {how}")
        for (a, b), (c, d) in pairwise(pairs):
            if d > b:
                raise UsageError(
                    f"{option}: {second} grows from {b:.6g} at {a:.6g} to {d:.6g} at {c:.6g}; "
                    "it must not: check the order of the columns"
                )


@dataclass(frozen=True, slots=True)
class DeltaCurve(_Pairs):
    """δ(ε) at several ε: (ε, δ)-DP for every row, by increasing ε.

    Raises:
        UsageError: no rows, ε outside 0…500, δ outside [0, 1), or a δ that grows with ε.
    """

    OPTION, COLUMNS, EXAMPLE = "curve", "epsilon,delta", "0,0.3;1,0.1"

    def __post_init__(self) -> None:
        self._check("δ", lambda e, d: 0 <= e <= LARGEST_EPSILON and 0 <= d < 1)

    @property
    def text(self) -> str:
        return f"(ε, δ)-DP for all of {_points_text(self.pairs)}"

    @property
    def profile(self) -> Profile:
        """The rows."""
        return self.pairs

    def implied(self, delta: float) -> tuple[float, float]:
        """The row of the least ε whose δ is at most ``delta``, else that of the least δ."""
        return next((row for row in self.pairs if row[1] <= delta), self.pairs[-1])

    def contradicted(self, band: Band) -> bool:
        """Whether the band shows more ε at a row's δ than the row claims."""
        return self._excess(band)[0] > 0

    def bound(self, bands: Sequence[Band]) -> tuple[None, str]:
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
class TradeOff(_Pairs):
    """f-DP with f as a table: a test with type-I error at most a has type-II error at least b.

    Of f between two rows only this is claimed: f does not increase (Dong, Roth and Su 2022,
    Definition 2.1), so it is at least b of the next row. That holds whether the table is a sample
    of a smooth f or all corners of a broken line; more rows are a stronger claim.

    Raises:
        UsageError: no rows, an error outside [0, 1], b above 1 − a, which no mechanism keeps, or a
            type-II error that grows.
    """

    OPTION, COLUMNS, EXAMPLE = "f", "type1,type2", "0.1,0.8;0.5,0.3"

    def __post_init__(self) -> None:
        self._check("type II", lambda a, b: 0 <= a <= 1 and 0 <= b <= 1)
        for a, b in self.pairs:
            if b > 1 - a + 1e-9:
                raise UsageError(
                    f"claim-f={a:.6g},{b:.6g}: the errors add up to more than 1, which guessing "
                    "without looking beats; give columns type-I error and least type-II error"
                )

    @property
    def text(self) -> str:
        return f"f-DP with f through {_points_text(self.pairs)}"

    @property
    def profile(self) -> Profile:
        """The edges of the least concave curve above the largest P₁(E) at each P₀(E).

        A test of P₀(E) above a row's a, up to the next one's, has P₁(E) of at most 1 − b of the
        next.
        """
        a, b = np.array(self.pairs).T
        corners = zip(np.append(0.0, a).tolist(), np.append(1 - b, 1.0).tolist(), strict=True)
        return of_tests([*corners, (1.0, 1.0)])

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

    def bound(self, bands: Sequence[Band]) -> tuple[None, str]:
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


def _table(
    table: Table, option: str, header: str, example: str
) -> tuple[tuple[tuple[float, float], ...], str]:
    """The rows, sorted, and the file's name if it was one."""
    how = f"write a .csv with the columns {header}, or pairs, e.g. '{example}'"
    source = ""
    try:
        if isinstance(table, str | Path) and str(table).lower().endswith(".csv"):
            source = str(table)
            with open_text(Path(table), newline="") as file:
                lines = islice(csv.reader(lines_of(file)), _MOST_ROWS + 2)
                rows = [row for row in lines if row]
            if rows and not _is_number(rows[0][0]):
                rows = rows[1:]
        elif isinstance(table, str | Path):
            rows = [pair.split(",") for pair in str(table).split(";") if pair.strip()]
        else:
            rows = [list(map(str, pair)) for pair in table]
        if len(rows) > _MOST_ROWS:
            raise UsageError(f"{option}: more than {_MOST_ROWS:,} rows; leave some out")
        pairs = sorted((float(a), float(b)) for a, b in rows)
    except (RefusedError, OSError) as error:
        raise UsageError(f"{option}={source}: {one_line(error)}; check the path") from None
    except (TypeError, ValueError, csv.Error) as error:
        excerpt = one_line(str(table), limit=60)
        raise UsageError(
            f"{option}={excerpt}: not pairs of numbers ({one_line(error)}); {how}"
        ) from None
    return tuple(pairs), source


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _points_text(pairs: tuple[tuple[float, float], ...]) -> str:
    """Up to four pairs themselves, or the first and the last."""
    points = [f"({a:.6g}, {b:.6g})" for a, b in pairs]
    if len(points) <= 4:
        return ", ".join(points)
    return f"{len(pairs):,} pairs from {points[0]} to {points[-1]}"


def _up(error: float) -> str:
    """An upper bound of a probability, rounded up."""
    return f"{min(1.0, math.ceil(error * 1e4) / 1e4):g}"


def number_text(value: float) -> str:
    """A number as an option of the command line."""
    return repr(float(value)).removesuffix(".0")


def composed_pair(epsilon: float, delta: float, *, calls: int) -> DeltaCurve:
    """What ``calls`` (ε, δ)-DP calls keep together: the curve of the optimal composition."""
    if epsilon == 0:
        return DeltaCurve(((0.0, -math.expm1(calls * math.log1p(-delta))),))
    losses = [Loss(epsilon, delta)] * calls
    corners = [0.0, *(i * epsilon for i in range(2 - calls % 2, calls, 2)), calls * epsilon]
    pairs = [(at, optimal_delta(at, losses=losses) * (1 + 1e-9)) for at in corners]
    if delta == 0:
        pairs[-1] = (calls * epsilon, 0.0)  # but for rounding
    defined = tuple((at, least) for at, least in pairs if at <= LARGEST_EPSILON and least < 1)
    return DeltaCurve(defined)
