"""``dpaudit history``: the releases of a library, audited one by one."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli.options import FormatOption, with_shared_options
from dpaudit.cli.out_folder import write_run
from dpaudit.cli.verdicts import show
from dpaudit.errors import StoreError
from dpaudit.options import Argument, Option, arguments_of
from dpaudit.report import describe
from dpaudit_studies.history.options import HistoryOptions, Place

__all__ = ["history"]


@with_shared_options
def history(
    library: Annotated[
        str, Argument("A library by its adapter's name; see above.", "LIBRARY[:MECHANISM]")
    ],
    *,
    versions: Annotated[
        list[str] | None,
        Option(
            "Releases, as pip writes them: '>=0.10,<0.15'; repeatable, one must match. All by default.",
            "SPEC",
        ),
    ] = None,
    options: HistoryOptions,
    jobs: Annotated[str, Option("Releases at a time; 1 starts no processes.", "N|all")] = "1",
    resume: Annotated[
        bool, Option("Resume an interrupted history; its releases are kept.")
    ] = False,
    out: Annotated[
        Path | None, Option("Folder for results; runs/history-LIBRARY by default.")
    ] = None,
    place: Place,
    output: FormatOption = "text",
) -> None:
    r"""Audit the releases of a library: which is the first bad one, and which the last?

    Every release is installed by pip (wheels only) in an environment of its
    own, and audited from outside it: its noise by the same tests as dpaudit
    audit, its mechanisms by attacks of dpaudit mechanism. A release without a
    wheel for this Python gets a row with the reason.

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
    from dpaudit.cli.commands.run import run_cells
    from dpaudit.experiments.results import MeasurementsResult
    from dpaudit.experiments.run import RunOptions
    from dpaudit.experiments.store import Store
    from dpaudit.experiments.stored import result_of
    from dpaudit_studies.history.installing import versions as known_versions
    from dpaudit_studies.history.measure import history_spec
    from dpaudit_studies.history.subjects import subject

    name, _, mechanism = library.partition(":")
    out = Path("runs") / f"history-{name}" if out is None else out
    arguments = ["dpaudit", "history", library]
    arguments += [word for text in versions or () for word in ("--versions", text)]
    arguments += arguments_of(options)
    run = RunOptions(out=out, resume=resume, jobs=jobs, command=shlex.join(arguments))
    with _used(place):
        earlier = _earlier(out) if resume else None
        spec = history_spec(
            name,
            mechanism=mechanism,
            versions=earlier or known_versions(subject(name).library.distribution, versions or ()),
            options=options,
        )
        run_cells(
            spec, run, resumed=shlex.join([*arguments_of(place), "--out", str(out), "--resume"])
        )
    with Store.read(out) as store:
        result = result_of(store)
    assert isinstance(result, MeasurementsResult)  # noqa: S101 the spec's measure has columns
    report = describe(result)
    write_run(report, out)
    show(report, output=output, out=out)
    _exit({row["verdict"] for row in result.rows}, out)


def _exit(verdicts: set[str], out: Path) -> None:
    """Exit with 1 or 3, unless a release was audited and none had a finding."""
    from dpaudit.cli.commands.run import tell_failures

    if "finding" in verdicts:
        raise typer.Exit(1)
    tell_failures(out)
    if "no-finding" not in verdicts:
        raise typer.Exit(3)


@contextlib.contextmanager
def _used(place: Place) -> Iterator[None]:
    """Tell this process and its children where, until the block ends."""
    before = dict(os.environ)
    variables = {
        "DPAUDIT_HISTORY": "" if place.cache is None else str(place.cache.resolve()),
        "DPAUDIT_HISTORY_OFFLINE": "1" if place.offline else "",
        "DPAUDIT_HISTORY_KEEP": "1" if place.keep else "",
    }
    os.environ.update({name: value for name, value in variables.items() if value})
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in variables if name in before})


def _earlier(out: Path) -> list[str] | None:
    """The releases of an earlier start, which stay the same: the index may have newer ones."""
    from dpaudit.experiments.store import FILE, Store

    if not (out / FILE).exists():
        return None
    with Store.read(out) as store:
        versions = store.spec.get("grid", {}).get("version")
    if not isinstance(versions, list):
        raise StoreError(f"out={out}: holds no history; choose another --out")
    return [str(version) for version in versions]
