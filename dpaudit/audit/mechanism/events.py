"""Choosing the events to count, from the first half of the releases only.

A *statistic* reduces a release to one number, the line of its values is cut into *cells*, and an
*event* is a set of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.audit.mechanism.bounds import Band, band, epsilon_bounds, one_sided

__all__ = [
    "Cells",
    "Event",
    "NestedEvents",
    "Statistic",
    "apart",
    "choose",
    "coarse_statistics",
    "low_bit_statistics",
]

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_MOST_FULL = 256
"""Dimensions up to which full covariances are estimated."""
_COORDINATES = 4
_ZERO = 5000.0
"""Stands for the lowest set bit of 0, above that of any number."""
_LOW_BIT_COORDINATES = 3
_LOW_BIT_NUMBERS = 1 << 22
"""Numbers used to choose coordinates."""
_LOWEST_PLACE, _TOP_PLACE = -1075, 1025
"""Places of the lowest set bit of a float64 number; the last one stands for 0."""
_LARGEST = np.finfo(np.float64).max
_SQUARED = 1e100
"""Numbers between its inverse and itself can be squared and summed; others are scaled first."""


@dataclass(frozen=True)
class Statistic:
    """A map from releases (n, k) to numbers (n,), described in words and JSON-ready parameters."""

    name: str
    of: Callable[[Array], Array]
    details: Mapping[str, Any] = field(default_factory=dict)


def coarse_statistics(x0: Array, x1: Array, rng: np.random.Generator) -> list[Statistic]:
    """Statistics of releases as real numbers, learned from ``x0`` and ``x1`` (n, k).

    ``x0`` and ``x1`` are releases at the two neighbours.

    For k = 1 the release itself. Otherwise, simple ones first: the coordinates that differ most,
    the smallest and the largest magnitude of a row, where an exact zero or an outlier shows in any
    coordinate, a linear and a quadratic discriminant (log-ratio of two fitted normal laws), and a
    random projection, which separates the vectors of a discrete law.
    """
    k = x0.shape[1]
    if k == 1:
        return [Statistic("x", lambda x: x[:, 0])]
    largest = max(float(np.abs(x).max()) for x in (x0, x1))
    if largest != 0 and not 1 / _SQUARED < largest < _SQUARED:
        scale = 2.0 ** float(np.clip(-np.frexp(largest)[1], -1000, 1000))
        return [_rescale(s, scale) for s in coarse_statistics(x0 * scale, x1 * scale, rng)]
    m0, m1 = np.asarray(x0.mean(axis=0)), np.asarray(x1.mean(axis=0))
    v0, v1 = np.asarray(x0.var(axis=0)), np.asarray(x1.var(axis=0))
    floor = 1e-12 * (v0 + v1).max() + 1e-30 * largest**2 + 1e-300
    v0, v1 = v0 + floor, v1 + floor
    weights: Array
    full = k <= _MOST_FULL and min(len(x0), len(x1)) >= 20 * k
    if full:
        ridge = np.diag(1e-9 * (v0 + v1))
        c0, c1 = np.cov(x0.T) + ridge, np.cov(x1.T) + ridge
        p0, p1 = (np.linalg.inv(c).astype(np.float64) for c in (c0, c1))
        weights = np.asarray(np.linalg.solve(c0 + c1, m1 - m0), np.float64)
        quadratic = Statistic(
            "quadratic discriminant", lambda x: _mahalanobis(x - m0, p0) - _mahalanobis(x - m1, p1)
        )
    else:
        weights = np.asarray((m1 - m0) / (v0 + v1), np.float64)
        quadratic = Statistic(
            "diagonal quadratic discriminant",
            lambda x: ((x - m0) ** 2 / v0 - (x - m1) ** 2 / v1).sum(axis=1),
        )
    differ = np.abs(m1 - m0) / np.sqrt(v0 + v1) + np.abs(np.log(v1 / v0))
    farthest = map(int, np.argsort(-differ)[:_COORDINATES])
    statistics = [Statistic(f"x[{j}]", _of_column(j, np.asarray)) for j in farthest]
    statistics += [Statistic("smallest |x[j]|", lambda x: np.abs(x).min(axis=1))]
    statistics += [Statistic("largest |x[j]|", lambda x: np.abs(x).max(axis=1))]
    statistics += [_linear("linear discriminant ⟨w, x⟩", weights), quadratic]
    return [*statistics, _linear("random projection ⟨w, x⟩", rng.standard_normal((k,)))]


def low_bit_statistics(x0: Array, x1: Array, v0: Array, v1: Array) -> list[Statistic]:
    """Statistics of the bits that a float64 release uses (Mironov 2012).

    The place of the lowest set bit, of the release and of the release less either query value
    ``v0``, ``v1`` (m,), and the number of trailing zeros together with the binary exponent: in the
    coordinate where the query values differ most, and in the few where ``x0`` and ``x1`` (n, k),
    releases at the two neighbours, differ most in these.
    """
    k = x0.shape[1]
    as_long = len(v0) == k
    with np.errstate(over="ignore"):
        first = int(np.argmax(np.abs(v1 - v0))) if as_long else 0
    learned = [j for j in _differing_low_bits(x0, x1) if j != first] if k > 1 else []
    statistics = []
    for j in (first, *learned):
        name = "x" if k == 1 else f"x[{j}]"
        exponent = f"exponent and trailing zeros of {name}"
        statistics += [
            Statistic(f"lowest set bit of {name}", _of_column(j, _lowest_bit)),
            Statistic(exponent, _of_column(j, _exponent_and_zeros)),
        ]
        if as_long:
            values = sorted({float(v0[j]), float(v1[j])} - {0.0})
            statistics += [
                Statistic(
                    f"lowest set bit of {name} − {v:g}",
                    _of_column(j, partial(_lowest_bit_less, value=v)),
                )
                for v in values
            ]
    return statistics


def _differing_low_bits(x0: Array, x1: Array) -> list[int]:
    """The first few coordinates of releases (n, k) by difference of their lowest set bits."""
    rows = max(1, min(len(x0), len(x1), _LOW_BIT_NUMBERS // x0.shape[1]))
    counts = []
    for x in (x0[:rows], x1[:rows]):
        place = np.minimum(_lowest_bit(x), _TOP_PLACE).astype(np.int64) - _LOWEST_PLACE
        wide = _TOP_PLACE - _LOWEST_PLACE + 1
        place += np.arange(x.shape[1]) * wide
        counts.append(np.bincount(place.ravel(), minlength=wide * x.shape[1]).reshape(-1, wide))
    gaps = np.abs(counts[1] - counts[0]).sum(axis=1)
    return [int(j) for j in np.argsort(-gaps, kind="stable")[:_LOW_BIT_COORDINATES]]


def _rescale(statistic: Statistic, scale: float) -> Statistic:
    return Statistic(
        statistic.name, lambda x: statistic.of(x * scale), {**statistic.details, "scaled_by": scale}
    )


def _of_column(j: int, of: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: of(x[:, j])


def _lowest_bit_less(x: Array, *, value: float) -> Array:
    with np.errstate(over="ignore"):
        return _lowest_bit(np.clip(x - value, -_LARGEST, _LARGEST))


def _linear(name: str, weights: Array) -> Statistic:
    # not x @ weights: its rounding depends on a row's place, but equal rows need equal numbers
    return Statistic(name, lambda x: (x * weights).sum(axis=1), {"weights": weights.tolist()})


def _mahalanobis(x: Array, precision: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", x @ precision, x))


def _parts(x: Array) -> tuple[Array, Array]:
    """Binary exponent, and trailing zeros of the 53-bit mantissa."""
    mantissa, exponent = np.frexp(x)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    return exponent.astype(np.float64), np.frexp((whole & -whole).astype(np.float64))[1] - 1.0


def _lowest_bit(x: Array) -> Array:
    exponent, zeros = _parts(x)
    return np.where(x == 0, _ZERO, exponent - 53 + zeros)


def _exponent_and_zeros(x: Array) -> Array:
    exponent, zeros = _parts(x)
    # −0.0 and 0.0 are different floats
    return np.where(x == 0, np.copysign(64 * _ZERO, x), 64 * exponent + zeros)


_MOST_ATOMS = 4096
_MOST_CELLS = 256
_PER_CELL = 64
_REPEATS = 8
"""A value seen so often is an atom: one of 2^24 equally likely hardly occurs eight times."""


@dataclass(frozen=True)
class Cells:
    """Half-open intervals [edge, next edge) that cover the line; ``edges`` (cells − 1,)."""

    edges: Array

    def __len__(self) -> int:
        return len(self.edges) + 1

    def counts(self, values: Array) -> npt.NDArray[np.int64]:
        """Number of ``values`` in each cell, shape (cells,)."""
        return np.bincount(np.searchsorted(self.edges, values, side="right"), minlength=len(self))


def cut(values: Array) -> Cells:
    """Cells for these values: an atom for each frequent one, quantiles else, finer in the tails."""
    distinct, times = np.unique(values, return_counts=True)
    often = times >= _REPEATS
    if np.count_nonzero(often) > _MOST_ATOMS:
        often &= times >= np.sort(times)[-_MOST_ATOMS]
    atoms = distinct[often]
    rest = np.repeat(distinct[~often], times[~often])
    n = len(rest)
    places: Array = np.array([])
    if n:
        middle = np.linspace(0, 1, max(2, min(_MOST_CELLS, n // _PER_CELL)) + 1)[1:-1]
        steps = np.arange(max(1, int(np.log2(max(2, n / (_PER_CELL * _REPEATS))))))
        tail = _REPEATS * 2.0**steps / n
        tail = tail[tail < 0.5]
        places = np.quantile(rest, np.concatenate([middle, tail, 1 - tail]))
    return Cells(np.unique(np.concatenate([places, atoms, np.nextafter(atoms, np.inf)])))


def intervals(cells: Cells, chosen: npt.NDArray[np.bool_]) -> list[tuple[float, float]]:
    """The chosen cells as [from, to) intervals, neighbours joined."""
    edges = np.concatenate([[-np.inf], cells.edges, [np.inf]])
    step = np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]]))
    return [
        (float(edges[a]), float(edges[b]))
        for a, b in zip(*(np.flatnonzero(step == s) for s in (1, -1)), strict=True)
    ]


_MOST_TRIED = 8
_DEVIATIONS = 3.5
"""For a first look by the normal approximation; the best few get the exact bound."""
_SMOOTH = 2.0
_STRICTER = 0.01
_SIMPLER = 0.005
"""What a later statistic must promise beyond an earlier one: at equal promise, the simple event."""
_GRID = 22
"""Number of events of the trade-off curve, besides those of the largest differences."""
_SPLITS = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True)
class Event:
    """The statistic falls in the chosen cells; ``likelier`` is the neighbour (0 or 1) with more."""

    statistic: Statistic
    cells: Cells
    inside: npt.NDArray[np.bool_]
    likelier: int
    description: str = ""
    """Its description, where it has one of its own."""
    clearest: int = -1
    """The cell with the largest likelihood ratio, where cells were chosen by it."""

    def holds(self, x: Array) -> npt.NDArray[np.bool_]:
        """Which of the releases (n, k) are in it, (n,)."""
        return self.inside[np.searchsorted(self.cells.edges, self.statistic.of(x), side="right")]

    def counts(self, x0: Array, x1: Array) -> tuple[int, int]:
        """Its counts in releases (n, k): at the likelier neighbour, at the other."""
        totals = [int(self.cells.counts(self.statistic.of(x))[self.inside].sum()) for x in (x0, x1)]
        return totals[self.likelier], totals[1 - self.likelier]

    def intervals(self) -> list[tuple[float, float]]:
        """The statistic's values that make up the event, as [from, to)."""
        return intervals(self.cells, self.inside)

    def __str__(self) -> str:
        if self.description:
            return self.description
        pieces = self.intervals()
        if len(pieces) > 3:
            edges = np.concatenate([[-np.inf], self.cells.edges, [np.inf]])
            example = ""
            if self.clearest >= 0:
                example = f", most of all {_piece(*edges[self.clearest : self.clearest + 2])}"
            return (
                f"{self.statistic.name} in {len(pieces):,} learned intervals "
                f"from {_least(pieces[0][0])} to {_most(pieces[-1][1])}{example} (all in details)"
            )
        return f"{self.statistic.name} " + " or ".join(_piece(a, b) for a, b in pieces)


