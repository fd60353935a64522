"""``dpaudit demo``, ``run`` and ``report``."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpaudit.cli.data import use_data_root
from dpaudit.cli.formats import formats_of, rewrite_report, without_earlier
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.cli.running import mine, run_cells, tell_failures
from dpaudit.cli.verdicts import printed, show, write_run
from dpaudit.codec import to_dict
from dpaudit.errors import SpecError, StoreError, UsageError
from dpaudit.experiments.options import RunOptions
from dpaudit.render.documents import schema_text
from dpaudit.report import Report, describe
from dpaudit.results.text import one_line, printable

if TYPE_CHECKING:
    from dpaudit.experiments import Spec, Store
    from dpaudit.experiments.shard import Shard

__all__ = ["default_folder", "demo", "merge", "report", "run"]

_LONGEST_NAME = 100


def demo(out: Path, output: str, *, jobs: str = "1", also: str | None = None) -> None:
    """Run the built-in experiment ``demo``; replaces an earlier demo in ``out``."""
    from dpaudit.experiments import Store

    formats = formats_of(also, out=out)
    if (out / "results.sqlite").exists():
        with Store.read(out) as store:
            name = store.spec.get("name")
        if name != "demo":
            raise StoreError(
                f"out={out}: holds results of {name!r}, not of a demo; choose another --out"
            )
        for file in out.glob("results.sqlite*"):
            file.unlink()
    options = RunOptions(out=out, jobs=jobs, command="dpaudit demo")
    _run("demo", options, trials=None, output=output, also=formats)


def default_folder(experiment: str, shard: Shard | None = None) -> Path:
    """Where a run without ``--out`` goes: ``runs/``, the experiment's own name and the shard.

    Raises:
        SpecError: as :func:`~dpaudit.experiments.load_spec`.
    """
    from dpaudit.experiments import load_spec

    name = re.sub(r"[^\w.-]+", "-", load_spec(experiment).name).strip("-.")
    part = "" if shard is None else f"-{shard.number}of{shard.of}"
    return Path("runs") / f"{name[:_LONGEST_NAME] or 'experiment'}{part}"


def run(
    experiment: str,
    options: RunOptions,
    *,
    trials: int | None = None,
    device: str = "cpu",
    data_root: Path | None = None,
    output: str = "text",
    log: Sequence[str] = (),
    also: str | None = None,
) -> None:
    """Run a named experiment or a spec file, and record the command with its results."""
    use_data_root(data_root)
    if also is not None and options.shard is not None:
        raise UsageError(
            f"also={also}: a shard has no report; leave --also out, and after the merge run "
            f"dpaudit report DIR --also {also}"
        )
    words = ["dpaudit", "run", experiment]
    words += ["--trials", str(trials)] if trials is not None else []
    words += ["--device", device] if device != "cpu" else []
    more = ["--out", str(options.out), "--resume"]
    more += ["--data-root", str(data_root)] if data_root is not None else []
    more += [word for one in log for word in ("--log", one)]
    more += ["--also", also] if also is not None else []
    formats = formats_of(also, out=options.out)
    _run(
        experiment,
        replace(options, command=shlex.join(words)),
        resumed=shlex.join(more),
        trials=trials,
        device=device,
        output=output,
        log=log,
        also=formats,
    )


def _run(
    name: str,
    options: RunOptions,
    *,
    trials: int | None,
    output: str,
    resumed: str = "",
    device: str = "cpu",
    log: Sequence[str] = (),
    also: Sequence[str] = (),
) -> None:
    from dpaudit.experiments import load_spec
    from dpaudit.experiments.loggers import open_loggers, run_start

    out, spec = options.out, load_spec(name, trials=trials, device=device)
    if spec.measure != "attack" and not spec.columns:
        raise SpecError(
            f"spec={name}: [[column]] is missing; "
            f"add the columns of the table for measure={spec.measure!r}"
        )
    with open_loggers(log, trouble=note) as loggers:

        def started(store: Store) -> None:
            nonlocal also
            also = without_earlier(also, out, document="results.json")
            if log:
                cells = len(mine(spec, options))
                loggers.start(run_start(store, cells=cells, command=options.command))

        prepared = replace(options, on_open=started, on_result=loggers.outcome)
        run_cells(spec, prepared, resumed=resumed)
        if options.shard is not None:
            loggers.end(_shard_end(out))
        else:
            report = _report(out)
            write_run(report, out, also=also)
            loggers.end(printed(report))
    if options.shard is not None:
        _show_shard(spec, options, output)
    else:
        show(report, output=output, out=out)
    tell_failures(out)


def merge(out: Path, parts: Sequence[Path], *, partial: bool, output: str) -> None:
    """Merge shards into ``out`` and write its report; exit 3 if cells failed or are missing."""
    from dpaudit.experiments.merge import merge as merged

    missing = merged(out, parts, partial=partial)
    report = _report(out)
    write_run(report, out)
    show(report, output=output, out=out)
    if missing:
        then = printable(f"{report.command} --out {shlex.quote(str(out))} --resume", limit=1000)
        note(f"{missing:,} cells have no result yet; this does them:\n{then}")
    tell_failures(out)
    if missing:
        raise typer.Exit(3)


def _shard_end(out: Path) -> dict[str, Any]:
    """What loggers are told in place of a document."""
    from dpaudit.experiments import Store

    with Store.read(out) as store:
        return {"summary": f"shard {store.shard}", "cells": to_dict(store.results())}


def _show_shard(spec: Spec, options: RunOptions, output: str) -> None:
    """A shard has no table: how far it is, and what comes next."""
    from dpaudit.experiments.stored import look_at

    run, whole = look_at(options.out), len(spec.cells())
    if output == "json":
        write_json_line(to_dict(run))
        return
    emit(
        f"Shard {options.shard} of {one_line(spec.name, limit=100)}: {run.done:,} of its "
        f"{run.cells:,} cells are done (the experiment has {whole:,})"
    )
    note(f"when all shards are done: dpaudit runs merge OUT {options.out} OTHER-PARTS…")


def _report(folder: Path) -> Report:
    """Everything the folder holds, failures included; its command is the one of the first run."""
    from dpaudit.experiments.store import Store
    from dpaudit.experiments.stored import result_of

    with Store.read(folder) as store:
        return describe(result_of(store))


def report(folder: Path | None, *, also: str | None = None, schema: bool = False) -> None:
    """Write the page and other formats for a results folder, or print the schema of reports."""
    if schema:
        print(schema_text(), end="")
        return
    if folder is None:
        raise UsageError("dir=: name the folder of an audit, a run or the demo: dpaudit report DIR")
    formats = formats_of(also, out=folder)
    if os.path.isfile(folder / "result.json"):  # False for a name that is too long
        emit(str(rewrite_report(folder / "result.json", formats)))
        return
    from dpaudit.experiments.store import as_written

    with as_written(folder):
        write_run(_report(folder), folder, also=formats)
    emit(str(folder / "report.html"))
