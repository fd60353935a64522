"""Equal magnitudes among all values of an audit, and among the largest, in little memory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.audit.battery._digits import Precision
from dpaudit.claims import Claim

__all__ = ["Bulk", "Largest", "poisson_bound"]

_KEPT = 1 << 18  # values expected in the table at most
_OVERFULL = 4 * _KEPT
_TOP_PLACE = 42  # the highest of the digits that choose values: 10 places after the first
_MOST = 2_000  # largest magnitudes
_SHARE = 50  # at most one value in so many is called large
_PIECE = 1 << 16
_STRIPS = 16
_FINE = 2.0**-40  # what a magnitude in double may be as likely as
_FINE_SINGLE = 2.0**-22  # the same for float32, apart from the tail

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


def heaviest(claim: Claim, precision: Precision, low: float, high: float) -> float:
    """How likely one magnitude within [low, high) may be: twice what rounding leaves.

    Rounded to its digits, a magnitude of density g has probability g(x)·unit(x). Twice that
    allows for arithmetic in these digits that is not rounded once only.
    """
    step = float(precision.largest_unit(min(high, max(low, claim.standard_deviation))))
    return 2 * density(claim, low) * step


def density(claim: Claim, x: Array | float) -> float:
    """Density of |noise| at ``x`` ≥ 0; never increasing."""
    z = float(x) / claim.scale
    if claim.family == "gaussian":
        return math.sqrt(2 / math.pi) * math.exp(-0.5 * z * z) / claim.scale
    return math.exp(-z) / claim.scale


def survival(claim: Claim, x: float) -> float:
    """P(|noise| > x)."""
    z = x / claim.scale
    return math.erfc(z / math.sqrt(2)) if claim.family == "gaussian" else math.exp(-z)


class Bulk:
    """Every value whose digits at some keyed places are those of a key.

    As values become more, more places decide, so at most about 2^18 are kept. Equal values stay or
    go together, so repeats are seen at any distance.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._key = int(rng.integers(0, 1 << 62))
        self._level = 0
        self.seen = 0
        self._kept: list[Array] = []
        self._before: list[int] = []  # values seen before each piece
        self._size = 0

    def add(self, x: Array) -> None:
        """Take in values, of shape (n,)."""
        if self._size > _OVERFULL:  # few values, often: one full table shows it
            return
        before = self.seen
        self.seen += len(x)
        while self.seen >> self._level > _KEPT:
            self._level += 1
            self._thin()
        mask, wanted = self._mask()
        found = [
            part[np.flatnonzero((part.view(np.uint64) & mask) == wanted)]
            for part in (x[i : i + _PIECE] for i in range(0, len(x), _PIECE))
        ]
        self._kept.append(np.abs(np.concatenate(found)) if found else x[:0])
        self._before.append(before)
        self._size += len(self._kept[-1])

    def _mask(self) -> tuple[np.uint64, np.uint64]:
        mask = ((1 << self._level) - 1) << (_TOP_PLACE - self._level + 1)
        return np.uint64(mask), np.uint64(self._key & mask)

    def _thin(self) -> None:
        mask, wanted = self._mask()
        self._kept = [part[(part.view(np.uint64) & mask) == wanted] for part in self._kept]
        self._size = sum(map(len, self._kept))

    def repeats(self, claim: Claim, precision: Precision) -> tuple[float, float, str]:
        """A p-value, bits of resolution, and how many values are distinct.

        Given the values before, the next one is a given magnitude of a strip with probability at
        most :func:`heaviest` (or 2^-40 in double, 2^-22 in float32), so one of the K that are kept
        with probability at most K times that: the number of repeats is at most Poisson
        (:func:`poisson_bound`), exactly, whichever values are kept.
        """
        x = np.concatenate([*self._kept, np.empty(0)])
        if len(x) < 2:
            return 1.0, math.inf, ""
        left = [self.seen - before for before in self._before]
        later = np.repeat(left, list(map(len, self._kept)))
        order = np.argsort(x)
        ordered, later = x[order], later[order]
        again = np.concatenate([[False], ordered[1:] == ordered[:-1]])
        edges = self._edges(claim)
        least = _FINE_SINGLE if precision.bits <= 24 else _FINE
        found = []
        for low, high in itertools.pairwise(edges):
            a, b = np.searchsorted(ordered, [low, high])
            count = int(again[a:b].sum())
            atom = max(least, heaviest(claim, precision, low, high))
            if count and (b - a) * atom < 0.5:
                expected = float(later[a:b].sum()) * atom / (1 - (b - a) * atom)
                found.append(float(scipy.special.gammainc(count, expected)))
        many = int(again.sum())
        runs = np.diff(np.flatnonzero(np.concatenate([~again, [True]]))).astype(np.float64)
        pairs = float((runs * (runs - 1)).sum()) / 2
        # a value is equal to another with the probability of a kept one to a kept one, by the share
        # that is kept
        bits = math.log2(len(x) * self.seen / 2 / max(pairs, 1.0))
        distinct = round(self.seen * (1 - many / len(x)))
        says = f"about {distinct:,} of {self.seen:,} magnitudes are distinct"
        return min([1.0, *(_STRIPS * p for p in found)]), bits, says

    @staticmethod
    def _edges(claim: Claim) -> list[float]:
        q = np.arange(_STRIPS) / _STRIPS
        inner = (
            scipy.special.ndtri((1 + q) / 2) if claim.family == "gaussian" else -np.log1p(-q)
        ) * claim.scale
        return [*map(float, inner), math.inf]