def _piece(start: float, end: float) -> str:
    """One [start, end) in words; an atom is a single value, an end next to one is written as it."""
    if end == np.nextafter(start, np.inf):
        return f"= {start:.6g}"
    if start == -np.inf:
        return f"≤ {_before(end):.6g}" if _next_to_atom(end) else f"< {end:.6g}"
    if end == np.inf:
        return f"> {_before(start):.6g}" if _next_to_atom(start) else f"≥ {start:.6g}"
    opening = f"({_before(start):.6g}" if _next_to_atom(start) else f"[{start:.6g}"
    return (
        f"in {opening}, {_before(end):.6g}]" if _next_to_atom(end) else f"in {opening}, {end:.6g})"
    )


def _least(start: float) -> str:
    return "−∞" if start == -np.inf else f"{_before(start) if _next_to_atom(start) else start:.6g}"


def _most(end: float) -> str:
    return "∞" if end == np.inf else f"{_before(end) if _next_to_atom(end) else end:.6g}"


def _before(edge: float) -> float:
    return float(np.nextafter(edge, -np.inf))


def _next_to_atom(edge: float) -> bool:
    """Whether an edge is the float after a rounder number, as the upper edge of an atom's cell."""
    return len(repr(_before(edge))) < len(repr(float(edge)))


