"""How fine values are: their digits, equal ones among them, and uniforms of few bits behind them.

Equal magnitudes are counted among all values of an audit, and among the largest, in little memory.
Uniforms of few bits show as probabilities that lie on a grid.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import scipy

from dpaudit.claims import Claim

__all__ = [
    "FINEST",
    "Bulk",
    "Grid",
    "Largest",
    "Precision",
    "lengths_and_angles",
    "nonzero",
    "on_a_grid",
    "poisson_bound",
    "repeats_p",
    "significand_bits",
    "single_values",
    "strip_edges",
]

_SIGNIFICAND = np.uint64((1 << 52) - 1)
_SMALLEST = 1e-290  # far from subnormal numbers
_SLACK = 2.0**-50  # relative; a product in double is within 2^-52

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Precision:
    """How many digits values have: ``bits`` significant ones, none below ``step``.

    ``factor``: what the digits were multiplied by in double, the claim's scale for noise made in
    single precision, else 1.
    """

    bits: int
    step: float
    factor: float = 1.0

    @classmethod
    def of(cls, x: Array, scale: float) -> Self:
        """The fewest digits that hold all of ``x``, of shape (n,).

        A sampler of this precision may show fewer digits in few values, never more.
        """
        x = nonzero(x)
        bits, step = _digits(x)
        if bits > 24:
            ratio = x / scale
            with np.errstate(over="ignore"):  # beyond float32: not near
                near = ratio.astype(np.float32).astype(np.float64)
            if len(x) and bool((np.abs(near - ratio) <= _SLACK * np.abs(ratio)).all()):
                bits, step = _digits(near)
                return cls(bits, step * scale, scale)
        return cls(bits, step)

    def unit(self, x: Array) -> Array:
        """Weight of the last digit of each value."""
        _, exponent = np.frexp(np.abs(x))
        return np.asarray(np.maximum(np.ldexp(1.0, exponent - self.bits), self.step))

    def largest_unit(self, x: Array | float) -> Array:
        """The largest that :meth:`unit` can be at or near ``x``, where the binades may differ."""
        return np.asarray(np.maximum(np.abs(x) * 2.0 ** (1 - self.bits), self.step))

    def last_digits(self, x: Array) -> npt.NDArray[np.uint8]:
        """The last eight digits of each |value|."""
        x = np.abs(x)
        if self.factor != 1.0:
            x = (x / self.factor).astype(np.float32).astype(np.float64)
        _, exponent = np.frexp(x)
        with np.errstate(over="ignore"):
            unit = np.maximum(np.ldexp(1.0, exponent - self.bits), self.step / self.factor)
            whole = np.minimum(x / unit, 2.0**53).astype(np.int64)
        return np.asarray(whole & 0xFF).astype(np.uint8)


def nonzero(x: Array) -> Array:
    """Those of ``x`` that are not 0, nor so small that digits are lost."""
    return np.asarray(x[np.abs(x) > _SMALLEST])


def significand_bits(x: Array) -> int:
    """The longest significand that any value needs: 53 digits (double), 24 (float32), 11 (half)."""
    digits = int(np.bitwise_or.reduce(np.ascontiguousarray(x).view(np.uint64) & _SIGNIFICAND))
    return 54 - (digits & -digits).bit_length() if digits else 1


def _digits(x: Array) -> tuple[int, float]:
    if not len(x):
        return 53, 0.0
    significand = (np.ascontiguousarray(x).view(np.uint64) & _SIGNIFICAND) | np.uint64(1 << 52)
    lowest = significand & (~significand + np.uint64(1))
    _, exponent = np.frexp(np.abs(x))
    step = float(np.ldexp(lowest.astype(np.float64), exponent - 53).min())
    return significand_bits(x), step


_KEPT = 1 << 18  # values expected in the table at most
_OVERFULL = 4 * _KEPT
_TOP_PLACE = 42  # the highest of the digits that choose values: 10 places after the first
_MOST = 2_000  # largest magnitudes
_SHARE = 50  # at most one value in so many is called large
_PIECE = 1 << 16
_STRIPS = 16
_FINE = 2.0**-40  # what a magnitude in double may be as likely as
_FINE_SINGLE = 2.0**-22  # the same for float32, apart from the tail


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


def strip_edges(claim: Claim, strips: int) -> Array:
    """The inner edges (strips − 1,) of strips of |noise| of equal probability under the claim."""
    q = np.arange(1, strips) / strips
    edges = scipy.special.ndtri((1 + q) / 2) if claim.family == "gaussian" else -np.log1p(-q)
    return np.asarray(edges * claim.scale)


class Bulk:
    """Every value whose digits at some keyed places are those of a key.

    As values become more, more places decide, so at most about 2^18 are kept. Equal values stay or
    go together, so repeats are seen at any distance.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._key = int(rng.integers(0, 1 << 62))
        self._level = 0
        self.count = 0
        self._values: list[Array] = []
        self._before: list[int] = []  # values seen before each piece
        self._size = 0

    def add(self, x: Array) -> None:
        """Take in values, of shape (n,)."""
        if self._size > _OVERFULL:  # few values, often: one full table shows it
            return
        before = self.count
        self.count += len(x)
        while self.count >> self._level > _KEPT:
            self._level += 1
            self._thin()
        mask, key = self._mask()
        chosen = [
            part[np.flatnonzero((part.view(np.uint64) & mask) == key)]
            for part in (x[i : i + _PIECE] for i in range(0, len(x), _PIECE))
        ]
        self._values.append(np.abs(np.concatenate(chosen)) if chosen else x[:0])
        self._before.append(before)
        self._size += len(self._values[-1])

    def _mask(self) -> tuple[np.uint64, np.uint64]:
        mask = ((1 << self._level) - 1) << (_TOP_PLACE - self._level + 1)
        return np.uint64(mask), np.uint64(self._key & mask)

    def _thin(self) -> None:
        mask, key = self._mask()
        self._values = [part[(part.view(np.uint64) & mask) == key] for part in self._values]
        self._size = sum(map(len, self._values))

    def repeats(self, claim: Claim, precision: Precision) -> tuple[float, float, str]:
        """A p-value, bits of resolution, and how many values are distinct.

        Given the values before, the next one is a given magnitude of a strip with probability at
        most :func:`heaviest` (or 2^-40 in double, 2^-22 in float32), so one of the K that are kept
        with probability at most K times that: the number of repeats is at most Poisson
        (:func:`poisson_bound`), exactly, whichever values are kept.
        """
        x = np.concatenate([*self._values, np.empty(0)])
        if len(x) < 2:
            return 1.0, math.inf, ""
        following = [self.count - before for before in self._before]
        later = np.repeat(following, list(map(len, self._values)))
        ordered = np.sort(x)
        again = np.concatenate([[False], ordered[1:] == ordered[:-1]])
        edges = [0.0, *map(float, strip_edges(claim, _STRIPS)), math.inf]
        least = _FINE_SINGLE if precision.bits <= 24 else _FINE
        tails = []
        for low, high in itertools.pairwise(edges):
            a, b = np.searchsorted(ordered, [low, high])
            count = int(again[a:b].sum())
            atom = max(least, heaviest(claim, precision, low, high))
            if count and (b - a) * atom < 0.5:
                expected = float(later[(low <= x) & (x < high)].sum()) * atom / (1 - (b - a) * atom)
                tails.append(float(scipy.special.gammainc(count, expected)))
        many = int(again.sum())
        runs = np.diff(np.flatnonzero(np.concatenate([~again, [True]]))).astype(np.float64)
        pairs = float((runs * (runs - 1)).sum()) / 2
        # a value is equal to another with the probability of a kept one to a kept one, by the share
        # that is kept
        bits = math.log2(len(x) * self.count / 2 / max(pairs, 1.0))
        distinct = round(self.count * (1 - many / len(x)))
        effect = f"about {distinct:,} of {self.count:,} magnitudes are distinct"
        return min([1.0, *(_STRIPS * p for p in tails)]), bits, effect


