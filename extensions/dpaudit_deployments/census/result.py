"""The result of an audit of noisy measurement files, by ``dpaudit deployment census``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dpaudit.report import Described
from dpaudit.types import Amount, Count, Interval, Level, Number, Provenance, TestResult, Verdict

__all__ = ["Bin", "CensusLevel", "CensusResult", "Kind", "NoiseGroup"]

Kind = Literal["zeros", "totals", "sums"]
"""Cells that are zero; a query's sum minus the exact total; a parent minus its children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """How many values lie in [low, high), in units of the stated σ, and how many are expected."""

    low: Number
    high: Number
    observed: Count
    expected: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseGroup:
    """The noise seen of one query at one level.

    ``sigma`` is the parameter of the stated law, None where each value has a law of its own.
    ``ratio`` is the observed standard deviation over the stated one. A group that is not ``tested``
    has fewer than 100 values.
    """

    product: str
    level: str
    query: str
    kind: Kind
    geographies: Count
    values: Count
    sigma: Amount | None
    ratio: Amount
    interval: Interval
    farthest: Amount
    tested: bool
    bins: tuple[Bin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusLevel:
    """A level of a product: its size, and Σ 1/σ² of its queries.

    That is the ρ of zero-concentrated DP for bounded neighbours, if each record is in one cell of
    each query, and the files hold all queries.
    """

    product: str
    level: str
    files: Count
    geographies: Count
    queries: Count
    measurements: Count
    rho: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusResult(Described):
    """What the noise in cells of known count shows about the law that the files state.

    Guarantee: if all noise is independent and discrete Gaussian with the stated variances, and the
    structural zeros are zeros, the verdict is ``finding`` with probability at most ``alpha``.
    Not claimed: anything about cells whose count is not known; that ``no-finding`` means honest.
    """

    kind: ClassVar[str] = "census"

    verdict: Verdict
    reason: str
    alpha: Level
    files: tuple[str, ...]
    levels: tuple[CensusLevel, ...]
    groups: tuple[NoiseGroup, ...]
    tests: tuple[TestResult, ...]
    notes: tuple[str, ...]
    seconds: Amount
    provenance: Provenance