class Largest:
    """The 2,000 largest magnitudes of all values, or of fewer values one in 50."""

    def __init__(self) -> None:
        self.seen = 0
        self._limit = 0.0
        self._kept: list[Array] = []
        self._size = 0

    def add(self, x: Array) -> None:
        """Take in values, of shape (n,)."""
        self.seen += len(x)
        for part in (x[i : i + _PIECE] for i in range(0, len(x), _PIECE)):
            size = np.abs(part)
            found = size[size > self._limit]
            if len(found):
                self._kept.append(found)
                self._size += len(found)
            if self._size > 8 * _MOST:
                self._shorten()

    def _shorten(self) -> None:
        x = np.concatenate(self._kept)
        x = x[np.argpartition(x, len(x) - _MOST - 1)[-_MOST - 1 :]]
        self._kept, self._size, self._limit = [x], len(x), float(x.min())

    def values(self) -> tuple[float, Array]:
        """The largest magnitude that is not among them, and those above it, in order."""
        x = np.sort(np.concatenate([*self._kept, np.empty(0)]))
        many = min(_MOST, self.seen // _SHARE)
        if many < 2 or len(x) <= many:
            return math.inf, x[:0]
        limit = float(x[-many - 1])
        return limit, x[x > limit]

    def repeats(self, claim: Claim, precision: Precision) -> tuple[float, str]:
        """A p-value, and how many of them are distinct.

        Given the largest t of the rest, those above are independent with the law beyond t, where no
        magnitude is likelier than :func:`heaviest` over P(|noise| > t).
        """
        limit, top = self.values()
        beyond = survival(claim, limit)
        if len(top) < 2 or not beyond:
            return 1.0, ""
        atom = max(_FINE, heaviest(claim, precision, limit, math.inf)) / beyond
        repeats = len(top) - len(np.unique(top))
        if not repeats or len(top) * atom > 0.5:
            return 1.0, ""
        p = float(scipy.special.gammainc(repeats, poisson_bound(len(top), 1 / atom)))
        return p, f"{len(top) - repeats:,} of the {len(top):,} largest magnitudes are distinct"


def poisson_bound(n: int, atoms: float) -> float:
    """−Σ ln(1 − i/M) for i < n, as ln M^n − ln(M!/(M − n)!)."""
    if n * n < 1e-3 * atoms:  # where the difference of logarithms loses its digits
        return n * (n - 1) / 2 / atoms / (1 - n / atoms)
    return n * math.log(atoms) - math.lgamma(atoms + 1) + math.lgamma(atoms - n + 1)
