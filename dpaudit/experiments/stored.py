"""Stored runs in Python: ``open_run("runs/gpm-fig5").frame()``; an overview of all in a folder."""

from __future__ import annotations

import dataclasses
import html
import math
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
from dpaudit.experiments.store.queries import invocations, progress, provenances, trial_columns
from dpaudit.experiments.table import make_result
from dpaudit.results.foreign import shown
from dpaudit.results.text import one_line
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
    "spec_of",
]

_SHOWN = 40
_LONG = 80


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

    def trials(self) -> Columns:
        """Every stored trial: cell, trial, truth, guess and score; needs ``keep_trials``."""
        with Store.read(self.folder) as store:
            return trial_columns(store)

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, one per arm and attack, or per row of the measured table.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return _frame(self.columns())

    def trials_frame(self) -> pandas.DataFrame:
        """Every stored trial as a pandas DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return _frame(self.trials())

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = list(zip(*columns.values(), strict=True))
        head = "".join(f"<th>{_safe(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{_safe(v)}</td>' for v in row)}</tr>" for row in rows[:_SHOWN]
        )
        more = f"<p>{len(rows) - _SHOWN:,} more rows in .frame()</p>" if len(rows) > _SHOWN else ""
        failed = f", {self.progress.failed:,} failed" if self.progress.failed else ""
        return (
            f"<p><strong>{_safe(self.result['title'])}</strong>: "
            f"{self.progress.done:,} cells done{failed}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        )


def open_run(folder: Path | str) -> OpenRun:
    """Read a run's folder, also while it runs.

    >>> open_run("runs/demo").frame()  # doctest: +SKIP

    Raises:
        StoreError: it holds no run, or one of a newer dpaudit.
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


def _frame(columns: Columns) -> pandas.DataFrame:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "frame: needs pandas, which is not installed; pip install 'dpaudit[parquet]'"
        ) from error
    return pandas.DataFrame(columns)


def _safe(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return html.escape(one_line(value, limit=_LONG))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run's overview; ``problem`` is why a store cannot be read (then nothing else is known).

    ``shard`` is which share of the experiment it is, such as ``2/4``; empty: the whole.

    ``cells`` is how many it will have (None if this dpaudit cannot tell), ``seconds`` what all
    attempts took together, ``started`` and ``last`` are UTC; ``running`` whether a process on this
    machine has it open now.
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
    shard: str = ""
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
            shard = store.shard
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
        version=(starts[-1].versions.get("dpaudit", "") if starts else next(iter(versions), ""))
        or "",
        shard=shard,
    )


def spec_of(stored: Mapping[str, Any]) -> Spec:
    """A stored spec as it was read from its file, without fields that this dpaudit lacks."""
    known = {f.name for f in dataclasses.fields(Spec)}
    return Spec(**{k: v for k, v in stored.items() if k in known})


def cells_of(spec: Mapping[str, Any]) -> int | None:
    """How many cells a stored spec has; None if it has fields that this dpaudit does not know."""
    try:
        return len(spec_of(spec).cells())
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
