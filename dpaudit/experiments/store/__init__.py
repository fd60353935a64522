"""Finished and failed cells on disk: one append-only SQLite file per run."""

from dpaudit.experiments.store.connecting import as_written, is_running
from dpaudit.experiments.store.queries import Attempt, Invocation, Progress
from dpaudit.experiments.store.schema import FILE, VERSION
from dpaudit.experiments.store.store import Store

__all__ = [
    "FILE",
    "VERSION",
    "Attempt",
    "Invocation",
    "Progress",
    "Store",
    "as_written",
    "is_running",
]
