"""``dpaudit runs``: list, show, compare, export and merge what ``dpaudit run`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli.help import App
from dpaudit.cli.options import FormatOption

__all__ = ["runs_app"]

runs_app = App(
    help=(
        "Look at runs: list, show, compare, export, merge.\n\n"
        "$ dpaudit runs list\n"
        "$ dpaudit runs show runs/demo"
    )
)


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
    from dpaudit.cli import runs_text

    runs_text.show_list(folder, output)


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
    from dpaudit.cli import runs_text
    from dpaudit.experiments.store import as_written

    with as_written(folder):
        runs_text.show_run(folder, cell=cell, failed=failed, output=output)


@runs_app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run's folder.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another run's.", show_default=False)],
    output: FormatOption = "text",
) -> None:
    """Compare two runs: numbers, seeds, versions, plug-ins' sources, hardware.

    Cells are matched by id in two runs of one experiment, otherwise by settings
    apart from seed, trials and device. Exit code 0: all cells are identical, or
    their intervals overlap (the output says which). 1: some differ. 2: nothing
    to compare.

    [bold]Examples[/bold]

    $ dpaudit runs diff runs/gpm-fig5 runs/gpm-fig5-seed2
    $ dpaudit runs diff runs/old runs/new --format json
    """
    from dpaudit.cli import runs_text
    from dpaudit.experiments.store import as_written

    with as_written(a, b):
        agree = runs_text.show_difference(a, b, output)
    if not agree:
        raise typer.Exit(1)


@runs_app.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run's folder.", show_default=False)
    ],
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Ends with .parquet, .csv or .json; replaced.", show_default=False
        ),
    ],
    trials: Annotated[
        bool,
        typer.Option(
            "--trials", help="Export every stored trial instead (needs keep_trials = true)."
        ),
    ] = False,
) -> None:
    """Export a run's rows, or its trials, as a flat table of typed columns.

    [bold]Examples[/bold]

    $ dpaudit runs export runs/demo --to demo.parquet
    $ dpaudit runs export runs/mine --to trials.csv --trials
    """
    from dpaudit.cli import runs_text
    from dpaudit.experiments.store import as_written

    with as_written(folder):
        runs_text.export(folder, to=to, trials=trials)


@runs_app.command()
def merge(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Folder for the whole run, new or merged.", show_default=False
        ),
    ],
    parts: Annotated[
        list[Path],
        typer.Argument(metavar="PART", help="Folders of dpaudit run --shard.", show_default=False),
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Merge what there is, though cells are missing.")
    ] = False,
    output: FormatOption = "text",
) -> None:
    """Merge the shards of an experiment into one run, with its table and report.

    The table is the one that a single run gives. All parts are checked before
    anything is written: they must be of one experiment and by the same sources
    of dpaudit, and a cell that two parts hold must have the same numbers. OUT
    is a run as others: dpaudit run NAME --out OUT --resume does what it lacks.
    Exit code 0: all cells have a result. 3: some failed, or are missing
    (--partial).

    [bold]Examples[/bold]

    $ dpaudit runs merge runs/gpm-fig5 runs/gpm-fig5-*of8
    $ dpaudit runs merge runs/all node1/runs/a node2/runs/b --partial
    """
    from dpaudit.cli import experiments

    experiments.merge(out, parts, partial=partial, output=output)
