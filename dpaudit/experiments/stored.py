"""Stored runs in Python: ``open_run("runs/gpm-fig5").frame()``; an overview of all in a folder."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit import registry
from dpaudit.codec import to_dict
from dpaudit.errors import MissingExtraError, StoreError, UsageError
from dpaudit.experiments.export import Columns, flat_rows, typed
from dpaudit.experiments.results import ExperimentResult, MeasurementsResult
from dpaudit.experiments.spec import Spec
from dpaudit.experiments.store import FILE, Progress, Store, as_written, is_running
from dpaudit.experiments.store.queries import invocations, progress
from dpaudit.experiments.table import make_result
from dpaudit.results.foreign import shown
from dpaudit.types import CellFailure

if TYPE_CHECKING:
    import pandas

__all__ = [
    "OpenRun",
    "Overview",
    "cells_of",
    "command_of",
    "look_at",
    "open_run",
    "overviews",
    "result_of",
]


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """What a run's folder held when it was opened; ``result`` is what its cells say, JSON-ready."""

    folder: Path
    spec: Mapping[str, Any]
    result: Mapping[str, Any]
    progress: Progress
    failures: Sequence[CellFailure]

    def columns(self) -> Columns:
        """The rows of the document, flat, as typed columns (:mod:`dpaudit.experiments.export`)."""
        return typed(flat_rows(self.result))

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, one per arm and attack, or per row of the measured table.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "frame: needs pandas, which is not installed; pip install 'dpaudit[parquet]'"
            ) from error
        return pandas.DataFrame(self.columns())


def open_run(folder: Path | str) -> OpenRun:
    """Read a run's folder, also while it runs.

    >>> open_run("runs/demo").frame()  # doctest: +SKIP

    Raises:
        StoreError: it holds no run, or one of another version.
    """
    with Store.read(Path(folder)) as store:
        result = result_of(store)
        return OpenRun(
            folder=Path(folder),
            spec=store.spec,
            result={"kind": result.kind, **to_dict(result)},
            progress=progress(store),
            failures=store.failures(),
        )


def result_of(
    store: Store, *, cells: bool = True, most: int | None = None
) -> ExperimentResult | MeasurementsResult:
    """A store's results so far, failures included.

    ``cells=False`` leaves the list ``cells`` empty; ``most`` limits it to the first finished cells.

    Raises:
        StoreError: the store holds what dpaudit does not write.
    """
    with as_written(store.folder):
        spec = store.spec
        if spec.get("measure", "attack") not in registry.plugins("measures"):
            raise ValueError(f"measure={shown(spec['measure'])} is not known")
        return make_result(
            spec,
            store.results(most=most),
            command=command_of(store),
            failures=store.failures(),
            cells=cells,
        )


def command_of(store: Store) -> str:
    """The command that began the run, as far as the store was told."""
    told = [i.command for i in invocations(store) if i.command]
    return told[0] if told else f"dpaudit run {shlex.quote(str(store.spec.get('name', '')))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run's overview; ``problem`` is why a store cannot be read (then nothing else is known).

    ``cells`` is how many it will have (None if this dpaudit cannot tell), ``seconds`` what all
    attempts took together, ``started`` and ``last`` are UTC; ``running`` whether a process on this
    machine has it open now.
    """

    folder: str
    name: str = ""
    done: int = 0
    failed: int = 0
    cells: int | None = None
    running: bool = False
    started: str | None = None
    last: str | None = None
    seconds: float = 0.0
    host: str = ""
    version: str = ""
    problem: str = ""


def overviews(folder: Path) -> list[Overview]:
    """The runs in ``folder`` and below, by path; for those that cannot be read, the reason.

    Raises:
        UsageError: no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"dir={folder}: no such folder; name one, e.g. dpaudit runs list .")
    places = sorted(Path(place) for place, _, files in os.walk(folder) if FILE in files)
    return [look_at(place) for place in places]


def look_at(folder: Path) -> Overview:
    """One run."""
    try:
        with Store.read(folder) as store:
            spec, far, starts = store.spec, progress(store), invocations(store)
            cells = cells_of(spec) if store.cells is None else store.cells
    except (StoreError, ValueError, KeyError, TypeError) as error:
        return Overview(folder=str(folder), problem=str(error), running=is_running(folder))
    return Overview(
        folder=str(folder),
        name=str(spec.get("name", "")),
        done=far.done,
        failed=far.failed,
        cells=cells,
        running=is_running(folder),
        started=starts[0].started if starts else None,
        last=far.last,
        seconds=far.seconds,
        host=starts[-1].host if starts else "",
        version=starts[-1].versions.get("dpaudit", "") if starts else "",
    )


def cells_of(spec: Mapping[str, Any]) -> int | None:
    """How many cells a stored spec has; None if it has fields that this dpaudit does not know."""
    try:
        known = {f.name for f in dataclasses.fields(Spec)}
        return len(Spec(**{k: v for k, v in spec.items() if k in known}).cells())
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