class Largest:
    """The 2,000 largest magnitudes of all values, or of fewer values one in 50."""

    def __init__(self) -> None:
        self.count = 0
        self._limit = 0.0
        self._values: list[Array] = []
        self._size = 0

    def add(self, x: Array) -> None:
        """Take in values, of shape (n,)."""
        self.count += len(x)
        for part in (x[i : i + _PIECE] for i in range(0, len(x), _PIECE)):
            size = np.abs(part)
            large = size[size > self._limit]
            if len(large):
                self._values.append(large)
                self._size += len(large)
            if self._size > 8 * _MOST:
                self._shorten()

    def _shorten(self) -> None:
        x = np.concatenate(self._values)
        x = x[np.argpartition(x, len(x) - _MOST - 1)[-_MOST - 1 :]]
        self._values, self._size, self._limit = [x], len(x), float(x.min())

    def values(self) -> tuple[float, Array]:
        """The largest magnitude that is not among them, and those above it, in order."""
        x = np.sort(np.concatenate([*self._values, np.empty(0)]))
        many = min(_MOST, self.count // _SHARE)
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
        effect = f"{len(top) - repeats:,} of the {len(top):,} largest magnitudes are distinct"
        return repeats_p(repeats, len(top), 1 / atom), effect


def repeats_p(repeats: int, n: int, atoms: float) -> float:
    """P(so many of n values repeat an earlier one), where none is likelier than 1/``atoms``."""
    return float(scipy.special.gammainc(repeats, poisson_bound(n, atoms))) if repeats else 1.0


def poisson_bound(n: int, atoms: float) -> float:
    """−Σ ln(1 − i/M) for i < n, as ln M^n − ln(M!/(M − n)!)."""
    if n * n < 1e-3 * atoms:  # where the difference of logarithms loses its digits
        return n * (n - 1) / 2 / atoms / (1 - n / atoms)
    return n * math.log(atoms) - math.lgamma(atoms + 1) + math.lgamma(atoms - n + 1)


FINEST = 48
_FARTHEST = 40.0  # standard deviations; the tail is 0 there
_COARSEST = 16
_BLUR = 1 / 16  # of a step: the most that rounding may spread a probability
_STEPS = 64  # that the probabilities must cover
_NEAR = 1 / 16  # of a step
_FEWEST = 20
_GRID_VALUES = 1 << 12  # values per k, the first that are fine enough
_GLANCE = 1 << 8  # of these, which say whether the rest is worth a look
_WORTH = 1 / 3  # of hits at a glance: without a grid there are 3/16


@dataclass(frozen=True, slots=True)
class Grid:
    """The finest grid of 2^-bits steps that held-out probabilities lie on, and its p-value."""

    p: float = 1.0
    bits: int = 0
    offset: float = 0.0
    hits: int = 0
    held_out: int = 0

    def describe(self, quantity: str) -> str:
        """One clause: which multiple of ``quantity`` is a whole number, and how often."""
        offset = "" if min(self.offset, 1 - self.offset) < _NEAR / 2 else f" + {self.offset:.2f}"
        return (
            f"2^{self.bits} · {quantity} is a whole number{offset} at {self.hits:,} of "
            f"{self.held_out:,} held-out places"
        )


def on_a_grid(u: Array, blur: Array) -> Grid:
    """Whether u·2^k is always a whole number plus a constant, for some k in 16…48.

    ``u`` are probabilities in (0, 1), ``blur`` the widths over which rounding spreads each. The
    constant is fitted to every second value; the others, held out, count as hits within a 16th.

    Null: u has a density that is level over some steps, before rounding. Values enter for which
    rounding spreads u·2^k by at most a 16th, if they cover 64 steps, so a held-out one is a hit
    with probability 1/8 + 1/16, and less than 1/2 whatever makes the density uneven over one step.
    p = P(Binomial(n, 1/2) ≥ hits), times 33 for the k; 1 if of the first 128 fewer than a third
    are hits.
    """
    best = Grid()
    with np.errstate(divide="ignore", over="ignore"):
        finest = np.nan_to_num(np.floor(np.log2(_BLUR / blur)), nan=0.0)
    easy = int(min(finest[:_GLANCE].min(initial=FINEST), FINEST))  # where all of them are fine
    unlikely = _unlikely(u[:_GLANCE], easy)
    for k in range(_COARSEST, FINEST + 1):
        if k in unlikely:
            continue
        fine = np.flatnonzero(finest[: 2 * _GRID_VALUES] >= k)[:_GRID_VALUES]
        if len(fine) < _GRID_VALUES:
            fine = np.flatnonzero(finest >= k)[:_GRID_VALUES]
        if len(fine) < 2 * _FEWEST:
            break  # the set only shrinks as k grows
        if k > easy and _away(u[fine[:_GLANCE]] * 2.0**k)[1].mean() < _WORTH:
            continue
        y = u[fine] * 2.0**k
        if np.ptp(y) < _STEPS:
            continue
        offset, hit = _away(y)
        hits, n = int(np.count_nonzero(hit)), len(hit)
        p = float(scipy.special.bdtrc(hits - 1, n, 0.5)) if hits else 1.0
        if p < best.p:  # a grid of 2^-k lies on that of 2^-k-1 too, which keeps fewer values
            best = Grid(p, k, float(offset[0]), hits, n)
    return replace(best, p=min(1.0, (FINEST - _COARSEST + 1) * best.p))


def _away(y: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The constant of every second value in (…, n), shape (…, 1), and which others are hits."""
    turn = 2 * np.pi * (y[..., ::2] % 1)
    sums = (part.sum(-1, keepdims=True) for part in (np.sin(turn), np.cos(turn)))
    offset = np.arctan2(*sums) / (2 * np.pi) % 1
    return offset, np.abs((y[..., 1::2] - offset + 0.5) % 1 - 0.5) <= _NEAR


def _unlikely(u: Array, finest: int) -> set[int]:
    """The k up to ``finest`` that a few values show no grid for; none of too few values."""
    k = np.arange(_COARSEST, finest + 1)
    if len(u) < _GLANCE:
        return set()
    _, hit = _away(u * 2.0 ** k[:, None])
    return set(k[hit.mean(-1) < _WORTH].tolist())


def single_values(x: Array, claim: Claim, precision: Precision) -> dict[str, tuple[Array, Array]]:
    """The smaller tail's probability under the claim, by sign, each with its blur."""
    sides = {}
    for name, side in (("F(x) for x < 0", x[x < 0]), ("1 − F(x) for x > 0", x[x > 0])):
        z = np.minimum(np.abs(side) / claim.scale, _FARTHEST)
        if claim.family == "gaussian":
            u, density = scipy.special.ndtr(-z), np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        else:
            u = density = 0.5 * np.exp(-z)
        sides[name] = u, density * precision.unit(side) / claim.scale
    return sides


def lengths_and_angles(
    a: Array, b: Array, claim: Claim, precision: Precision
) -> dict[str, tuple[Array, Array]]:
    """Of pairs (a, b) of claimed N(0, 1): exp(−r²/2) and the angle in turns, each with its blur."""
    square = a * a + b * b
    r = np.sqrt(square)
    unit = precision.unit(np.maximum(np.abs(a), np.abs(b)) * claim.scale) / claim.scale
    u = np.exp(-0.5 * square)
    angle = np.arctan2(b, a) / (2 * np.pi)
    with np.errstate(divide="ignore", over="ignore"):
        return {
            "exp(−r²/2)": (u, 1.5 * u * r * unit),
            "the angle in turns": (angle % 1, np.minimum(unit / r, 1.0) / np.pi),
        }
