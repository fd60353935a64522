"""What people ask of a store: attempts, invocations, how far it is, trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from dpaudit.experiments.store.rows import Seconds
from dpaudit.experiments.store.schema import TRIAL_COLUMNS
from dpaudit.experiments.store.store import Store

__all__ = [
    "Attempt",
    "Invocation",
    "Progress",
    "attempts",
    "invocations",
    "progress",
    "provenances",
    "trial_columns",
    "trial_success",
    "trials_by_cell",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a cell, ``done`` or ``failed``, with the number of its stored ``trials``.

    ``started`` and ``finished`` are UTC, None in stores of version 1, which kept none.
    """

    number: int
    cell: str
    position: int
    kind: str
    status: str
    settings: Mapping[str, Any]
    outcome: Mapping[str, Any] | None
    error: str | None
    traceback: str | None
    worker: str
    seconds: Seconds
    started: str | None
    finished: str | None
    provenance: Mapping[str, Any]
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One start of the runner on this folder."""

    started: str
    command: str
    host: str
    process: int
    hardware: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many cells are done, and how many only failed; ``seconds`` are of all attempts."""

    done: int
    failed: int
    attempts: int
    trials: int
    seconds: float
    last: str | None


class _Far(Struct, frozen=True):
    cells: int
    attempts: int
    seconds: Seconds
    last: str | None


class _Number(Struct, frozen=True):
    number: int


class _Content(Struct, frozen=True):
    provenance: Mapping[str, Any]


class _Counted(Struct, frozen=True):
    cell: str
    trials: int
    right: int


class _Kept(Struct, frozen=True):
    cell: str
    number: int


class _Trial(Struct, frozen=True):
    trial: int
    truth: int
    guess: int
    score: float | None


def attempts(store: Store, *, cell: str = "") -> list[Attempt]:
    """All attempts at the cells whose id begins with ``cell``, in the order in which they ended."""
    return store.rows(
        Attempt,
        "SELECT id AS number, cell, position, kind, status, settings, outcome, error, traceback, "
        "worker, seconds, started, finished, provenance, "
        "(SELECT count(*) FROM trials WHERE attempt = attempts.id) AS trials FROM attempts "
        "WHERE cell >= ? AND substr(cell, 1, ?) = ? ORDER BY id",
        (cell, len(cell), cell),
    )


def invocations(store: Store) -> list[Invocation]:
    """Every start of the runner, first to last; none for what version 1 ran."""
    return store.rows(
        Invocation,
        "SELECT started, command, host, process, hardware, versions FROM invocations ORDER BY id",
    )


def progress(store: Store) -> Progress:
    """How far the run is."""
    (done,) = store.rows(
        _Number, "SELECT count(DISTINCT cell) AS number FROM attempts WHERE status = 'done'"
    )
    (far,) = store.rows(
        _Far,
        "SELECT count(DISTINCT cell) AS cells, count(*) AS attempts, total(seconds) AS seconds, "
        "max(coalesce(finished, started)) AS last FROM attempts",
    )
    (kept,) = store.rows(_Number, "SELECT count(*) AS number FROM trials")
    return Progress(
        done=done.number,
        failed=far.cells - done.number,
        attempts=far.attempts,
        trials=kept.number,
        seconds=far.seconds,
        last=far.last,
    )


def provenances(store: Store) -> list[Mapping[str, Any]]:
    """The different provenances of the run, without their times."""
    rows = store.rows(
        _Content, "SELECT id AS provenance, NULL AS started FROM provenance ORDER BY id"
    )
    return [row.provenance for row in rows]


def trial_columns(store: Store) -> dict[str, list[Any]]:
    """Every trial of every finished cell as columns: cell, trial, truth, guess, score.

    An undefined score is NaN.
    """
    found: dict[str, list[Any]] = {"cell": [], "trial": [], "truth": [], "guess": [], "score": []}
    for attempt in _kept(store):
        trials = _trials(store, attempt.number)
        found["cell"] += [attempt.cell] * len(trials["trial"])
        for name, column in trials.items():
            found[name] += column
    return found


def trials_by_cell(store: Store) -> Callable[[str], dict[str, list[Any]]]:
    """What gives a finished cell's truth, guess and score; of one without trials, nothing."""
    numbers = {attempt.cell: attempt.number for attempt in _kept(store)}

    def trials(cell: str) -> dict[str, list[Any]]:
        if cell not in numbers:
            return {}
        columns = _trials(store, numbers[cell])
        return {name: columns[name] for name in TRIAL_COLUMNS}

    return trials


def _kept(store: Store) -> list[_Kept]:
    """The attempts that count and have trials, in the experiment's order."""
    return store.rows(
        _Kept,
        "SELECT cell, id AS number FROM attempts "
        "WHERE id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) "
        "AND id IN (SELECT DISTINCT attempt FROM trials) ORDER BY position, id",
    )


def _trials(store: Store, attempt: int) -> dict[str, list[Any]]:
    sql = "SELECT trial, truth, guess, score FROM trials WHERE attempt = ? ORDER BY trial"
    rows = store.rows(_Trial, sql, (attempt,))
    found = {name: [getattr(row, name) for row in rows] for name in ("trial", "truth", "guess")}
    return {**found, "score": [math.nan if row.score is None else row.score for row in rows]}


def trial_success(store: Store) -> dict[str, tuple[int, int]]:
    """For each finished cell with trials: how many, and in how many the guess was right."""
    rows = store.rows(
        _Counted,
        "SELECT cell, n AS trials, hits AS right FROM attempts "
        "JOIN (SELECT attempt, count(*) AS n, sum(truth = guess) AS hits FROM trials "
        "GROUP BY attempt) t ON t.attempt = attempts.id "
        "WHERE attempts.id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) "
        "ORDER BY position",
    )
    return {row.cell: (row.trials, row.right) for row in rows}
