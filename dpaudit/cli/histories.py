"""``dpaudit history``."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from dpaudit.audit.options import AuditOptions, MechanismOptions
from dpaudit.cli.output import emit, note, out_console, write_json_line
from dpaudit.cli.running import run_cells, tell_failures
from dpaudit.documents import MeasurementsDocument
from dpaudit.errors import StoreError
from dpaudit.experiments.options import RunOptions
from dpaudit.experiments.store import FILE, Store
from dpaudit.experiments.stored import document_of
from dpaudit.report import measurements_table, write_json, write_report
from dpaudit.studies.history.installing import versions as known_versions
from dpaudit.studies.history.spec import history_spec
from dpaudit.studies.history.subjects import subject
from dpaudit.types import to_dict

__all__ = ["Place", "history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where releases are installed, and from what; it changes no number."""

    cache: Path | None = None
    offline: bool = False
    keep: bool = False

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Tell this process and its children, until the block ends."""
        before = dict(os.environ)
        given = {
            "DPAUDIT_HISTORY": "" if self.cache is None else str(self.cache.resolve()),
            "DPAUDIT_HISTORY_OFFLINE": "1" if self.offline else "",
            "DPAUDIT_HISTORY_KEEP": "1" if self.keep else "",
        }
        os.environ.update({name: value for name, value in given.items() if value})
        try:
            yield
        finally:
            for name in given:
                os.environ.pop(name, None)
            os.environ.update({name: before[name] for name in given if name in before})

    @property
    def words(self) -> list[str]:
        """Its options, as they are written."""
        words = [] if self.cache is None else ["--cache", str(self.cache)]
        return [*words, *["--offline"] * self.offline, *["--keep"] * self.keep]


def history(
    library: str,
    *,
    versions: Sequence[str],
    samples: int,
    releases: int,
    alpha: float,
    seed: str,
    allow_predictable: bool,
    jobs: str,
    resume: bool,
    out: Path | None,
    place: Place,
    output: str,
) -> None:
    """Audit the releases, write the table and its page, and exit with what was found."""
    AuditOptions(samples=samples, alpha=alpha)
    MechanismOptions(samples=releases, alpha=alpha)
    name, _, mechanism = library.partition(":")
    out = Path("runs") / f"history-{name}" if out is None else out
    words = ["dpaudit", "history", library]
    words += [word for text in versions for word in ("--versions", text)]
    words += ["--samples", str(samples), "--releases", str(releases), "--seed", seed]
    words += ["--alpha", f"{alpha:g}"] if alpha != 0.01 else []
    words += ["--allow-predictable"] * allow_predictable
    options = RunOptions(out=out, resume=resume, jobs=jobs, command=shlex.join(words))
    with place.used():
        found = _earlier(out) if resume else None
        spec = history_spec(
            name,
            mechanism=mechanism,
            versions=found or known_versions(subject(name).library.distribution, versions),
            samples=samples,
            releases=releases,
            alpha=alpha,
            seed=seed,
            allow_predictable=allow_predictable,
        )
        run_cells(spec, options, resumed=shlex.join([*place.words, "--out", str(out), "--resume"]))
    document = _written(out)
    if output == "json":
        write_json_line(to_dict(document))
    else:
        emit(measurements_table(document, width=out_console().width))
        note(f"report: {out / 'report.html'}")
    verdicts = {row["verdict"] for row in document.rows}
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


def _written(out: Path) -> MeasurementsDocument:
    with Store.read(out) as store:
        document = document_of(store)
    assert isinstance(document, MeasurementsDocument)  # noqa: S101 the spec's measure has columns
    try:
        write_json(document, out / "results.json")
        write_report(document, out / "report.html")
    except OSError as error:
        raise StoreError(
            f"out={out}: the report cannot be written ({error.strerror}); all results are kept; "
            f"free space, then run dpaudit report {out}"
        ) from error
    return document
