"""What people ask of a store: attempts, invocations, how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpaudit.experiments.store.rows import Seconds
from dpaudit.experiments.store.store import Store

__all__ = [
    "Attempt",
    "Invocation",
    "Progress",
    "attempts",
    "invocations",
    "progress",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a cell, ``done`` or ``failed``; ``started`` and ``finished`` are UTC."""

    number: int
    cell: str
    position: int
    kind: str
    status: str
    settings: Mapping[str, Any]
    outcome: Mapping[str, Any] | None
    error: str | None
    traceback: str | None
    seconds: Seconds
    started: str | None
    finished: str
    provenance: Mapping[str, Any]


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
    seconds: Seconds
    last: str | None


def attempts(store: Store, *, cell: str = "") -> list[Attempt]:
    """All attempts at the cells whose id begins with ``cell``, in the order in which they ended."""
    return store.rows(
        Attempt,
        "SELECT id AS number, cell, position, kind, status, settings, outcome, error, traceback, "
        "seconds, started, finished, provenance FROM attempts "
        "WHERE cell >= ? AND substr(cell, 1, ?) = ? ORDER BY id",
        (cell, len(cell), cell),
    )


def invocations(store: Store) -> list[Invocation]:
    """Every start of the runner, first to last."""
    return store.rows(
        Invocation,
        "SELECT started, command, host, process, hardware, versions FROM invocations ORDER BY id",
    )


def progress(store: Store) -> Progress:
    """How far the run is."""
    (far,) = store.rows(
        Progress,
        "SELECT done, cells - done AS failed, attempts, seconds, last FROM "
        "(SELECT count(DISTINCT cell) AS cells, "
        "count(DISTINCT CASE status WHEN 'done' THEN cell END) AS done, count(*) AS attempts, "
        "total(seconds) AS seconds, max(finished) AS last FROM attempts)",
    )
    return far
