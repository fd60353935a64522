"""Other tools that are told of a run: ``dpaudit.loggers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from dpaudit.types import CellFailure, CellResult, RunStart

__all__ = ["RunLogger"]


@runtime_checkable
class RunLogger(Protocol):
    """Tells another tool of a run while it goes on (``dpaudit run … --log NAME``); the store stays the truth.

    Called in this order by one thread that the experiment does not wait for: ``start``, then
    ``result`` and ``failure`` in the order in which cells end, ``end`` if the run came to its end,
    ``close`` always. What it raises is shown once and ends its part, never the run. A run that is
    resumed starts a new logger with the same ``run.run_id`` and, in ``run.earlier``, what was
    finished before, of which it may know all, some or nothing.
    """

    def start(self, run: RunStart) -> None:
        """The run begins, or goes on."""

    def result(self, cell: CellResult) -> None:
        """A cell is done, and on disk."""

    def failure(self, cell: CellFailure) -> None:
        """A cell failed; it may be tried again when the run is resumed."""

    def end(self, document: Mapping[str, Any]) -> None:
        """All is done; ``document`` is ``results.json``, which lies in the run's folder, with ``report.html``."""

    def close(self) -> None:
        """Let go of everything; called last, once, whatever happened before, also if that was nothing."""
