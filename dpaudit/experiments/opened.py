"""A finished or running experiment in Python: ``open_run("runs/gpm-fig5").frame()``."""

from __future__ import annotations

import html
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit import registry
from dpaudit.documents import ExperimentDocument, MeasurementsDocument
from dpaudit.errors import MissingExtraError
from dpaudit.experiments.flat import Columns, flat_rows, typed
from dpaudit.experiments.store import Progress, Store, as_written
from dpaudit.experiments.store.queries import invocations, progress, trial_columns
from dpaudit.experiments.table import make_document
from dpaudit.results.foreign import shown
from dpaudit.results.text import one_line
from dpaudit.types import CellFailure, to_dict

if TYPE_CHECKING:
    import pandas

__all__ = ["OpenRun", "command_of", "document_of", "open_run"]

_SHOWN = 40
_LONG = 80


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """What a run's folder held when it was opened; ``document`` is what ``results.json`` says."""

    folder: Path
    spec: Mapping[str, Any]
    document: Mapping[str, Any]
    progress: Progress
    failures: Sequence[CellFailure]

    def columns(self) -> Columns:
        """The rows of the document, flat, as typed columns (:mod:`dpaudit.experiments.flat`)."""
        return typed(flat_rows(self.document))

    def trials(self) -> Columns:
        """Every stored trial: cell, trial, truth, guess and score; nothing without ``keep_trials`` in the spec."""
        with Store.read(self.folder) as store:
            return trial_columns(store)

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, one row an arm and attack, or a line of the measured table.

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
        body = "".join(f"<tr>{''.join(f'<td>{_safe(v)}</td>' for v in row)}</tr>" for row in rows[:_SHOWN])
        more = f"<p>{len(rows) - _SHOWN:,} more rows in .frame()</p>" if len(rows) > _SHOWN else ""
        failed = f", {self.progress.failed:,} failed" if self.progress.failed else ""
        return (
            f"<p><strong>{_safe(self.document['title'])}</strong>: {self.progress.done:,} cells done{failed}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        )


def open_run(folder: Path | str) -> OpenRun:
    """Read a run's folder, also while it runs.

    >>> open_run("runs/demo").frame()  # doctest: +SKIP

    Raises:
        StoreError: it holds no run, or one of a newer dpaudit.
    """
    with Store.read(Path(folder)) as store:
        return OpenRun(
            folder=Path(folder),
            spec=store.spec,
            document=to_dict(document_of(store)),
            progress=progress(store),
            failures=store.failures(),
        )


def document_of(
    store: Store, *, cells: bool = True, most: int | None = None
) -> ExperimentDocument | MeasurementsDocument:
    """What ``results.json`` says of a store's results so far, failures included.

    ``cells=False`` leaves the list ``cells`` empty; ``most`` looks at the first so many finished cells only.

    Raises:
        StoreError: the store holds what dpaudit does not write.
    """
    with as_written(store.folder):
        spec = store.spec
        if spec.get("measure", "attack") not in registry.plugins("measures"):
            raise ValueError(f"measure={shown(spec['measure'])} is not known")
        return make_document(
            spec, store.results(most=most), command=command_of(store), failures=store.failures(), cells=cells
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
