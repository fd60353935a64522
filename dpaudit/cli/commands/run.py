"""``dpaudit run``, ``demo`` and ``report``: experiments and their pages."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit.cli import completion
from dpaudit.cli.options import (
    AlsoOption,
    DataRootOption,
    DeviceOption,
    FormatOption,
    use_data_root,
    with_shared_options,
)
from dpaudit.cli.out_folder import formats_of, remove_earlier, rewrite_report, write_run
from dpaudit.cli.output import emit, note
from dpaudit.cli.verdicts import show
from dpaudit.codec import convert_value
from dpaudit.errors import SpecError, StoreError, UsageError
from dpaudit.options import Option, arguments_of, count_of
from dpaudit.report import describe
from dpaudit.results.foreign import RefusedError
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from dpaudit.experiments import Spec
    from dpaudit.experiments.run import RunOptions
    from dpaudit.report import Report

__all__ = ["check_columns", "demo", "report", "run", "run_cells", "tell_failures"]

_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """Options of ``dpaudit run``."""

    out: Annotated[Path | None, Option("Folder for results; runs/NAME by default.")] = None
    resume: Annotated[bool, Option("Resume an interrupted run; finished cells are kept.")] = False
    trials: Annotated[
        int | None,
        Option(
            "Trials per cell, instead of the spec's number.",
            "N",
            read=functools.partial(count_of, name="trials", unit="trials", example="1000"),
        ),
    ] = None
    where: Annotated[
        str,
        Option("local, or a Dask scheduler on a trusted network: tcp://host:8786 or tls://…"),
    ] = "local"
    jobs: Annotated[str, Option("Worker processes on this machine; 1 starts none.", "N|all")] = "1"
    device: DeviceOption = "cpu"
    data_root: DataRootOption = None
    also: Annotated[
        str | None,
        Option(
            "Also write these formats into --out, comma-separated: junit, sarif.",
            "NAME,…",
        ),
    ] = None


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and the results.")] = Path(
        "dpaudit-demo"
    ),
    jobs: Annotated[
        str, typer.Option(metavar="N|all", help="Worker processes on this machine; 1 starts none.")
    ] = "all",
    also: AlsoOption = None,
    output: FormatOption = "text",
) -> None:
    """Show the whole story on real data, offline, in a minute.

    Releases one DP histogram of 3,143 US counties with seven samplers: an honest
    one, and two backdoored ones, each alone and behind two defences.

    [bold]Examples[/bold]

    $ dpaudit demo
    $ dpaudit demo --out first --also junit
    """
    from dpaudit.experiments import Store, load_spec
    from dpaudit.experiments.run import RunOptions
    from dpaudit.experiments.store import FILE

    formats = formats_of(also, out=out)
    if (out / FILE).exists():  # an earlier demo is replaced
        with Store.read(out) as store:
            name = store.spec.get("name")
        if name != "demo":
            raise StoreError(
                f"out={out}: holds results of {name!r}, not of a demo; choose another --out"
            )
        for file in out.glob(f"{FILE}*"):
            file.unlink()
    options = RunOptions(out=out, jobs=jobs, command="dpaudit demo")
    _run(load_spec("demo"), options, output=output, also=formats)


@with_shared_options
def run(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="A name from dpaudit list experiments, or a SPEC.toml.",
            show_default=False,
            autocompletion=completion.experiments,
        ),
    ],
    *,
    flags: RunFlags,
    output: FormatOption = "text",
) -> None:
    """Run an experiment: a grid of host × source × mitigation × attack.

    Each finished cell is saved at once; a cell that fails does not stop the
    others. The numbers do not depend on where cells run. Exit code 0: all cells
    have a result, whatever they found. 3: some failed.

    [bold]Examples[/bold]

    $ dpaudit run gpm-fig4
    $ dpaudit run gpm-fig5 --trials 200 --jobs all --out runs/small
    $ dpaudit run my-experiment.toml --resume
    """
    from dpaudit.experiments import load_spec

    use_data_root(flags.data_root)
    spec = load_spec(experiment, trials=flags.trials, device=flags.device)
    if spec.measure != "attack" and not spec.columns:
        raise SpecError(
            f"spec={experiment}: [[column]] is missing; "
            f"add the columns of the table for measure={spec.measure!r}"
        )
    from dpaudit.experiments.run import RunOptions

    out = flags.out or _default_folder(spec)
    again = replace(flags, out=out, resume=True)
    arguments = ["dpaudit", "run", experiment, *arguments_of(flags, only=("trials", "device"))]
    options = RunOptions(
        out=out,
        resume=flags.resume,
        where=flags.where,
        jobs=flags.jobs,
        command=shlex.join(arguments),
    )
    more = arguments_of(again, only=("out", "resume", "data_root", "also"))
    formats = formats_of(flags.also, out=out)
    _run(spec, options, output=output, also=formats, resumed=shlex.join(more))


def _default_folder(spec: Spec) -> Path:
    """Where a run without ``--out`` goes: ``runs/`` and the experiment's own name."""
    name = re.sub(r"[^\w.-]+", "-", spec.name).strip("-.")
    return Path("runs") / (name[:_LONGEST_NAME] or "experiment")


