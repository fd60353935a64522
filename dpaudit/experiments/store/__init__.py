"""Finished and failed cells on disk: one append-only SQLite file per run."""

from dpaudit.experiments.store.connecting import as_written, is_running
from dpaudit.experiments.store.schema import FILE, VERSION
from dpaudit.experiments.store.store import (
    Attempt,
    Invocation,
    Progress,
    Store,
    attempts,
    invocations,
    progress,
)

__all__ = [
    "FILE",
    "VERSION",
    "Attempt",
    "Invocation",
    "Progress",
    "Store",
    "as_written",
    "attempts",
    "invocations",
    "is_running",
    "progress",
]
