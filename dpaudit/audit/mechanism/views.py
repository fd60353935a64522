"""What releases so far suggest to look at in the next ones: statistics, and cells of their values.

Nothing here needs to be right for a bet to be fair; it only decides how fast a capital grows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpaudit.audit.betting.releases import View
from dpaudit.audit.mechanism.events import Cells, Statistic, coarse_statistics, low_bit_statistics
from dpaudit.audit.mechanism.learned_scores import learned_scores

__all__ = ["Learner"]

Array = npt.NDArray[np.float64]
Fit = Callable[[Array, Array], list[Statistic]]

_CELLS = (4, 16, 64)
_PER_CELL = 12
_ATOM = 4
"""A value seen so often is a cell of its own."""
_MOST_ATOMS = 64
_MOST_COLUMNS = 64
_HALVINGS = 20
"""Of the tails of the finest cells."""
_BINS = 8
_LEAST_SCORES = 150
_SCORES_AGAIN = 1.6


@dataclass
class Learner:
    """Makes views of releases (n, k) made at ``neighbours``, two query results (m,).

    Simple statistics at every call; scores of classifiers whenever there are 1.6 times as many
    releases as when they were last trained, in at most ``seconds`` of work altogether. Without
    ``low_bits`` the last bits of a release are not looked at, nor ``more``, a caller's statistics.
    """

    rng: np.random.Generator
    neighbours: tuple[Array, Array]
    low_bits: bool = True
    more: Fit | None = None
    seconds: float = 60.0
    _scores: list[tuple[str, Statistic, list[Array]]] = field(default_factory=list)
    _train_at: float = 2 * _LEAST_SCORES

    def __call__(self, x0: Array, x1: Array) -> list[View]:
        """Views learned from releases (n, k) at each neighbour."""
        x = np.concatenate([x0, x1])
        n, k = x.shape
        seen = [(s.name, s, s.of(x)) for s in coarse_statistics(x0, x1, self.rng)]
        scores: list[tuple[str, Statistic, Array]] = []
        if k > 1:
            fitted = [entry for entry in seen if "discriminant" in entry[0]]
            seen = [entry for entry in seen if "discriminant" not in entry[0]]
            whole = [statistic for _, statistic, _ in fitted]
            seen += _out_of_fold(_discriminants(len(fitted)), x0, x1, whole=whole)
            if k <= _MOST_COLUMNS:
                seen += _out_of_fold(_one_by_one, x0, x1)
                scores = self._classifiers(x0, x1)
        bits = []
        if self.low_bits and any(len(np.unique(x[:, j])) > n / 4 for j in range(k)):
            statistics = low_bit_statistics(x0, x1, *self.neighbours)
            statistics += [] if self.more is None else self.more(x0, x1)
            bits = [(s.name, s, s.of(x)) for s in statistics]
        sides = np.repeat([False, True], [len(x0), len(x1)])
        views = []
        for kind, entries in (("event", seen), ("learned score", scores), ("low bits", bits)):
            for name, statistic, values in entries:
                views += _views(name, statistic, values, sides, kind)
        return views

    def _classifiers(self, x0: Array, x1: Array) -> list[tuple[str, Statistic, Array]]:
        """Scores with their values: of releases since the training by the whole classifier."""
        n = len(x0) + len(x1)
        if n >= self._train_at and self.seconds > 0:
            began = time.thread_time()
            self._scores = [
                (name, statistic, np.split(values, [len(x0)]))
                for name, statistic, values in _out_of_fold(self._train, x0, x1)
            ]
            self._train_at = _SCORES_AGAIN * n
            self.seconds -= time.thread_time() - began
        for _, statistic, known in self._scores:
            for i, x in enumerate((x0, x1)):
                known[i] = np.append(known[i], statistic.of(x[len(known[i]) :]))
        return [(name, s, np.concatenate(values)) for name, s, values in self._scores]

    def _train(self, x0: Array, x1: Array) -> list[Statistic]:
        return learned_scores(x0, x1, rng=self.rng, seconds=self.seconds, least=_LEAST_SCORES // 4)


def _discriminants(count: int) -> Fit:
    def fit(x0: Array, x1: Array) -> list[Statistic]:
        rng = np.random.default_rng(0)  # of the last statistic, which is not used
        return coarse_statistics(x0, x1, rng)[-1 - count : -1]

    return fit


def _out_of_fold(
    fit: Fit, x0: Array, x1: Array, *, whole: Sequence[Statistic] | None = None
) -> list[tuple[str, Statistic, Array]]:
    """Statistics fitted to all releases (``whole``); their values by those of the other half."""
    whole = fit(x0, x1) if whole is None else whole
    halves = [fit(x0[i::2], x1[i::2]) for i in (0, 1)]
    entries = []
    for i, statistic in enumerate(whole):
        values = []
        for x in (x0, x1):
            held = np.empty(len(x))
            for j in (0, 1):
                held[j::2] = halves[1 - j][i].of(x[j::2])
            values.append(held)
        entries.append((statistic.name.split(" (")[0], statistic, np.concatenate(values)))
    return entries


def _one_by_one(x0: Array, x1: Array) -> list[Statistic]:
    """The log-ratio of releases whose coordinates were independent, each in a few bins."""
    edges, tables = [], []
    for a, b in zip(x0.T, x1.T, strict=True):
        edge = _cut(np.concatenate([a, b]), _BINS)
        counts = [1.0 + Cells(edge).counts(v) for v in (a, b)]
        p0, p1 = (c / c.sum() for c in counts)
        edges.append(edge)
        tables.append(np.log(p1 / p0))

    def of(x: Array) -> Array:
        total = np.zeros(len(x))
        for j, (edge, table) in enumerate(zip(edges, tables, strict=True)):
            total += table[np.searchsorted(edge, x[:, j], side="right")]
        return total

    return [Statistic("one by one", of)]


def _views(
    name: str, statistic: Statistic, values: Array, sides: npt.NDArray[np.bool_], kind: str
) -> list[View]:
    """One view for each number of cells."""
    views: list[View] = []
    seen: set[bytes] = set()
    for most in _CELLS:
        edges = _cut(values, min(most, max(2, len(values) // _PER_CELL)))
        if edges.tobytes() not in seen:
            seen.add(edges.tobytes())
            view = View(f"{name}/{most}", statistic.of, edges, kind)
            view.counts = view.tally(values, sides)
            views.append(view)
    return views


def _cut(values: Array, cells: int) -> Array:
    """Edges of about ``cells`` equally likely cells, a cell for each frequent value.

    The finest have ever rarer cells in both tails, down to eight values.
    """
    distinct, times = np.unique(values, return_counts=True)
    often = times >= max(_ATOM, len(values) / 500)
    if np.count_nonzero(often) > _MOST_ATOMS:
        often &= times >= np.sort(times)[-_MOST_ATOMS]
    atoms = distinct[often]
    rest = np.repeat(distinct[~often], times[~often])
    if len(rest):
        at = np.linspace(0, 1, cells + 1)[1:-1]
        if cells >= _CELLS[-1]:  # rare releases tell most
            tail = 2 * _ATOM * 2.0 ** np.arange(_HALVINGS) / len(rest)
            tail = tail[tail < at[0] / 1.5]
            at = np.sort(np.concatenate([tail, at, 1 - tail]))
        rest = np.quantile(rest, at)
    return np.unique(np.concatenate([rest, atoms, np.nextafter(atoms, np.inf)]))
