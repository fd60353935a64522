"""Sums over a group's noise, and tests against the discrete Gaussian of its stated variance.

Every p-value is exact or bounds the exact one, except the χ² tests (at least 20 expected in each
bin), the normal ones of means and of products of pairs, and the saddlepoint of Σx²: their error is
small where they are used, and the honest files of ``dpaudit run census-files`` measure it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.stats import bonferroni, chi_square_two_sided, normal_two_sided
from dpaudit.types import Evidence, Interval
from dpaudit_deployments.census.files import Integers
from dpaudit_deployments.census.law import IntegerGaussian, law_of_variance
from dpaudit_deployments.family import Check

__all__ = ["LEAST", "Tally", "checks_of", "levels_check", "scale_interval"]

MODULUS = 840
"""Values are counted modulo this, and with it modulo 2 to 8."""
FIRST_ROWS = 64
"""Rows of each group that are kept, to be compared between levels."""
_FIRST_VALUES = 1 << 16
_BUFFER = 1 << 16
_WIDEST = 4096  # bins of the histogram
_REACH = 8.0
_SHARE = 0.005

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Pairs:
    """Σ xy over pairs of standardised values, and their number."""

    number: int = 0
    products: float = 0.0

    def add(self, products: Floats) -> None:
        """Add the products of pairs."""
        self.number += products.size
        self.products += float(products.sum())


@dataclass(slots=True)
class Tally:
    """The noise of one query at one level; ``variance`` is that of a value as stated, or its law's.

    Without ``variance`` each row has one of its own (sums over different numbers of geographies),
    and there is no histogram.
    """

    variance: float | None
    n: int = 0
    rows: int = 0
    total: float = 0.0
    """Σ x, standardised if there is no common variance."""
    squares: float = 0.0
    largest: float = 0.0
    """The largest |x|."""
    beyond: int = 0
    """How many |x| are at or above a value with probability ``expected_beyond``/n."""
    expected_beyond: float = 0.0
    largest_p: float = 1.0
    """The least P(|X| ≥ x) of a value."""
    along: Pairs = field(default_factory=Pairs)
    """The same cell in two geographies that follow each other."""
    within: Pairs = field(default_factory=Pairs)
    """Two neighbouring cells of a geography."""
    histogram: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    edges: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    residues: Integers = field(default_factory=lambda: np.zeros(MODULUS, dtype=np.int64))
    first: list[tuple[npt.NDArray[np.bool_], Integers]] = field(default_factory=list)
    _mask: npt.NDArray[np.bool_] | None = None
    _rows: list[Integers] = field(default_factory=list)
    _buffered: int = 0
    _first_values: int = 0
    _last: tuple[npt.NDArray[np.bool_], Floats] | None = None

    def __post_init__(self) -> None:
        """Choose the bins: at most 4096, of one width, up to eight σ."""
        if self.variance is not None:
            reach = max(4, math.ceil(_REACH * math.sqrt(self.variance)))
            step = -(-2 * reach // _WIDEST)
            self.edges = np.arange(-reach, reach + 1, step, dtype=np.int64)
            self.histogram = np.zeros(len(self.edges) + 1, dtype=np.int64)

    def add(self, mask: npt.NDArray[np.bool_], values: Integers) -> None:
        """Add a geography: ``values`` of the cells that ``mask`` selects, which is not changed."""
        if mask is not self._mask or self._buffered > _BUFFER:
            self.flush()
            self._mask = mask
        self._rows.append(values)
        self._buffered += values.size
        self.rows += 1
        if len(self.first) < FIRST_ROWS and self._first_values + values.size <= _FIRST_VALUES:
            self.first.append((mask, values))
            self._first_values += values.size

    def add_sum(self, residuals: Integers, variance: float) -> None:
        """Add the cells of one sum, whose law is a discrete Gaussian of this variance."""
        law, z = law_of_variance(variance), residuals / math.sqrt(variance)
        self.rows += 1
        self.n += z.size
        self.total += float(z.sum())
        self.squares += float((z * z).sum())
        self._tails(np.abs(residuals), law.threshold(_SHARE), variance)
        self.within.add(z[:-1] * z[1:])

    def _tails(self, sizes: Integers, threshold: int, variance: float) -> None:
        law, most = law_of_variance(variance), int(sizes.max())
        self.beyond += int((sizes >= threshold).sum())
        self.expected_beyond += sizes.size * law.beyond(threshold)
        self.largest = max(self.largest, most / math.sqrt(law.variance))
        self.largest_p = min(self.largest_p, law.beyond(most))

    def flush(self) -> None:
        """Count what is held back; call it before reading the sums."""
        if not self._rows or self._mask is None or self.variance is None:
            return
        x = np.stack(self._rows)
        self._rows, self._buffered = [], 0
        flat = x.reshape(-1)
        self.n += flat.size
        self.total += float(flat.sum(dtype=np.float64))
        self.squares += float((flat.astype(np.float64) ** 2).sum())
        self.histogram += np.bincount(
            np.searchsorted(self.edges, flat, side="right"), minlength=len(self.histogram)
        )
        self.residues += np.bincount(flat % MODULUS, minlength=MODULUS)
        law = law_of_variance(self.variance)
        self._tails(np.abs(flat), law.threshold(_SHARE), self.variance)
        z = x / math.sqrt(self.variance)
        self.within.add((z[:, :-1] * z[:, 1:]).reshape(-1))
        self.along.add((z[:-1] * z[1:]).reshape(-1))
        self._join(self._mask, z)

    def _join(self, mask: npt.NDArray[np.bool_], z: Floats) -> None:
        """Pairs of the last row before and the first row now, where both have a cell."""
        if self._last is not None and len(self._last[0]) == len(mask):
            before = np.zeros(len(mask))
            now = np.zeros(len(mask))
            before[self._last[0]], now[mask] = self._last[1], z[0]
            both = self._last[0] & mask
            self.along.add(before[both] * now[both])
        self._last = (mask, z[-1])


LEAST = 100
"""A group with fewer values is not tested."""
_PAIRS = 2000
_SPREAD = 50.0
_EXPECTED = 20.0
_MOST_BINS = 60
_MODULI = (2, 3, 4, 5, 7, 8)


def checks_of(name: str, tally: Tally) -> Iterator[Check]:
    """The tests of one group, which has this ``name``; none below 100 values."""
    tally.flush()
    if tally.n >= LEAST:
        for test, looks_at, evidence in _checks(tally):
            yield f"{name}: {test}", looks_at, evidence


def _checks(tally: Tally) -> Iterator[Check]:
    yield _scale(tally)
    if tally.n * _size(tally) >= _SPREAD:
        yield _mean(tally)
    yield _tails(tally)
    yield from _serial(tally)
    if tally.variance is not None:
        law = law_of_variance(tally.variance)
        yield from _fit(tally, law)
        yield from _residues(tally, law)


def _size(tally: Tally) -> float:
    """The variance, at most 1: sums of rarer values than one in some are far from normal."""
    return 1.0 if tally.variance is None else min(1.0, tally.variance)


def scale_interval(tally: Tally) -> Interval:
    """The observed standard deviation over the stated one, Σx² taken as χ² of equal variance."""
    variance, kurtosis = 1.0, 3.0
    if tally.variance is not None:
        variance, law = tally.variance, law_of_variance(tally.variance)
        kurtosis = law.moment(4) / law.variance**2
    ratio = math.sqrt(tally.squares / (tally.n * variance))
    freedom = 2 * tally.n / max(kurtosis - 1, 1e-3)
    low, high = (
        ratio * math.sqrt(freedom / scipy.special.chdtri(freedom, tail)) for tail in (0.025, 0.975)
    )
    return Interval(low=low, high=high, confidence=0.95, method="χ²")


def _scale(tally: Tally) -> Check:
    if tally.variance is None:
        p = chi_square_two_sided(tally.squares, tally.n)
        ratio = math.sqrt(tally.squares / tally.n)
    else:
        p = law_of_variance(tally.variance).squares_two_sided(tally.squares, tally.n)
        ratio = math.sqrt(tally.squares / (tally.n * tally.variance))
    effect, interval = f"{ratio:.4g} of what is stated", scale_interval(tally)
    evidence = Evidence(p=p, statistic=ratio, effect=effect, interval=interval)
    return "scale", "the standard deviation", evidence


def _mean(tally: Tally) -> Check:
    variance, step = (1.0, 0.0) if tally.variance is None else (tally.variance, 0.5)
    z = max(0.0, abs(tally.total) - step) / math.sqrt(tally.n * variance)
    mean, unit = tally.total / tally.n, " standard deviations" if tally.variance is None else ""
    effect = f"{mean:.4g}{unit} on average"
    return "mean", "the mean", Evidence(p=float(normal_two_sided(z)), statistic=mean, effect=effect)


def _tails(tally: Tally) -> Check:
    """Too many or too few far values, a value too far, or none as far as it should be.

    Values of several laws are beyond their thresholds as often as a binomial count of the mean
    probability, or less spread (Hoeffding 1956), so its tails are bounds.
    """
    share = tally.expected_beyond / tally.n
    counted = scipy.stats.binom(tally.n, share)
    few, many = counted.cdf(tally.beyond), counted.sf(tally.beyond - 1)
    farther = -math.expm1(tally.n * math.log1p(-min(tally.largest_p, 1 - 1e-16)))
    parts = [min(1.0, 2 * min(float(few), float(many))), float(farther)]
    if tally.variance is not None:
        law = law_of_variance(tally.variance)
        most = round(tally.largest * math.sqrt(law.variance))
        parts.append(math.exp(tally.n * math.log1p(-min(law.beyond(most + 1), 1 - 1e-16))))
    effect = (
        f"{tally.beyond:,} far values where {tally.expected_beyond:,.1f} are expected; "
        f"the farthest at {tally.largest:.3g} σ"
    )
    evidence = Evidence(p=bonferroni(parts), statistic=tally.largest, effect=effect)
    return "tails", "far values", evidence


def _serial(tally: Tally) -> Iterator[Check]:
    for name, pairs, looks_at in (
        ("along", tally.along, "the same cell in geographies that follow each other"),
        ("within", tally.within, "neighbouring cells of a geography"),
    ):
        if pairs.number * _size(tally) ** 2 >= _PAIRS:
            z = pairs.products / math.sqrt(pairs.number)
            correlation = pairs.products / pairs.number
            effect = f"correlation {correlation:+.4f} over {pairs.number:,} pairs"
            p = float(normal_two_sided(z))
            evidence = Evidence(p=p, statistic=correlation, effect=effect)
            yield f"correlation {name}", looks_at, evidence


def _fit(tally: Tally, law: IntegerGaussian) -> Iterator[Check]:
    expected, observed = _pooled(tally.n * law.between(tally.edges), tally.histogram)
    if len(expected) >= 3:
        p, worst = _chi_square(observed, expected)
        effect = f"{worst:+.3g} standard deviations in the worst of {len(expected)} bins"
        evidence = Evidence(p=p, statistic=worst, effect=effect)
        yield "law", "how often each value occurs", evidence


def _pooled(expected: Floats, observed: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Neighbouring bins joined until each is expected at least 20 times; at most about 60."""
    least = max(_EXPECTED, expected.sum() / _MOST_BINS)
    sums: list[list[float]] = []
    e = o = 0.0
    for one, other in zip(expected, observed, strict=True):
        e, o = e + one, o + other
        if e >= least:
            sums.append([e, o])
            e = o = 0.0
    if sums:
        sums[-1] = [sums[-1][0] + e, sums[-1][1] + o]
    pooled = np.array(sums or [[expected.sum(), observed.sum()]])
    return pooled[:, 0], pooled[:, 1]


