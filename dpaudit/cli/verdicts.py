"""What commands with a verdict share: progress, inconclusive results, files, print, exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

import typer

from dpaudit.cli.earlier import refuse_another
from dpaudit.cli.formats import formats_of, without_earlier, write_formats, writing
from dpaudit.cli.options import Output
from dpaudit.cli.output import emit, note, out_console, write_json_line
from dpaudit.errors import SamplerError, StoreError, UsageError
from dpaudit.report import SCHEMA, Report, describe

if TYPE_CHECKING:
    from dpaudit.audit.result import AuditResult, MechanismResult
    from dpaudit.cli.progress import AuditProgress
    from dpaudit.types import Provenance

__all__ = [
    "audited",
    "exit_with_verdict",
    "finish",
    "prepared",
    "printed",
    "show",
    "with_command",
    "write_result",
    "write_run",
]


class _Made(Protocol):
    """A dataclass that says how it was made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def provenance(self) -> Provenance: ...


R = TypeVar("R", bound=_Made)
_EXIT = {"no-finding": 0, "finding": 1, "inconclusive": 3}


def audited(
    work: Callable[[Callable[[int, int], None]], R],
    *,
    command: str,
    shown: AuditProgress,
    nothing: Callable[[str, float], AuditResult | MechanismResult],
    to: Output,
    formats: Sequence[str],
    releases: bool = False,
    tests: tuple[str, ...] | None = None,
) -> R:
    """The result of ``work(progress)``, with its ``command``; the progress is ``shown``.

    ``releases`` and ``tests`` as for :func:`~dpaudit.cli.readiness.be_ready`.

    A sampler that fails is an error and also an inconclusive result: ``nothing(reason, seconds)``
    goes to ``to.out``, in ``formats``, like any other, so that no earlier report stays there, and
    with ``--format json`` to stdout instead of the error. Ctrl-C says what was lost, and exits with
    130.
    """
    from dpaudit.cli.readiness import be_ready

    started = time.monotonic()
    be_ready(writes=to.out is not None, releases=releases, tests=tests)
    try:
        with shown:
            return with_command(command, work(shown))
    except SamplerError as error:
        failed = nothing(str(error), time.monotonic() - started)
        report = describe(with_command(command, failed))
        if to.out is not None:
            write_result(report, to.out, also=formats)
        if to.output != "json":
            raise
        write_json_line(printed(report))
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        where = "" if to.out is None else f", and {to.out} holds no result"
        note(
            f"interrupted: {shown.done:,} of {shown.total:,} {shown.what} are lost{where}; "
            "an audit keeps nothing before its end, so repeat the command"
        )
        raise typer.Exit(130) from interrupt


def prepared(to: Output, command: str = "", *, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The formats to write to ``to.out``, which then holds no earlier verdict.

    With a ``command``, a folder that holds another audit is refused. ``others`` as for
    :func:`~dpaudit.cli.formats.without_earlier`. Call it once nothing but the work can fail.

    Raises:
        UsageError: as :func:`~dpaudit.cli.formats.formats_of` and ``without_earlier``.
        StoreError: as :func:`~dpaudit.cli.earlier.refuse_another`.
    """
    formats = formats_of(to.also, out=to.out)
    if command:
        refuse_another(to.out, command)
    return without_earlier(formats, to.out, others=others)


def with_command(command: str, result: R) -> R:
    """The result, whose provenance names the command that made it."""
    return replace(result, provenance=replace(result.provenance, command=command))


def write_result(
    report: Report, out: Path, *, also: Sequence[str] = (), name: str = "result.json"
) -> None:
    """Write the report as JSON under ``name``, ``report.html`` and the formats of ``--also``.

    Raises:
        UsageError: it cannot be written.
    """
    from dpaudit.render import write_report

    with writing(out):
        write_report(report, out / name, format="json")
        write_report(report, out / "report.html")
    write_formats(report, also, out)


def write_run(report: Report, out: Path, *, also: Sequence[str] = ()) -> None:
    """Write the report of a run, whose results lie in ``out`` already, as ``results.json``.

    Raises:
        StoreError: it cannot be written; the results are kept.
    """
    try:
        write_result(report, out, also=also, name="results.json")
    except UsageError as error:
        raise StoreError(
            f"{error}; all results are kept; free space, then run dpaudit report {out}"
        ) from error


def printed(report: Report) -> dict[str, Any]:
    """What ``--format json`` prints: the result itself, with its schema and kind."""
    return {"schema": SCHEMA, "kind": report.kind, **report.data}


def show(report: Report, *, output: str, out: Path | None) -> None:
    """Print the report, and where its page is."""
    from dpaudit.render import render_terminal

    if output == "json":
        write_json_line(printed(report))
        return
    emit(render_terminal(report, width=out_console().width))
    if out is not None:
        note(f"report: {out / 'report.html'}")


def finish(
    report: Report,
    *,
    out: Path | None,
    also: Sequence[str],
    output: str,
    verbose: bool,
    notes: Sequence[str] = (),
) -> NoReturn:
    """Write the report into ``out``, if that is given, and exit with its verdict."""
    if out is not None:
        write_result(report, out, also=also)
    exit_with_verdict(report, out=out, output=output, verbose=verbose, notes=notes)


def exit_with_verdict(
    report: Report,
    *,
    out: Path | None,
    output: str,
    verbose: bool = False,
    notes: Sequence[str] = (),
) -> NoReturn:
    """Print the report, whose last part is the verdict; then exit with its code."""
    from rich.console import Group

    from dpaudit.render import render_terminal

    if output == "json":
        write_json_line(printed(report))
    else:
        *details, verdict = render_terminal(
            report, verbose=verbose, width=out_console().width
        ).renderables
        emit(Group(*details))
        for line in notes:
            note(line)
        if out is not None:
            note(f"report: {out / 'report.html'}")
        emit(verdict)
    raise typer.Exit(_EXIT[report.verdict])
