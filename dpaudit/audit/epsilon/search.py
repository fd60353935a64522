"""Which events to look at: learned and chosen from the first half of the releases only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpaudit.audit.epsilon.cells import Cells, cut, intervals
from dpaudit.audit.epsilon.event import epsilon_bounds
from dpaudit.audit.epsilon.statistics import Statistic

__all__ = ["Chosen", "Nested", "choose"]

_MOST_TRIED = 8
_DEVIATIONS = 3.5
"""For a first look by the normal approximation; the exact bound is taken of the best few."""
_SMOOTH = 2.0
_STRICTER = 0.01
_GRID = 24
"""Events of the trade-off curve."""

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Chosen:
    """An event: the statistic falls in the chosen cells. ``likelier`` is the neighbour (0 or 1) it speaks for."""

    statistic: Statistic
    cells: Cells
    inside: npt.NDArray[np.bool_]
    likelier: int
    says: str = ""
    """In words, where it has some of its own."""
    telling: int = -1
    """The cell with the largest likelihood ratio, where cells were chosen by it."""

    def counts(self, x0: Array, x1: Array) -> tuple[int, int]:
        """How often it happens in releases (n, k): at the likelier neighbour, at the other."""
        found = [int(self.cells.counts(self.statistic.of(x))[self.inside].sum()) for x in (x0, x1)]
        return found[self.likelier], found[1 - self.likelier]

    def intervals(self) -> list[tuple[float, float]]:
        """The statistic's values that make up the event, as [from, to)."""
        return intervals(self.cells, self.inside)

    def __str__(self) -> str:
        if self.says:
            return self.says
        pieces = self.intervals()
        if len(pieces) > 3:
            edges = np.concatenate([[-np.inf], self.cells.edges, [np.inf]])
            example = f", most of all {_piece(*edges[self.telling : self.telling + 2])}" if self.telling >= 0 else ""
            return (
                f"{self.statistic.says} in {len(pieces):,} learned intervals from {_least(pieces[0][0])} to "
                f"{_most(pieces[-1][1])}{example} (all in details)"
            )
        return f"{self.statistic.says} " + " or ".join(_piece(a, b) for a, b in pieces)


def _piece(start: float, end: float) -> str:
    """One [start, end) in words; an atom is a single value, and an end next to an atom is told by the atom."""
    if end == np.nextafter(start, np.inf):
        return f"= {start:.6g}"
    if start == -np.inf:
        return f"≤ {_before(end):.6g}" if _next_to_atom(end) else f"< {end:.6g}"
    if end == np.inf:
        return f"> {_before(start):.6g}" if _next_to_atom(start) else f"≥ {start:.6g}"
    left = f"({_before(start):.6g}" if _next_to_atom(start) else f"[{start:.6g}"
    return f"in {left}, {_before(end):.6g}]" if _next_to_atom(end) else f"in {left}, {end:.6g})"


def _least(start: float) -> str:
    return "−∞" if start == -np.inf else f"{_before(start) if _next_to_atom(start) else start:.6g}"


def _most(end: float) -> str:
    return "∞" if end == np.inf else f"{_before(end) if _next_to_atom(end) else end:.6g}"


def _before(edge: float) -> float:
    return float(np.nextafter(edge, -np.inf))


def _next_to_atom(edge: float) -> bool:
    """Whether an edge is the float after a rounder number, as the upper edge of an atom's cell is."""
    return len(repr(_before(edge))) < len(repr(float(edge)))


@dataclass(frozen=True)
class Nested:
    """Nested events for a trade-off curve: the cells of a statistic by their likelihood ratio, cut at some places."""

    statistic: Statistic
    cells: Cells
    order: npt.NDArray[np.intp]
    ends: npt.NDArray[np.intp]

    def counts(self, x0: Array, x1: Array) -> tuple[Counts, Counts]:
        """How often each event happens at neighbour 0 and at neighbour 1, shape (events,) each."""
        found = [np.cumsum(self.cells.counts(self.statistic.of(x))[self.order]) for x in (x0, x1)]
        return found[0][self.ends], found[1][self.ends]


