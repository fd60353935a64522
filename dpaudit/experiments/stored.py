"""Stored runs: ``open_run("runs/gpm-fig5").frame()``, their rows as CSV, all that a folder has."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dpaudit import registry
from dpaudit.codec import to_dict
from dpaudit.errors import MissingExtraError, StoreError, UsageError
from dpaudit.experiments.results import ExperimentResult, MeasurementsResult
from dpaudit.experiments.store import (
    FILE,
    Progress,
    Store,
    invocations,
    is_running,
    progress,
    reading_errors,
)
from dpaudit.experiments.table import make_result
from dpaudit.results.files import write_file
from dpaudit.results.foreign import quoted
from dpaudit.types import CellFailure

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Columns",
    "OpenRun",
    "Overview",
    "check_target",
    "flat_rows",
    "open_run",
    "overviews",
    "read_overview",
    "result_of",
    "typed_columns",
    "write_csv",
]

Columns = dict[str, list[Any]]
_WORDS = ("inf", "-inf", "nan")
_FORMULA = tuple("=+-@＝＋－＠")
_CONTROLS = tuple("\t\r\n")


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """What a run's folder held when it was opened; ``result`` is what its cells say, JSON-ready."""

    folder: Path
    spec: Mapping[str, Any]
    result: Mapping[str, Any]
    progress: Progress
    failures: Sequence[CellFailure]

    def columns(self) -> Columns:
        """The rows of the document, flat, as typed columns (:func:`typed_columns`)."""
        return typed_columns(flat_rows(self.result))

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
    with reading_errors(store.folder):
        spec = store.spec
        if spec.get("measure", "attack") not in registry.plugins("measures"):
            raise ValueError(f"measure={quoted(spec['measure'])} is not known")
        return make_result(
            spec,
            store.results(most=most),
            command=_command_of(store),
            failures=store.failures(),
            cells=cells,
        )


def _command_of(store: Store) -> str:
    """The command that started the run, if it is stored."""
    commands = [i.command for i in invocations(store) if i.command]
    return (
        commands[0] if commands else f"dpaudit run {shlex.quote(str(store.spec.get('name', '')))}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run's overview; ``problem`` is why a store cannot be read (then nothing else is known).

    ``cells`` is how many it will have (None if that is not stored), ``seconds`` what all
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
    return [read_overview(place) for place in places]


def read_overview(folder: Path) -> Overview:
    """One run."""
    try:
        with Store.read(folder) as store:
            spec, far, starts = store.spec, progress(store), invocations(store)
            cells = store.cells
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


def flat_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``rows`` of a ``results.json`` without nesting; an arm has one row per attack.

    ``{value, low, high}`` under ``name`` becomes ``name``, ``name_low`` and ``name_high``; an
    ``interval`` next to ``success`` likewise; other tables ``name_key``; lists JSON text. An arm's
    ``details``, which are for figures, are left out.
    """
    if document["kind"] != "experiment":
        return [_flatten(row) for row in document["rows"]]
    flat = []
    for row in document["rows"]:
        own = {k: v for k, v in row.items() if k not in ("settings", "attacks")}
        arm = _flatten({**row.get("settings", {}), **own})
        attacks = [{k: v for k, v in a.items() if k != "details"} for a in row["attacks"]]
        flat += [{**arm, **_flatten(attack)} for attack in attacks] or [arm]
    return flat


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            ends = name == "interval" and "success" in row
            under = "success" if ends else name
            for key, inner in _flatten(value).items():
                if not ends or key in ("low", "high"):
                    flat[under if key == "value" else f"{under}_{key}"] = inner
        elif isinstance(value, (list, tuple)):
            flat[name] = json.dumps(to_dict(value), ensure_ascii=False)
        else:
            flat[name] = value
    return flat


def typed_columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns of one type each: bool, int, float or str; None for no value.

    The words that stand for them in JSON become infinities and NaN in columns of numbers.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> list[Any]:
    there = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in there) or all(type(v) is int for v in there):
        return values
    if all(type(v) in (int, float) or v in _WORDS for v in there):
        return [None if v is None else float(v) for v in values]
    return [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]


def check_target(to: Path) -> None:
    """Check the name of the file to write.

    Raises:
        UsageError: it does not end with .csv.
    """
    if to.suffix != ".csv":
        raise UsageError(f"to={to}: must end with .csv; choose such a name")


def write_csv(columns: Columns, to: Path) -> int:
    """Write typed columns to ``to``; returns the number of rows. An existing file is replaced.

    No value is nothing; infinities and NaN are ``inf`` and ``nan``. Text that a spreadsheet would
    take for a formula gets an apostrophe in front. Halves of characters, which UTF-8 cannot hold,
    become their escapes.

    Raises:
        UsageError: the name does not end with .csv, or the file cannot be written.
    """
    check_target(to)

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text)
        writer.writerow(map(_no_formula, columns))
        writer.writerows(map(_no_formula, row) for row in zip(*columns.values(), strict=True))
        text.detach()

    try:
        write_file(to, write)
    except OSError as error:
        raise UsageError(
            f"to={to}: cannot be written ({error.strerror or error}); choose another file"
        ) from error
    return len(next(iter(columns.values()), []))


def _no_formula(value: Any) -> Any:
    """Text that no spreadsheet executes (OWASP, CSV injection); numbers keep their signs."""
    if not isinstance(value, str) or not (value[:1] in _CONTROLS or value.lstrip()[:1] in _FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