def _chi_square(observed: Floats, expected: Floats) -> tuple[float, float]:
    z = (observed - expected) / np.sqrt(expected)
    p = scipy.special.chdtrc(len(expected) - 1, float((z * z).sum()))
    return float(p), float(z[np.argmax(np.abs(z))])


def _residues(tally: Tally, law: IntegerGaussian) -> Iterator[Check]:
    parts, worst = [], (1.0, 0.0, 0)
    for modulus in _MODULI:
        expected = tally.n * law.residues(modulus)
        if expected.min() >= _EXPECTED:
            counts = tally.residues.reshape(MODULUS // modulus, modulus).sum(axis=0)
            p, z = _chi_square(counts.astype(np.float64), expected)
            parts.append(p)
            worst = min(worst, (p, z, modulus))
    if parts:
        effect = f"{worst[1]:+.3g} standard deviations in the worst remainder of {worst[2]}"
        evidence = Evidence(p=bonferroni(parts), statistic=worst[1], effect=effect)
        yield "residues", "even and odd values, and remainders of 3, 4, 5, 7 and 8", evidence


def levels_check(name: str, tallies: Sequence[tuple[str, Tally]]) -> Iterator[Check]:
    """Whether the first geographies of two levels have related noise, for one query.

    The first geography of a level is compared with the first of the other, and so on, in the cells
    that are noise in both.
    """
    parts, worst = [], (1.0, 0.0, "")
    for i, (upper, a) in enumerate(tallies):
        for lower, b in tallies[i + 1 :]:
            x, y = _shared_cells(a, b)
            if len(x) * _size(a) ** 2 * _size(b) ** 2 < LEAST:
                continue
            correlation = float(np.dot(x, y) / math.sqrt(max(np.dot(x, x) * np.dot(y, y), 1e-300)))
            p = float(scipy.special.betaincc(0.5, (len(x) - 1) / 2, min(1.0, correlation**2)))
            parts.append(p)
            worst = min(worst, (p, correlation, f"{upper} and {lower}"))
    if parts:
        effect = f"correlation {worst[1]:+.4f} between {worst[2]}"
        evidence = Evidence(p=bonferroni(parts), statistic=worst[1], effect=effect)
        looks_at = f"the first {FIRST_ROWS} geographies of two levels, cell by cell"
        yield f"{name}: levels", looks_at, evidence


def _shared_cells(a: Tally, b: Tally) -> tuple[Floats, Floats]:
    """The noise of the first rows in the cells that both levels have."""
    pairs: list[tuple[Floats, Floats]] = [(np.empty(0), np.empty(0))]
    for (mask, x), (other, y) in zip(a.first, b.first, strict=False):
        if len(mask) == len(other):
            both = mask & other
            pairs.append((x[both[mask]].astype(np.float64), y[both[other]].astype(np.float64)))
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
