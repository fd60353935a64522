"""The middle of ``dpaudit run``: from a checked experiment to outcomes on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpaudit.cli.output import note
from dpaudit.cli.progress import RunProgress
from dpaudit.codec import convert_value
from dpaudit.errors import UsageError
from dpaudit.experiments.measurements import read_measurements
from dpaudit.experiments.results import Column, Figure, measured_nothing
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from dpaudit.experiments import Spec
    from dpaudit.experiments.run import RunOptions

__all__ = ["run_cells", "tell_failures"]


def run_cells(spec: Spec, options: RunOptions, *, resumed: str = "") -> None:
    """Run the cells that ``options.out`` lacks; record the command and where it ran.

    Ctrl-C says what is on disk, and exits with 130; ``resumed`` are the options that, added to the
    command, resume it, or empty if it starts again from the beginning.

    Raises:
        UsageError: as :func:`~dpaudit.experiments.run_experiment`; columns or figures that no
            report can show.
    """
    from dpaudit.experiments.placement import place
    from dpaudit.experiments.run import run_with

    _check_columns(spec)
    where, jobs = str(options.where), str(options.jobs)
    placement = place(where, jobs=int(jobs) if jobs.isdecimal() else jobs, device=spec.device)
    placed = (f" --where {where}" if where != "local" else "") + (
        f" --jobs {jobs}" if jobs != "1" else ""
    )
    command = options.command + placed
    cells = spec.cells()
    progress = RunProgress(spec.name, cells, placement)
    try:
        with progress:
            shown = replace(
                options,
                where=placement,
                jobs=1,
                command=command,
                on_start=progress.on_start,
                on_done=progress.on_done,
                on_result=progress.on_result,
            )
            run_with(spec, shown)
    except KeyboardInterrupt as interrupt:  # typer would end without a message
        kept = f"{progress.done:,} of {len(cells):,} cells are on disk in {options.out}"
        then = (
            f"this resumes it:\n{command} {resumed}"
            if resumed
            else f"{command} starts again from the beginning"
        )
        note(f"interrupted: {kept}; {then}")
        raise typer.Exit(130) from interrupt


def _check_columns(spec: Spec) -> None:
    try:
        parts = (
            convert_value(spec.columns, tuple[Column, ...]),
            convert_value(spec.figures, tuple[Figure, ...]),
        )
    except RefusedError as error:
        raise UsageError(
            f"experiment={spec.name}: columns or figures cannot be shown: {error}"
        ) from error
    read_measurements(measured_nothing(*parts))


def tell_failures(out: Path) -> None:
    """Report failed cells on stderr and exit with 3 if there are any."""
    from dpaudit.experiments import Store

    with Store.read(out) as store:
        failures = store.failures()
    if failures:
        cells = "1 cell" if len(failures) == 1 else f"{len(failures)} cells"
        note(
            f"{cells} failed, first with {printable(failures[0].error, limit=300)}\n"
            f"dpaudit runs show {out} --failed shows tracebacks; "
            "repeat the command with --resume to retry"
        )
        raise typer.Exit(3)
