"""Sums over the noise of one group of cells, in memory that does not grow with the files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpaudit_deployments.census.law import law_of_variance
from dpaudit_deployments.census.model import Integers

__all__ = ["FIRST_ROWS", "MODULUS", "Tally"]

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
    _held: int = 0
    _kept: int = 0
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
        if mask is not self._mask or self._held > _BUFFER:
            self.flush()
            self._mask = mask
        self._rows.append(values)
        self._held += values.size
        self.rows += 1
        if len(self.first) < FIRST_ROWS and self._kept + values.size <= _FIRST_VALUES:
            self.first.append((mask, values))
            self._kept += values.size

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
        self._rows, self._held = [], 0
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
