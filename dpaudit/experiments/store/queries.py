"""What people ask of a store: attempts, invocations, how far it is, trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
]


class Rows(Protocol):
    """What is asked: a :class:`~dpaudit.experiments.store.Store`."""

    def rows(self, sql: str, names: Sequence[str], parameters: Any = ()) -> list[dict[str, Any]]:
        """The rows of a SELECT by the names of its columns, JSON read."""


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
    rows = store.rows(
        "SELECT id, cell, position, kind, status, settings, outcome, error, traceback, worker, seconds, started, finished, "
        "provenance, (SELECT count(*) FROM trials WHERE attempt = attempts.id) FROM attempts "
        "WHERE cell >= ? AND substr(cell, 1, ?) = ? ORDER BY id",
        (
            *(
                "number",
                "cell",
                "position",
                "kind",
                "status",
                "settings",
                "outcome?",
                "error?",
                "traceback?",
                "worker",
            ),
            *("seconds", "started?", "finished?", "provenance", "trials"),
        ),
        (cell, len(cell), cell),
    )
    return [Attempt(**row) for row in rows]


def invocations(store: Rows) -> list[Invocation]:
    """Every start of the runner, first to last; none for what version 1 ran."""
    rows = store.rows(
        "SELECT started, command, host, process, hardware, versions FROM invocations ORDER BY id",
        ("started", "command", "host", "process", "hardware", "versions"),
    )
    return [Invocation(**row) for row in rows]


def progress(store: Rows) -> Progress:
    """How far the run is."""
    (done,) = store.rows(
        "SELECT count(DISTINCT cell) FROM attempts WHERE status = 'done'", ("done",)
    )
    (far,) = store.rows(
        "SELECT count(DISTINCT cell), count(*), total(seconds), max(coalesce(finished, started)) FROM attempts",
        ("cells", "number", "seconds", "last?"),
    )
    (kept,) = store.rows("SELECT count(*) FROM trials", ("trials",))
    return Progress(
        done=done["done"],
        failed=far["cells"] - done["done"],
        attempts=far["number"],
        trials=kept["trials"],
        seconds=far["seconds"],
        last=far["last"],
    )


def provenances(store: Rows) -> list[dict[str, Any]]:
    """The different provenances of the run, times apart."""
    return [
        row["content"]
        for row in store.rows("SELECT content FROM provenance ORDER BY id", ("content",))
    ]


def trial_columns(store: Rows) -> dict[str, list[Any]]:
    """Every trial of every finished cell as columns: cell, trial, truth, guess, score (NaN where it is undefined)."""
    found: dict[str, list[Any]] = {"cell": [], "trial": [], "truth": [], "guess": [], "score": []}
    kept = store.rows(
        "SELECT id, cell FROM attempts WHERE id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) "
        "AND id IN (SELECT DISTINCT attempt FROM trials) ORDER BY position, id",
        ("number", "cell"),
    )
    sql, names = (
        "SELECT trial, truth, guess, score FROM trials WHERE attempt = ? ORDER BY trial",
        tuple(found)[1:],
    )
    for attempt in kept:
        for row in store.rows(sql, ("trial", "truth", "guess", "score?"), (attempt["number"],)):
            found["cell"].append(attempt["cell"])
            for name in names:
                found[name].append(math.nan if row[name] is None else row[name])
    return found


def trial_success(store: Rows) -> dict[str, tuple[int, int]]:
    """For each finished cell with trials: how many, and in how many the guess was right."""
    rows = store.rows(
        "SELECT cell, n, hits FROM attempts JOIN (SELECT attempt, count(*) AS n, sum(truth = guess) AS hits FROM trials "
        "GROUP BY attempt) t ON t.attempt = attempts.id "
        "WHERE attempts.id IN (SELECT min(id) FROM attempts WHERE status = 'done' GROUP BY cell) ORDER BY position",
        ("cell", "trials", "number"),
    )
    return {row["cell"]: (row["trials"], row["number"]) for row in rows}