@dataclass(frozen=True)
class Widest:
    """The cut (an index like ``ends``) that promises the largest δ at the claimed ε.

    ``split`` is the part of its error for the lower bound of P₁; the rest is for the upper of P₀.
    """

    end: int
    split: float


@dataclass(frozen=True)
class NestedEvents:
    """Events for a trade-off curve: a statistic's cells by likelihood ratio, cut at ``ends``."""

    statistic: Statistic
    cells: Cells
    order: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]
    widest: Widest | None = None

    def counts(self, x0: Array, x1: Array) -> tuple[Counts, Counts]:
        """Counts of the events at neighbour 0 and at neighbour 1, shape (events,) each."""
        totals = [np.cumsum(self.cells.counts(self.statistic.of(x))[self.order]) for x in (x0, x1)]
        return totals[0][self.ends], totals[1][self.ends]

    def band(self, k0: Counts, n0: int, k1: Counts, n1: int, *, alpha: float) -> Band:
        """The band of counts (events,) among ``n0`` and ``n1`` releases.

        Half of ``alpha`` is for the event that shows δ, if there is one. Formal guarantee: all
        bounds hold at once with probability ≥ 1 − ``alpha``, if the events, that one and its split
        were fixed beforehand: a union bound of two bands.
        """
        if self.widest is None:
            return band(k0, n0, k1, n1, alpha=alpha)
        at = int(np.searchsorted(self.ends, self.widest.end))
        alone = one_sided(
            int(k0[at]), n0, int(k1[at]), n1, alpha=alpha / 2, split=self.widest.split
        )
        return band(k0, n0, k1, n1, alpha=alpha / 2).merge(alone)