def _run(
    spec: Spec, options: RunOptions, *, output: str, also: Sequence[str], resumed: str = ""
) -> None:
    """Run the cells that the folder lacks, write the report of all and show it."""
    out = options.out

    def started(_: object) -> None:
        nonlocal also
        also = remove_earlier(also, out, document="results.json")

    run_cells(spec, replace(options, on_open=started), resumed=resumed)
    report = _report(out)
    write_run(report, out, also=also)
    show(report, output=output, out=out)
    tell_failures(out)


def run_cells(spec: Spec, options: RunOptions, *, resumed: str = "") -> None:
    """Run the cells that ``options.out`` lacks; record the command and where it ran.

    Ctrl-C says what is on disk, and exits with 130; ``resumed`` are the options that, added to the
    command, resume it, or empty if it starts again from the beginning.

    Raises:
        UsageError: as :func:`~dpaudit.experiments.run_experiment`; columns or figures that no
            report can show.
    """
    from dpaudit.cli.progress import RunProgress
    from dpaudit.experiments.placement import place
    from dpaudit.experiments.run import run_with

    check_columns(spec)
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
            summary = replace(
                options,
                where=placement,
                jobs=1,
                command=command,
                on_start=progress.on_start,
                on_done=progress.on_done,
                on_result=progress.on_result,
            )
            run_with(spec, summary)
    except KeyboardInterrupt as interrupt:  # typer would end without a message
        stored = f"{progress.done:,} of {len(cells):,} cells are on disk in {options.out}"
        then = (
            f"this resumes it:\n{command} {resumed}"
            if resumed
            else f"{command} starts again from the beginning"
        )
        note(f"interrupted: {stored}; {then}")
        raise typer.Exit(130) from interrupt


def check_columns(spec: Spec) -> None:
    """Check that a report can show the columns and figures of ``spec``.

    Raises:
        UsageError: it cannot.
    """
    from dpaudit.experiments.measurements import read_measurements
    from dpaudit.experiments.results import Column, Figure, measured_nothing

    try:
        columns = convert_value(spec.columns, tuple[Column, ...])
        figures = convert_value(spec.figures, tuple[Figure, ...])
    except RefusedError as error:
        raise UsageError(
            f"experiment={spec.name}: columns or figures cannot be shown: {error}"
        ) from error
    read_measurements(measured_nothing(columns, figures))


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


def _report(folder: Path) -> Report:
    """Everything the folder holds, failures included; its command is the one of the first run."""
    from dpaudit.experiments.store import Store
    from dpaudit.experiments.stored import result_of

    with Store.read(folder) as store:
        return describe(result_of(store))


def report(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Folder with the results of an audit, a proof, a run or the demo.",
            show_default=False,
        ),
    ] = None,
    also: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Also write these formats, comma-separated: junit, sarif.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON Schema of all documents instead; needs no DIR."
        ),
    ] = False,
) -> None:
    """Write DIR/report.html, one self-contained page, from the results in DIR.

    [bold]Examples[/bold]

    $ dpaudit report runs/demo
    $ dpaudit report audit --also junit,sarif
    """
    if schema:
        from dpaudit.render.documents import schema_text

        print(schema_text(), end="")
        return
    if folder is None:
        raise UsageError("dir=: name the folder of an audit, a run or the demo: dpaudit report DIR")
    formats = formats_of(also, out=folder)
    if os.path.isfile(folder / "result.json"):  # False for a name that is too long
        emit(str(rewrite_report(folder / "result.json", formats)))
        return
    from dpaudit.experiments.store import reading_errors

    with reading_errors(folder):
        write_run(_report(folder), folder, also=formats)
    emit(str(folder / "report.html"))
