"""What ``dpaudit runs`` prints. Text from a sampler or a plug-in is made printable first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from dpaudit.cli.output import emit, note, out_console, write_json_line
from dpaudit.codec import to_dict
from dpaudit.errors import UsageError
from dpaudit.registry import missing_extra
from dpaudit.render import render_terminal
from dpaudit.report import describe
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from dpaudit.experiments.difference import CellDifference, RunDifference
    from dpaudit.experiments.store import Attempt
    from dpaudit.experiments.stored import Overview

__all__ = ["export", "show_difference", "show_list", "show_run"]

_CELLS = 40
# cells in the table of `runs show`; the whole document of 100,000 takes tens of seconds
_MOST = 2000
_CHANGES = 6


def show_list(folder: Path, output: str) -> None:
    """``dpaudit runs list``."""
    from dpaudit.experiments.stored import overviews

    found = overviews(folder)
    if output == "json":
        write_json_line(to_dict(found))
        return
    if not found:
        emit(Text(f"No runs in {folder} or below; dpaudit run NAME makes one."))
        return
    columns = ("run", "experiment", "cells", "now", "started (UTC)", "last (UTC)", "time")
    emit(_table((*columns, "machine", "dpaudit"), [_row(run) for run in found]))
    for run in found:
        if run.problem:
            note(printable(run.problem, limit=400))


def _row(run: Overview) -> tuple[str, ...]:
    if run.problem:
        return (run.folder, "unreadable", "", "running" if run.running else "", "", "", "", "", "")
    cells = f"{run.done:,} of {'?' if run.cells is None else f'{run.cells:,}'}"
    cells += f", {run.failed:,} failed" if run.failed else ""
    now = "running" if run.running else "" if run.done == run.cells else "stopped"
    times = (_time(run.started), _time(run.last), _duration(run.seconds))
    name = f"{run.name}, shard {run.shard}" if run.shard else run.name
    return (run.folder, name, cells, now, *times, run.host, run.version)


def show_run(folder: Path, *, cell: str | None, failed: bool, output: str) -> None:
    """``dpaudit runs show``."""
    from dpaudit.experiments.store import Store
    from dpaudit.experiments.store.queries import attempts

    with Store.read(folder) as store:
        if cell is not None:
            found = attempts(store, cell=cell)
            if not found or not cell:
                raise UsageError(
                    f"cell={cell}: no attempt at such a cell in {folder}; "
                    f"dpaudit runs show {folder} lists them"
                )
            found = [a for a in found if a.status == "failed"] if failed else found
            if output == "json":
                write_json_line(to_dict(found))
            for attempt in found[:_CELLS] if output == "text" else ():
                _print_attempt(attempt)
            _more(len(found), "attempts", output)
        elif failed:
            failures = store.failures()
            if output == "json":
                write_json_line(to_dict(failures))
            elif not failures:
                emit(Text("No cell has failed, or each has succeeded since."))
            for f in failures[:_CELLS] if output == "text" else ():
                _print_failure(f.cell, f.kind, f.settings, f.error, f.traceback)
            _more(len(failures), "failed cells", output)
        else:
            _show_whole(folder, store, output)


def _more(found: int, what: str, output: str) -> None:
    if output == "text" and found > _CELLS:
        note(f"{found - _CELLS:,} more {what}: --format json has all")


def _show_whole(folder: Path, store: Any, output: str) -> None:
    from dpaudit.experiments.store.queries import invocations
    from dpaudit.experiments.stored import look_at, result_of

    overview, failures, whole = look_at(folder), store.failures(), output == "json"
    try:
        result = result_of(store, cells=whole, most=None if whole else _MOST)
    except ModuleNotFoundError as error:
        hint = missing_extra(error)
        if hint is None:
            raise
        result = None
        note(f"its table {hint}")
    if output == "json":
        write_json_line(
            {
                "run": to_dict(overview),
                "invocations": to_dict(invocations(store)),
                "failures": to_dict(failures),
                "result": None if result is None else to_dict(result),
            }
        )
        return
    if result is not None and result.rows:
        if overview.done > _MOST:
            emit(Text(f"The first {_MOST:,} of {overview.done:,} finished cells:"))
            note(f"all: dpaudit runs export {folder} --to rows.csv, or dpaudit report {folder}")
        emit(render_terminal(describe(result), width=out_console().width))
    elif result is not None:
        emit(Text("No cell is done yet."))
    lines = [(f.cell, _label(f.kind, f.settings), f.error) for f in failures]
    if lines:
        emit(_table(("failed cell", "what", "error"), lines[:_CELLS]))
        note(f"{len(failures):,} failed; with tracebacks: dpaudit runs show {folder} --failed")
    _print_facts(overview)


def _print_facts(run: Overview) -> None:
    total = "?" if run.cells is None else f"{run.cells:,}"
    part = f"Shard {run.shard}: " if run.shard else ""
    facts = f"{part}{run.done:,} of {total} cells done, {run.failed:,} failed"
    facts += f", {run.trials_kept:,} trials kept" if run.trials_kept else ""
    facts += f", {_duration(run.seconds)} in total" + ("; running now" if run.running else "")
    emit(Text(printable(f"{facts}. {run.host} dpaudit {run.version}".strip())))


def _print_attempt(attempt: Attempt) -> None:
    by = f" by {attempt.worker}" if attempt.worker else ""
    head = f"Cell {attempt.cell}, attempt {attempt.number}: {attempt.status} after "
    emit(Text(printable(f"{head}{_duration(attempt.seconds)}{by}"), style="bold"))
    if attempt.error is not None:
        _print_failure(
            attempt.cell, attempt.kind, attempt.settings, attempt.error, attempt.traceback or ""
        )
    else:
        emit(Text(printable(_label(attempt.kind, attempt.settings))))
        _print_json("settings", attempt.settings)
        _print_json("outcome", {k: v for k, v in (attempt.outcome or {}).items() if k != "details"})
    if attempt.trials:
        emit(Text(f"{attempt.trials:,} trials kept"))
    _print_json("provenance", attempt.provenance)


def _print_failure(
    cell: str, kind: str, settings: Mapping[str, Any], error: str, traceback: str
) -> None:
    emit(Text(printable(f"{cell}  {_label(kind, settings)}"), style="bold"))
    emit(Text(printable(error)))
    if traceback:
        emit(Text(printable(traceback, limit=20_000), style="dim"))


def _print_json(name: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    emit(Text(f"{name} {printable(text, limit=20_000)}"))


def show_difference(a: Path, b: Path, output: str) -> bool:
    """``dpaudit runs diff``; returns whether the numbers agree."""
    from dpaudit.experiments.difference import compare
    from dpaudit.experiments.store import Store

    with Store.read(a) as first, Store.read(b) as second:
        found = compare(first, second)
    if output == "json":
        counts = {s: found.count(s) for s in ("identical", "overlapping", "different")}
        write_json_line({**to_dict(found), "agree": found.agree, "count": counts})
        return found.agree
    emit(Text(_verdict(found), style="bold"))
    for status in ("different", "overlapping"):
        cells = [c for c in found.cells if c.status == status]
        if cells:
            emit(_table((status, "number", "A", "B"), _changes(cells[:_CELLS])))
            if len(cells) > _CELLS:
                note(f"{len(cells) - _CELLS:,} more in --format json")
    for name, labels in (("A", found.only_a), ("B", found.only_b)):
        if labels:
            title = f"only in {name} ({len(labels):,})"
            emit(_table((title,), [(label,) for label in labels[:_CELLS]]))
    if found.circumstances:
        lines = [
            (name, *(_fact(name, v) for v in pair)) for name, pair in found.circumstances.items()
        ]
        emit(_table(("circumstance", "A", "B"), lines))
    else:
        emit(Text("Same seed, trials, versions, sources and hardware."))
    return found.agree


def _verdict(found: RunDifference) -> str:
    how = (
        "the same experiment"
        if found.same_spec
        else "matched by settings apart from seed, trials and device"
    )
    different, overlapping = found.count("different"), found.count("overlapping")
    if different:
        says = f"{different:,} of {len(found.cells):,} cells differ"
    elif overlapping:
        says = f"No cell differs: {found.count('identical'):,} identical, {overlapping:,} with "
        says += "overlapping intervals"
    else:
        says = f"All {len(found.cells):,} cells are identical"
    missing = len(found.only_a) + len(found.only_b)
    return f"{says} ({how})" + (f"; {missing:,} in one run only." if missing else ".")


def _changes(cells: Sequence[CellDifference]) -> Iterable[tuple[str, ...]]:
    for cell in cells:
        shown = sorted(cell.changes, key=lambda c: not c.disjoint)
        for number, change in enumerate(shown[:_CHANGES]):
            name = f"{change.name}, disjoint" if change.disjoint else change.name
            yield (cell.label if number == 0 else "", name, _text(change.a), _text(change.b))
        if len(shown) > _CHANGES:
            yield ("", f"and {len(shown) - _CHANGES} more", "", "")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return f"{value[0]:.6g} … {value[1]:.6g}"
    return "–" if value is None else str(value)


def _fact(name: str, value: Any) -> str:
    """A circumstance; hashes are shortened."""
    if not name.startswith("sources of"):
        return _text(value)
    return ", ".join(word[:16] for word in _text(value).split(", "))


def export(folder: Path, *, to: Path, trials: bool) -> None:
    """``dpaudit runs export``."""
    from dpaudit.experiments.export import check_target, flat_rows, typed, write_columns
    from dpaudit.experiments.store import Store
    from dpaudit.experiments.store.queries import progress, trial_columns
    from dpaudit.experiments.stored import result_of

    check_target(to)
    with Store.read(folder) as store:
        failed = progress(store).failed
        if trials:
            columns = trial_columns(store)
        else:
            result = result_of(store, cells=False)
            columns = typed(flat_rows({"kind": result.kind, **to_dict(result)}))
    if trials and not columns["cell"]:
        raise UsageError(
            f"dir={folder}: no trials are stored; set keep_trials = true in the spec and rerun it"
        )
    rows = write_columns(columns, to)
    emit(Text(printable(f"{to}: {rows:,} {'trials' if trials else 'rows'}")))
    if failed:
        note(f"{failed:,} cells failed and are not in it; dpaudit runs show {folder} --failed")


def _label(kind: str, settings: Mapping[str, Any]) -> str:
    from dpaudit.experiments.difference import describe

    return describe(kind, settings)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(value, limit=200)) for value in row))
    return table


def _time(text: str | None) -> str:
    return "" if text is None else text[:16].replace("T", " ")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
