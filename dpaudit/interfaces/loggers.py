"""Other tools that receive a run's results: ``dpaudit.loggers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from dpaudit.types import CellFailure, CellResult, RunStart

__all__ = ["RunLogger"]


@runtime_checkable
class RunLogger(Protocol):
    """Reports a run to another tool while it runs (``dpaudit run … --log NAME``).

    The store stays the source of truth. Called by one thread that the experiment does not wait for,
    in this order: ``start``, then ``result`` and ``failure`` as cells end, ``end`` if the run
    completes, ``close`` always. An exception is shown once and ends the logger, never the run. A
    resumed run starts a new logger with the same ``run.run_id`` and, in ``run.earlier``, what was
    finished before, of which the other tool may know all, some or nothing.
    """

    def start(self, run: RunStart) -> None:
        """The run starts or resumes."""

    def result(self, cell: CellResult) -> None:
        """A cell is finished and on disk."""

    def failure(self, cell: CellFailure) -> None:
        """A cell failed; a resumed run may retry it."""

    def end(self, document: Mapping[str, Any]) -> None:
        """The run is complete; ``document`` is ``results.json``, in the run's folder."""

    def close(self) -> None:
        """Release all resources; called last, exactly once, even if nothing was called before."""
