"""``dpaudit history``."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from dpaudit.cli.running import run_cells, tell_failures
from dpaudit.cli.verdicts import show, write_run
from dpaudit.errors import StoreError
from dpaudit.experiments.options import RunOptions
from dpaudit.experiments.results import MeasurementsResult
from dpaudit.experiments.store import FILE, Store
from dpaudit.experiments.stored import result_of
from dpaudit.options import words_of
from dpaudit.report import describe
from dpaudit.studies.history.installing import versions as known_versions
from dpaudit.studies.history.options import HistoryOptions, Place
from dpaudit.studies.history.spec import history_spec
from dpaudit.studies.history.subjects import subject

__all__ = ["history"]


@contextlib.contextmanager
def _used(place: Place) -> Iterator[None]:
    """Tell this process and its children where, until the block ends."""
    before = dict(os.environ)
    given = {
        "DPAUDIT_HISTORY": "" if place.cache is None else str(place.cache.resolve()),
        "DPAUDIT_HISTORY_OFFLINE": "1" if place.offline else "",
        "DPAUDIT_HISTORY_KEEP": "1" if place.keep else "",
    }
    os.environ.update({name: value for name, value in given.items() if value})
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in given if name in before})


def history(
    library: str,
    *,
    versions: Sequence[str],
    options: HistoryOptions,
    jobs: str,
    resume: bool,
    out: Path | None,
    place: Place,
    output: str,
) -> None:
    """Audit the releases, write the table and its page, and exit with what was found."""
    name, _, mechanism = library.partition(":")
    out = Path("runs") / f"history-{name}" if out is None else out
    words = ["dpaudit", "history", library]
    words += [word for text in versions for word in ("--versions", text)]
    words += words_of(options)
    run = RunOptions(out=out, resume=resume, jobs=jobs, command=shlex.join(words))
    with _used(place):
        found = _earlier(out) if resume else None
        spec = history_spec(
            name,
            mechanism=mechanism,
            versions=found or known_versions(subject(name).library.distribution, versions),
            options=options,
        )
        run_cells(spec, run, resumed=shlex.join([*words_of(place), "--out", str(out), "--resume"]))
    result = _result(out)
    report = describe(result)
    write_run(report, out)
    show(report, output=output, out=out)
    verdicts = {row["verdict"] for row in result.rows}
    if "finding" in verdicts:
        raise typer.Exit(1)
    tell_failures(out)
    if "no-finding" not in verdicts:
        raise typer.Exit(3)


def _earlier(out: Path) -> list[str] | None:
    """The releases of an earlier start, which stay the same: the index may have newer ones."""
    if not (out / FILE).exists():
        return None
    with Store.read(out) as store:
        found = store.spec.get("grid", {}).get("version")
    if not isinstance(found, list):
        raise StoreError(f"out={out}: holds no history; choose another --out")
    return [str(version) for version in found]


def _result(out: Path) -> MeasurementsResult:
    with Store.read(out) as store:
        result = result_of(store)
    assert isinstance(result, MeasurementsResult)  # noqa: S101 the spec's measure has columns
    return result