def choose(
    statistics: Sequence[Statistic], x0: Array, x1: Array, *, delta: float, alpha: float
) -> tuple[list[Chosen], Nested | None]:
    """The most promising event in favour of each neighbour, and nested ones for the curve.

    Releases ``x0``, ``x1`` (n, k): the first half of them fits likelihood ratios, the second tries events of a large
    one; half-lines, which need no fit, are tried on all. The event with the largest bound is chosen, at a hundredth of
    ``alpha``: among many, a small event with lucky counts must not win. Nothing is claimed for what is chosen until new
    releases are counted.
    """
    half0, half1 = len(x0) // 2, len(x1) // 2
    best: dict[int, tuple[float, Chosen]] = {}
    nested: tuple[float, Nested] | None = None
    for statistic in statistics:
        s0, s1 = statistic.of(x0), statistic.of(x1)
        cells = cut(np.concatenate([s0[:half0], s1[:half1]]))
        if len(cells) < 2:
            continue
        ratio = _log_ratio(cells.counts(s0[:half0]), cells.counts(s1[:half1]))
        everything = cells.counts(s0), cells.counts(s1)
        counts = cells.counts(s0[half0:]), cells.counts(s1[half1:])
        shares = counts[0] / (len(s0) - half0), counts[1] / (len(s1) - half1)
        lines = [np.arange(len(cells)), np.arange(len(cells))[::-1]]
        for likelier, by_ratio in ((1, np.argsort(-ratio, kind="stable")), (0, np.argsort(ratio, kind="stable"))):
            telling = int(by_ratio[0])
            for order, seen in ((by_ratio, counts), *((line, everything) for line in lines)):
                bound, end = _promise(order, seen, likelier, delta=delta, alpha=_STRICTER * alpha)
                if likelier not in best or bound > best[likelier][0]:
                    inside = np.zeros(len(cells), dtype=bool)
                    inside[order[: end + 1]] = True
                    best[likelier] = bound, Chosen(statistic, cells, inside, likelier, telling=telling)
        promise = _gap(shares)
        if nested is None or promise > nested[0]:
            order = np.argsort(-ratio, kind="stable")
            nested = promise, Nested(statistic, cells, order, _ends(shares, order))
    return [chosen for _, (_, chosen) in sorted(best.items())], nested[1] if nested else None


def _gap(shares: tuple[Array, Array]) -> float:
    """Total variation between two histograms."""
    return float(np.abs(shares[1] - shares[0]).sum()) / 2


def _log_ratio(c0: Counts, c1: Counts) -> Array:
    """Smoothed log-ratio of two histograms on the same cells."""
    return np.asarray(np.log((c1 + _SMOOTH) / (c1.sum() + _SMOOTH)) - np.log((c0 + _SMOOTH) / (c0.sum() + _SMOOTH)))


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
    left = inside - draws * delta / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        quick = np.log(left / (outside + 1)) - _DEVIATIONS * np.sqrt(1 / left + 1 / (outside + 1))
    promising = np.argsort(-np.where(left > 0, quick, -np.inf), kind="stable")[:_MOST_TRIED]
    bounds = epsilon_bounds(inside[promising], outside[promising], draws=draws, delta=delta, alpha=alpha)
    at = int(np.argmax(bounds))
    return float(bounds[at]), int(promising[at])


def _ends(shares: tuple[Array, Array], order: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Where to cut: at equal steps of the two shares' mean log-odds, so that both ends of the curve are seen."""
    upto = np.cumsum((shares[0] + shares[1])[order] / 2)[:-1].clip(1e-9, 1 - 1e-9)
    odds = np.log(upto) - np.log1p(-upto)
    levels = np.linspace(-7, 7, _GRID)
    return np.unique(np.searchsorted(odds, levels).clip(0, len(odds) - 1))
