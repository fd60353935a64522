"""Every run below a folder, in a line each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpaudit.errors import StoreError, UsageError
from dpaudit.experiments.spec import Spec
from dpaudit.experiments.store import FILE, Store, is_running
from dpaudit.experiments.store.queries import invocations, progress, provenances

__all__ = ["Overview", "cells_of", "look_at", "overviews"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run from outside; ``problem`` is why a store cannot be read (then nothing else is known).

    ``cells`` is how many it will have (None if this dpaudit cannot tell), ``seconds`` what all attempts took together,
    ``started`` and ``last`` are UTC; ``running`` whether a process on this machine has it open now.
    """

    folder: str
    name: str = ""
    done: int = 0
    failed: int = 0
    cells: int | None = None
    trials_kept: int = 0
    running: bool = False
    started: str | None = None
    last: str | None = None
    seconds: float = 0.0
    host: str = ""
    version: str = ""
    problem: str = ""


def overviews(folder: Path) -> list[Overview]:
    """The runs in ``folder`` and below, by path; those that cannot be read say why.

    Raises:
        UsageError: no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"dir={folder}: no such folder; give one that holds runs, such as runs")
    places = sorted(Path(place) for place, _, files in os.walk(folder) if FILE in files)
    return [look_at(place) for place in places]


def look_at(folder: Path) -> Overview:
    """One run."""
    try:
        with Store.read(folder) as store:
            spec, far, starts = store.spec, progress(store), invocations(store)
            cells = cells_of(spec) if store.cells is None else store.cells
            versions = [p["versions"].get("dpaudit") for p in provenances(store) if "versions" in p]
    except (StoreError, ValueError, KeyError, TypeError) as error:
        return Overview(folder=str(folder), problem=str(error), running=is_running(folder))
    return Overview(
        folder=str(folder),
        name=str(spec.get("name", "")),
        done=far.done,
        failed=far.failed,
        cells=cells,
        trials_kept=far.trials,
        running=is_running(folder),
        started=starts[0].started if starts else None,
        last=far.last,
        seconds=far.seconds,
        host=starts[-1].host if starts else "",
        version=(starts[-1].versions.get("dpaudit", "") if starts else next(iter(versions), "")) or "",
    )


def cells_of(spec: Mapping[str, Any]) -> int | None:
    """How many cells a stored spec has; None where it is of another dpaudit, with fields that ours does not know."""
    known = {f.name for f in dataclasses.fields(Spec)}
    try:
        return len(Spec(**{k: v for k, v in spec.items() if k in known}).cells())
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
