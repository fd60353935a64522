"""Scores that classifiers learn from releases: for events that no fixed feature shows.

Two classifiers are trained to tell the neighbours apart: gradient-boosted trees, which see
thresholds, gates and sentinel values, and a small network, which sees parities and sums. Each maps
a release to one number, its score; events are then chosen among the scores of releases that the
classifier has not seen, and counted in others, so that no bound rests on how well it was trained.

Both work on one core, in an order that the rows' places do not change: equal releases have equal
scores, and the same seed gives the same events.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from dpaudit.audit.mechanism.events import Statistic

__all__ = ["learned_scores"]

Array = npt.NDArray[np.float64]

_MOST_ROWS = 50_000
"""Releases at each neighbour that a classifier is trained on."""
_MOST_COLUMNS = 64
_ATOM = 0.01
_MOST_ATOMS = 3
"""Values of one coordinate that get a flag of their own: those that as many releases have."""
_LEAST_ROWS = 500
_ROUNDS = (10, 20, 40, 80)
_PATIENCE = 6
_EPOCHS, _WIDTH, _BATCH, _RATE = 30, 64, 256, 2e-3
_NAMED = 4


def learned_scores(
    x0: Array,
    x1: Array,
    *,
    rng: np.random.Generator,
    seconds: float,
    deadline: float = math.inf,
    least: int = _LEAST_ROWS,
) -> list[Statistic]:
    """Scores learned from releases ``x0``, ``x1`` (n, k) at the two neighbours.

    None for single numbers, where every event is a set of values and no score adds one, and for
    fewer than ``least`` releases. Training ends after ``seconds`` of this thread's own work,
    whatever else the machine does, and at ``deadline`` of ``time.monotonic``. Where one of them comes before
    its own end, the events depend on this machine's speed; the bounds hold in any case.
    """
    if x0.shape[1] < 2 or min(len(x0), len(x1)) < least:
        return []
    x0, x1 = x0[:_MOST_ROWS], x1[:_MOST_ROWS]
    columns = _columns(x0, x1)
    rows = np.concatenate([x0[:, columns], x1[:, columns]])
    labels = np.concatenate([np.zeros(len(x0)), np.ones(len(x1))])
    order = rng.permutation(len(rows))
    rows, labels = rows[order], labels[order]
    statistics: list[Statistic] = []
    with threadpool_limits(1):
        for name, train in (("small network", _network), ("boosted trees", _trees)):
            if seconds > 0 and time.monotonic() < deadline:
                budget = _Budget(time.thread_time() + seconds / 2, deadline)
                score = train(rows, labels, int(rng.integers(2**31)), budget)
                statistics.append(_named(name, score, columns, rows, labels, rng))
    return statistics


@dataclass(frozen=True)
class _Budget:
    """When training must end: this thread's own time, and the time of the day."""

    work: float
    deadline: float

    @property
    def spent(self) -> bool:
        return time.thread_time() > self.work or time.monotonic() > self.deadline


