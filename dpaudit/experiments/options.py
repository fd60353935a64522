"""How a run is done; nothing here changes a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit.experiments.cell import Cell
from dpaudit.types import CellFailure, CellResult

if TYPE_CHECKING:
    from dpaudit.experiments.placement import Placement
    from dpaudit.experiments.store import Store

__all__ = ["OnCell", "OnOpen", "OnResult", "RunOptions"]

OnCell = Callable[[Cell], None]
OnResult = Callable[[CellResult | CellFailure], None]
OnOpen = Callable[["Store"], None]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of :func:`~dpaudit.experiments.run_experiment`, as one value.

    Attributes:
        out: the run's folder.
        resume: whether ``out`` may hold the beginning of this run.
        where: ``local``, a Dask scheduler's address, or a placement
            (:func:`~dpaudit.experiments.placement.place`).
        jobs: processes on this machine, or ``all``; with ``local`` only.
        command: what the user typed, kept with the run.
        on_open: called with the store, first.
        on_start: called with a cell when a worker can have it.
        on_done: called with a cell when its outcome is on disk, also from an earlier start.
        on_result: called with that outcome.
    """

    out: Path
    resume: bool = False
    where: str | Placement = "local"
    jobs: int | str = 1
    command: str = ""
    on_open: OnOpen | None = None
    on_start: OnCell | None = None
    on_done: OnCell | None = None
    on_result: OnResult | None = None