def choose(
    statistics: Sequence[Statistic],
    x0: Array,
    x1: Array,
    *,
    delta: float,
    alpha: float,
    epsilon: float | None = None,
) -> tuple[list[Event], NestedEvents | None]:
    """The most promising event in favour of each neighbour, and nested ones for the curve.

    Of releases ``x0``, ``x1`` (n, k) the first half fits likelihood ratios, the second tries events
    of a large one; half-lines, which need no fit, are tried on all. The event with the largest
    bound is chosen, at a hundredth of ``alpha``: among many, a small event with lucky counts must
    not win. Where two promise the same within 0.005, the earlier statistic wins, and a half-line
    before a set of intervals. At the claimed ``epsilon``, where it is given and a larger δ is
    promised, one of the nested events is picked to bound δ. Nothing is claimed for what is chosen
    until new releases are counted.
    """
    half0, half1 = len(x0) // 2, len(x1) // 2
    best: dict[int, tuple[float, Event]] = {}
    nested: tuple[float, NestedEvents] | None = None
    for statistic in statistics:
        s0, s1 = statistic.of(x0), statistic.of(x1)
        cells = cut(np.concatenate([s0[:half0], s1[:half1]]))
        if len(cells) < 2:
            continue
        ratio = _log_ratio(cells.counts(s0[:half0]), cells.counts(s1[:half1]))
        everything = cells.counts(s0), cells.counts(s1)
        counts = cells.counts(s0[half0:]), cells.counts(s1[half1:])
        lines = [np.arange(len(cells)), np.arange(len(cells))[::-1]]
        for likelier, by_ratio in (
            (1, np.argsort(-ratio, kind="stable")),
            (0, np.argsort(ratio, kind="stable")),
        ):
            clearest = int(by_ratio[0])
            for order, sample in (*((line, everything) for line in lines), (by_ratio, counts)):
                bound, end = _promise(order, sample, likelier, delta=delta, alpha=_STRICTER * alpha)
                if likelier not in best or bound > best[likelier][0] + _SIMPLER:
                    inside = np.zeros(len(cells), dtype=bool)
                    inside[order[: end + 1]] = True
                    event = Event(statistic, cells, inside, likelier, clearest=clearest)
                    best[likelier] = bound, event
        candidate = _nested(
            statistic, cells, [*lines, by_ratio[::-1]], counts, epsilon, delta, alpha
        )
        if nested is None or candidate[0] > nested[0]:
            nested = candidate
    return [chosen for _, (_, chosen) in sorted(best.items())], nested[1] if nested else None