def _columns(x0: Array, x1: Array) -> npt.NDArray[np.intp]:
    """The coordinates to learn from: all, or those whose mean and spread differ most."""
    if x0.shape[1] <= _MOST_COLUMNS:
        return np.arange(x0.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(x0.var(axis=0) + x1.var(axis=0)) + 1e-300
        differ = np.abs(x1.mean(axis=0) - x0.mean(axis=0)) / spread
        differ += np.abs(np.log((x1.std(axis=0) + 1e-300) / (x0.std(axis=0) + 1e-300)))
    return np.sort(np.argsort(-np.nan_to_num(differ), kind="stable")[:_MOST_COLUMNS])


def _trees(rows: Array, labels: Array, seed: int, budget: _Budget) -> Callable[[Array], Array]:
    """Log-odds by gradient-boosted trees, grown while a tenth of the rows is told apart better."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    validation = len(rows) // 10
    model = HistGradientBoostingClassifier(
        max_iter=1,
        max_leaf_nodes=31,
        min_samples_leaf=40,
        early_stopping=False,
        warm_start=True,
        random_state=seed,
    )
    best = np.inf
    for rounds in _ROUNDS:  # few: each start sorts all rows anew
        model.set_params(max_iter=rounds)
        model.fit(rows[validation:], labels[validation:])
        loss = _loss(np.asarray(model.decision_function(rows[:validation])), labels[:validation])
        if loss >= best or budget.spent:
            break
        best = loss
    return lambda x: np.asarray(model.decision_function(x) if len(x) else [], np.float64)


def _loss(scores: Array, labels: Array) -> float:
    return float(np.logaddexp(0, np.where(labels == 1, -scores, scores)).mean())


@dataclass(frozen=True)
class _Inputs:
    """How a release becomes a network's input: scaled numbers, and flags of frequent values."""

    middle: Array
    scale: Array
    atoms: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, rows: Array) -> _Inputs:
        atoms = [
            (column, float(value))
            for column in range(rows.shape[1])
            for value in _frequent(rows[:, column])
        ]
        low, middle, high = np.array(
            [_quantiles(rows[:, j], atoms, j) for j in range(len(rows.T))]
        ).T
        return cls(middle, np.where(high > low, (high - low) / 2, 1.0), tuple(atoms))

    def __call__(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.nan_to_num(np.clip((x - self.middle) / self.scale, -8, 8))
        flags = [x[:, column] == value for column, value in self.atoms]
        return np.column_stack([numbers, *flags]).astype(np.float64)


def _quantiles(values: Array, atoms: list[tuple[int, float]], column: int) -> Array:
    """Tenth, half and nine tenths of the values that have no flag; zeros without any."""
    plain = values[~np.isin(values, [value for j, value in atoms if j == column])]
    return np.quantile(plain, [0.1, 0.5, 0.9]) if len(plain) else np.zeros(3)


def _frequent(values: Array) -> Array:
    distinct, counts = np.unique(values, return_counts=True)
    many = counts >= _ATOM * len(values)
    return np.asarray(distinct[many][np.argsort(-counts[many], kind="stable")][:_MOST_ATOMS])


def _network(rows: Array, labels: Array, seed: int, budget: _Budget) -> Callable[[Array], Array]:
    """Log-odds by a network of two hidden layers, kept at its best on a tenth of the rows."""
    from sklearn.neural_network import MLPClassifier

    log_odds = _compiled()
    inputs, validation = _Inputs.of(rows), len(rows) // 10
    features = inputs(rows)
    model = MLPClassifier(
        (_WIDTH, _WIDTH),
        batch_size=min(_BATCH, len(rows) - validation),
        learning_rate_init=_RATE,
        random_state=seed,
    )
    best, since = np.inf, 0
    layers: list[Array] = []
    for _ in range(_EPOCHS):
        model.partial_fit(features[validation:], labels[validation:], classes=[0.0, 1.0])
        now = [a.copy() for pair in zip(model.coefs_, model.intercepts_, strict=True) for a in pair]
        loss = _loss(log_odds(features[:validation], *now), labels[:validation])
        if loss < best:
            best, since, layers = loss, 0, now
        else:
            since += 1
        if since == _PATIENCE or budget.spent:
            break
    return lambda x: log_odds(inputs(x), *layers)


@functools.cache
def _compiled() -> Callable[..., Array]:
    import numba  # only where a network is trained

    compiled: Callable[..., Array] = numba.njit(nogil=True, cache=True)(_log_odds)
    return compiled


def _log_odds(x, w0, b0, w1, b1, w2, b2):  # type: ignore[no-untyped-def]
    """Log-odds (n,) of inputs ``x`` (n, k) by a network of two hidden layers with ReLU.

    Row by row: a product of matrices would round a row by its place among others.
    """
    n, k = x.shape
    first, second, out = np.empty(len(b0)), np.empty(len(b1)), np.empty(n)
    for i in range(n):
        first[:] = b0
        for j in range(k):
            if x[i, j] != 0.0:
                for h in range(len(b0)):
                    first[h] += x[i, j] * w0[j, h]
        second[:] = b1
        for j in range(len(b0)):
            if first[j] > 0.0:
                for h in range(len(b1)):
                    second[h] += first[j] * w1[j, h]
        total = b2[0]
        for h in range(len(b1)):
            if second[h] > 0.0:
                total += second[h] * w2[h, 0]
        out[i] = total
    return out


def _named(
    name: str,
    score: Callable[[Array], Array],
    columns: npt.NDArray[np.intp],
    rows: Array,
    labels: Array,
    rng: np.random.Generator,
) -> Statistic:
    """The score as a statistic of whole releases, with the coordinates that it rests on."""
    some = slice(0, 4000)
    base = _loss(score(rows[some]), labels[some])
    losses = []
    for column in range(rows.shape[1]):
        shuffled = rows[some].copy()
        shuffled[:, column] = rng.permutation(shuffled[:, column])
        losses.append(_loss(score(shuffled), labels[some]) - base)
    order = np.argsort(-np.asarray(losses), kind="stable")
    leading = [int(j) for j in order[:_NAMED] if losses[j] > 0.05 * losses[order[0]] > 0]
    importance = {f"x[{columns[j]}]": round(float(losses[j]), 6) for j in leading}
    mostly = f" (mostly of {', '.join(importance)})" if importance else ""
    return Statistic(
        f"score of {name}{mostly}",
        lambda x: score(x if len(columns) == x.shape[1] else x[:, columns]),
        {"classifier": name, "importance": importance},
    )
