"""``dpaudit runs``: list, show and export what ``dpaudit run`` wrote.

Text from a sampler or a plug-in is made printable first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit.cli.help import App
from dpaudit.cli.options import FormatOption
from dpaudit.cli.output import emit, note, out_console, write_json_line
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.registry import missing_extra
from dpaudit.report import describe
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from rich.table import Table

    from dpaudit.experiments.store import Attempt, Store
    from dpaudit.experiments.stored import Overview
    from dpaudit.types import CellFailure

__all__ = ["runs_app"]

runs_app = App(
    help=("Look at runs: list, show, export.\n\n$ dpaudit runs list\n$ dpaudit runs show runs/demo")
)
_CELLS = 40
# cells in the table of `runs show`; the whole document of 100,000 takes tens of seconds
_MOST = 2000


@runs_app.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Look here and below.")] = Path(
        "runs"
    ),
    output: FormatOption = "text",
) -> None:
    """List the runs in DIR and below: progress, state, times and machine.

    A store that cannot be read is listed with the reason.

    [bold]Examples[/bold]

    $ dpaudit runs list
    $ dpaudit runs list /data/runs --format json
    """
    from dpaudit.experiments.stored import overviews

    runs = overviews(folder)
    if output == "json":
        write_json_line(to_dict(runs))
        return
    if not runs:
        _say(f"No runs in {folder} or below; dpaudit run NAME makes one.")
        return
    columns = ("run", "experiment", "cells", "now", "started (UTC)", "last (UTC)", "time")
    emit(_table((*columns, "machine", "dpaudit"), [_row(run) for run in runs]))
    for run in runs:
        if run.problem:
            note(printable(run.problem, limit=400))


def _row(run: Overview) -> tuple[str, ...]:
    if run.problem:
        return (run.folder, "unreadable", "", "running" if run.running else "", "", "", "", "", "")
    cells = f"{run.done:,} of {_of(run)}" + (f", {run.failed:,} failed" if run.failed else "")
    now = "running" if run.running else "" if run.done == run.cells else "stopped"
    times = (_time(run.started), _time(run.last), _duration(run.seconds))
    return (run.folder, run.name, cells, now, *times, run.host, run.version)


@runs_app.command()
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run's folder.", show_default=False)
    ],
    cell: Annotated[
        str | None,
        typer.Option(help="One cell by its id, or the beginning of it.", show_default=False),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only the cells that failed, with tracebacks.")
    ] = False,
    output: FormatOption = "text",
) -> None:
    """Show a run's table and summary, also while it runs; or one cell with all its attempts.

    [bold]Examples[/bold]

    $ dpaudit runs show runs/gpm-fig5 --failed
    $ dpaudit runs show runs/gpm-fig5 --cell 3f2a
    """
    from dpaudit.experiments.store import Store, reading_errors

    with reading_errors(folder), Store.read(folder) as store:
        if cell is not None:
            _show_cell(store, cell, failed=failed, output=output)
        elif failed:
            failures = store.failures()
            if not failures and output == "text":
                _say("No cell has failed, or each has succeeded since.")
            _show_each(failures, _print_failure, "failed cells", output)
        else:
            _show_whole(store, output)


def _show_cell(store: Store, cell: str, *, failed: bool, output: str) -> None:
    from dpaudit.experiments.store import attempts

    matches = attempts(store, cell=cell)
    if not matches or not cell:
        raise UsageError(
            f"cell={cell}: no attempt at such a cell in {store.folder}; "
            f"dpaudit runs show {store.folder} lists them"
        )
    matches = [a for a in matches if a.status == "failed"] if failed else matches
    _show_each(matches, _print_attempt, "attempts", output)


def _show_each(entries: Sequence[Any], show_one: Any, kind: str, output: str) -> None:
    """Everything as JSON, or the first few for people."""
    if output == "json":
        write_json_line(to_dict(entries))
        return
    for one in entries[:_CELLS]:
        show_one(one)
    if len(entries) > _CELLS:
        note(f"{len(entries) - _CELLS:,} more {kind}: --format json has all")


def _show_whole(store: Store, output: str) -> None:
    from dpaudit.experiments.store import invocations
    from dpaudit.experiments.stored import read_overview, result_of
    from dpaudit.render.terminal import render_terminal

    folder = store.folder
    run, failures, whole = read_overview(folder), store.failures(), output == "json"
    try:
        result = result_of(store, cells=whole, most=None if whole else _MOST)
    except ModuleNotFoundError as error:
        hint = missing_extra(error)
        if hint is None:
            raise
        result = None
        note(f"its table {hint}")
    if whole:
        write_json_line(
            {
                "run": to_dict(run),
                "invocations": to_dict(invocations(store)),
                "failures": to_dict(failures),
                "result": None if result is None else to_dict(result),
            }
        )
        return
    if result is not None and result.rows:
        if run.done > _MOST:
            _say(f"The first {_MOST:,} of {run.done:,} finished cells:")
            note(f"all: dpaudit runs export {folder} --to rows.csv, or dpaudit report {folder}")
        emit(render_terminal(describe(result), width=out_console().width))
    elif result is not None:
        _say("No cell is done yet.")
    lines = [(f.cell, _label(f.kind, f.settings), f.error) for f in failures]
    if lines:
        emit(_table(("failed cell", "what", "error"), lines[:_CELLS]))
        note(f"{len(failures):,} failed; with tracebacks: dpaudit runs show {folder} --failed")
    facts = f"{run.done:,} of {_of(run)} cells done, {run.failed:,} failed"
    facts += f", {_duration(run.seconds)} in total" + ("; running now" if run.running else "")
    _say(f"{facts}. {run.host} dpaudit {run.version}".strip())


def _print_attempt(attempt: Attempt) -> None:
    head = f"Cell {attempt.cell}, attempt {attempt.number}: {attempt.status} after "
    _say(f"{head}{_duration(attempt.seconds)}", style="bold")
    if attempt.error is not None:
        _print_failure(attempt)
    else:
        _say(_label(attempt.kind, attempt.settings))
        _print_json("settings", attempt.settings)
        _print_json("outcome", {k: v for k, v in (attempt.outcome or {}).items() if k != "details"})
    _print_json("provenance", attempt.provenance)


def _print_failure(failed: Attempt | CellFailure) -> None:
    _say(f"{failed.cell}  {_label(failed.kind, failed.settings)}", style="bold")
    _say(failed.error or "")
    if failed.traceback:
        _say(failed.traceback, style="dim", limit=20_000)


def _print_json(name: str, value: Any) -> None:
    import json

    _say(f"{name} {json.dumps(value, ensure_ascii=False, indent=2)}", limit=20_000)


@runs_app.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run's folder.", show_default=False)
    ],
    to: Annotated[
        Path, typer.Option(metavar="FILE", help="Ends with .csv; replaced.", show_default=False)
    ],
) -> None:
    """Export a run's rows as a flat table of typed columns.

    [bold]Examples[/bold]

    $ dpaudit runs export runs/demo --to demo.csv
    $ dpaudit runs export runs/gpm-fig5 --to /data/gpm-fig5.csv
    """
    from dpaudit.experiments.store import reading_errors
    from dpaudit.experiments.stored import check_target, open_run, write_csv

    check_target(to)
    with reading_errors(folder):
        run = open_run(folder)
        rows = write_csv(run.columns(), to)
    _say(f"{to}: {rows:,} rows")
    if failed := run.progress.failed:
        note(f"{failed:,} cells failed and are not in it; dpaudit runs show {folder} --failed")


def _label(kind: str, settings: Mapping[str, Any]) -> str:
    """A cell for people, with its ε and key where its label leaves them out."""
    from dpaudit.experiments.measure import Cell

    axes = {"ε": settings["epsilon"]} if "epsilon" in settings else {}
    if kind in ("attack", "audit"):
        axes |= settings.get("key", {})
    label = Cell(kind, settings).label
    return f"{label} ({', '.join(f'{k} {v}' for k, v in axes.items())})" if axes else label


def _say(text: str, *, style: str = "", limit: int = 2000) -> None:
    from rich.text import Text

    emit(Text(printable(text, limit=limit), style=style))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(value, limit=200)) for value in row))
    return table


def _of(run: Overview) -> str:
    return "?" if run.cells is None else f"{run.cells:,}"


def _time(text: str | None) -> str:
    return "" if text is None else text[:16].replace("T", " ")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