def _nested(
    statistic: Statistic,
    cells: Cells,
    orders: Sequence[npt.NDArray[np.intp]],
    counts: tuple[Counts, Counts],
    epsilon: float | None,
    delta: float,
    alpha: float,
) -> tuple[float, NestedEvents]:
    """The order of cells that tells the neighbours apart best, and how well it does."""
    sizes = int(counts[0].sum()), int(counts[1].sum())
    best = -np.inf, orders[0]
    for order in orders:
        p0, p1 = (np.cumsum(c[order])[:-1] / n for c, n in zip(counts, sizes, strict=True))
        promise = apart(p0, p1, epsilon)
        if promise > best[0] + _SIMPLER:
            best = promise, order
    upto = [np.cumsum(c[best[1]])[:-1] for c in counts]
    widest = None if epsilon is None else _widest(upto, sizes, epsilon, delta, alpha=alpha)
    ends = _ends(upto[0] / sizes[0], upto[1] / sizes[1], widest)
    return best[0], NestedEvents(statistic, cells, best[1], ends, widest)


def apart(p0: Array, p1: Array, epsilon: float | None) -> float:
    """How well nested events of these probabilities tell the neighbours apart.

    The total variation distance that they show and, with it, δ at the claimed ``epsilon``.
    """
    distance = float((p1 - p0).max())
    return distance if epsilon is None else distance + Band(p0, p0, p1, p1).delta(epsilon)


def _log_ratio(c0: Counts, c1: Counts) -> Array:
    """Smoothed log-ratio of two histograms on the same cells."""
    first = np.log((c0 + _SMOOTH) / (c0.sum() + _SMOOTH))
    return np.asarray(np.log((c1 + _SMOOTH) / (c1.sum() + _SMOOTH)) - first)


def _promise(
    order: npt.NDArray[np.intp],
    counts: tuple[Counts, Counts],
    likelier: int,
    *,
    delta: float,
    alpha: float,
) -> tuple[float, int]:
    """The best bound that the first cells of ``order`` promise, and the last of these cells."""
    inside, outside = (np.cumsum(counts[side][order])[:-1] for side in (likelier, 1 - likelier))
    draws = int(counts[0].sum() + counts[1].sum())
    sure = inside - draws * delta / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        quick = np.log(sure / (outside + 1)) - _DEVIATIONS * np.sqrt(1 / sure + 1 / (outside + 1))
    promising = np.argsort(-np.where(sure > 0, quick, -np.inf), kind="stable")[:_MOST_TRIED]
    bounds = epsilon_bounds(
        inside[promising], outside[promising], draws=draws, delta=delta, alpha=alpha
    )
    at = int(np.argmax(bounds))
    return float(bounds[at]), int(promising[at])


def _ends(p0: Array, p1: Array, widest: Widest | None) -> npt.NDArray[np.intp]:
    """Where to cut: at equal steps of the two shares' mean log-odds, to reach both of its ends.

    And at the largest total variation distance and the widest event.
    """
    upto = ((p0 + p1) / 2).clip(1e-9, 1 - 1e-9)
    odds = np.log(upto) - np.log1p(-upto)
    levels = np.linspace(-7, 7, _GRID)
    ends = [*np.searchsorted(odds, levels), np.argmax(p1 - p0)]
    ends += [] if widest is None else [widest.end]
    return np.unique(np.clip(ends, 0, len(odds) - 1))


def _widest(
    upto: Sequence[Counts], sizes: tuple[int, int], epsilon: float, delta: float, *, alpha: float
) -> Widest | None:
    """The cut and the split that promise the largest δ at ``epsilon``; None if not above δ."""
    p0, p1 = (k / n for k, n in zip(upto, sizes, strict=True))
    s0, s1 = (np.sqrt(p * (1 - p) / n) for p, n in zip((p0, p1), sizes, strict=True))
    grow = np.exp(min(epsilon, 700.0))
    over = p1 - grow * p0 - _DEVIATIONS * (s1 + grow * s0)
    under = (1 - p0) - grow * (1 - p1) - _DEVIATIONS * (s0 + grow * s1)
    end = int(np.argmax(np.maximum(over, under)))
    (k0, k1), (n0, n1) = (int(k[end]) for k in upto), sizes
    promised = [
        one_sided(k0, n0, k1, n1, alpha=alpha, split=w).delta(epsilon) for w in _SPLITS.tolist()
    ]
    best = int(np.argmax(promised))
    return Widest(end, float(_SPLITS[best])) if promised[best] > delta else None
