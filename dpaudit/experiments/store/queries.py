"""What people ask of a store: attempts, invocations, how far it is, trials."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "Attempt",
    "Invocation",
    "Progress",
    "Rows",
    "attempts",
    "invocations",
    "progress",
    "provenances",
    "trial_columns",
    "trial_success",
    "with_start",
]


class Rows(Protocol):
    """What is asked: a :class:`~dpaudit.experiments.store.Store`."""

    def query(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """All rows of a SELECT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a cell, ``done`` or ``failed``; ``started`` and ``finished`` are UTC, None where version 1 kept none.

    ``trials`` is how many trials are stored with it.
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
    seconds: float
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
    """How many cells are done, and have failed without a success since; ``seconds`` of all attempts together."""

    done: int
    failed: int
    attempts: int
    trials: int
    seconds: float
    last: str | None


def attempts(store: Rows, *, cell: str = "") -> list[Attempt]:
    """All attempts at the cells whose id begins with ``cell``, in the order in which they ended."""
    rows = store.query(
        "SELECT a.id, cell, position, kind, status, settings, outcome, error, traceback, worker, seconds, started, finished, "
        "content, (SELECT count(*) FROM trials WHERE attempt = a.id) FROM attempts a "
        "JOIN provenance p ON p.id = a.provenance WHERE cell >= ? AND substr(cell, 1, ?) = ? ORDER BY a.id",
        (cell, len(cell), cell),
    )
    return [
        Attempt(
            number=number,
            cell=name,
            position=position,
            kind=kind,
            status=status,
            settings=json.loads(settings),
            outcome=None if outcome is None else json.loads(outcome),
            error=error,
            traceback=traceback,
            worker=worker,
            seconds=seconds,
            started=started,
            finished=finished,
            provenance=with_start(json.loads(content), started),
            trials=trials,
        )
        for (
            number,
            name,
            position,
            kind,
            status,
            settings,
            outcome,
            error,
            traceback,
            worker,
            seconds,
            started,
            finished,
            content,
            trials,
        ) in rows
    ]


def with_start(provenance: Mapping[str, Any], started: str | None) -> dict[str, Any]:
    """A provenance as it was given: what cells share, with this one's start in its place."""
    return {**provenance, "started": started} if "started" in provenance else dict(provenance)


def invocations(store: Rows) -> list[Invocation]:
    """Every start of the runner, first to last; none for what version 1 ran."""
    rows = store.query("SELECT started, command, host, process, hardware, versions FROM invocations ORDER BY id")
    return [
        Invocation(
            started=started,
            command=command,
            host=host,
            process=process,
            hardware=hardware,
            versions=json.loads(versions),
        )
        for started, command, host, process, hardware, versions in rows
    ]


def progress(store: Rows) -> Progress:
    """How far the run is."""
    ((done,),) = store.query("SELECT count(DISTINCT cell) FROM attempts WHERE status = 'done'")
    ((cells, tried, seconds, last),) = store.query(
        "SELECT count(DISTINCT cell), count(*), total(seconds), max(coalesce(finished, started)) FROM attempts"
    )
    ((trials,),) = store.query("SELECT count(*) FROM trials")
    return Progress(done=done, failed=cells - done, attempts=tried, trials=trials, seconds=seconds, last=last)


def provenances(store: Rows) -> list[dict[str, Any]]:
    """The different provenances of the run, times apart."""
    return [json.loads(row[0]) for row in store.query("SELECT content FROM provenance ORDER BY id")]


def trial_columns(store: Rows) -> dict[str, list[Any]]:
    """Every trial of every finished cell as columns: cell, trial, truth, guess, score (NaN where it is undefined)."""
    found: dict[str, list[Any]] = {"cell": [], "trial": [], "truth": [], "guess": [], "score": []}
    kept = store.query(
        "SELECT id, cell FROM attempts WHERE id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) "
        "AND id IN (SELECT DISTINCT attempt FROM trials) ORDER BY position, id"
    )
    for attempt, cell in kept:
        rows = store.query("SELECT trial, truth, guess, score FROM trials WHERE attempt = ? ORDER BY trial", (attempt,))
        numbers, truths, guesses, scores = zip(*rows, strict=True)
        found["cell"] += [cell] * len(rows)
        found["trial"] += numbers
        found["truth"] += truths
        found["guess"] += guesses
        found["score"] += [math.nan if s is None else s for s in scores]
    return found


def trial_success(store: Rows) -> dict[str, tuple[int, int]]:
    """For each finished cell with trials: how many, and in how many the guess was right."""
    rows = store.query(
        "SELECT cell, n, hits FROM attempts JOIN (SELECT attempt, count(*) AS n, sum(truth = guess) AS hits FROM trials "
        "GROUP BY attempt) t ON t.attempt = attempts.id "
        "WHERE attempts.id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) ORDER BY position"
    )
    return {cell: (n, right) for cell, n, right in rows}
