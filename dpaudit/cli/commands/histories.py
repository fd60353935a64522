"""The releases of a library, audited one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.studies.history.options import HistoryOptions, Place

__all__ = ["history"]


@with_shared_options
def history(
    library: Annotated[
        str,
        typer.Argument(
            metavar="LIBRARY[:MECHANISM]",
            help="A library by its adapter's name; see above.",
            show_default=False,
        ),
    ],
    *,
    versions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Releases, as pip writes them: '>=0.10,<0.15'; repeatable, one must match. All by default.",
            show_default=False,
        ),
    ] = None,
    options: HistoryOptions,
    jobs: Annotated[
        str, typer.Option(metavar="N|all", help="Releases at a time; 1 starts no processes.")
    ] = "1",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume an interrupted history; its releases are kept."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results; runs/history-LIBRARY by default.", show_default=False
        ),
    ] = None,
    place: Place,
    output: FormatOption = "text",
) -> None:
    r"""Audit the releases of a library: which is the first bad one, and which the last?

    Every release is installed by pip (wheels only) in an environment of its
    own, and audited from outside it: its noise by the same tests as dpaudit
    audit, its mechanisms by attacks of dpaudit mechanism. A release without a
    wheel for this Python has a row that says so.

    [bold]LIBRARY[/bold] is one of opendp, diffprivlib, opacus, python-dp,
    pipeline-dp, smartnoise, tmlt-core, numpy and scipy, which have checks of
    their own, or any other of dpaudit list mechanisms. With a MECHANISM, with
    options or without, only that one is audited. opacus takes torch from this
    Python.

    Each release is saved when it is audited. Exit code 0: no finding. 1: a
    finding in any release. 3: no release could be audited, or the package index
    could not be reached.

    [bold]Examples[/bold]

    $ dpaudit history opendp --versions '>=0.10'
    $ dpaudit history opendp:discrete-gaussian:scale=2 --versions '>=0.14,<0.15'
    $ dpaudit history numpy --versions '==1.26.4' --versions '>=2.4' \
        --allow-predictable
    """
    from dpaudit.cli import histories

    histories.history(
        library,
        versions=versions or (),
        options=options,
        jobs=jobs,
        resume=resume,
        out=out,
        place=place,
        output=output,
    )
