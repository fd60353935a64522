"""What commands with a verdict share: progress, inconclusive results, printing, exit codes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

import typer

from dpaudit.cli.options import Output
from dpaudit.cli.out_folder import write_result
from dpaudit.cli.output import emit, note, out_console, write_json_line
from dpaudit.errors import SamplerError
from dpaudit.report import SCHEMA, Report, describe

if TYPE_CHECKING:
    from dpaudit.cli.progress import AuditProgress
    from dpaudit.types import Provenance

__all__ = ["audit_with_progress", "exit_with_verdict", "finish", "show", "with_command"]


class _Made(Protocol):
    """A dataclass that says how it was made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def provenance(self) -> Provenance: ...


R = TypeVar("R", bound=_Made)
_EXIT = {"no-finding": 0, "finding": 1, "inconclusive": 3}


def audit_with_progress(
    work: Callable[[Callable[[int, int], None]], R],
    *,
    command: str,
    display: AuditProgress,
    nothing: Callable[[str, float], _Made],
    to: Output,
    formats: Sequence[str],
    releases: bool = False,
    tests: tuple[str, ...] | None = None,
) -> R:
    """The result of ``work(progress)``, with its ``command``; the progress is ``display``.

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
        with display:
            return with_command(command, work(display))
    except SamplerError as error:
        failed = nothing(str(error), time.monotonic() - started)
        report = describe(with_command(command, failed))
        if to.out is not None:
            write_result(report, to.out, also=formats)
        if to.output != "json":
            raise
        write_json_line(json_document(report))
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        where = "" if to.out is None else f", and {to.out} holds no result"
        what = f"interrupted: {display.done:,} of {display.total:,} {display.what} are"
        if display.kept is not None and display.kept.exists():
            note(f"{what} in {display.kept}{where}; repeat the command to go on")
        else:
            note(
                f"{what} lost{where}; an audit keeps nothing before its end, so repeat the command"
            )
        raise typer.Exit(130) from interrupt


def with_command(command: str, result: R) -> R:
    """The result, whose provenance names the command that made it."""
    return replace(result, provenance=replace(result.provenance, command=command))


def json_document(report: Report) -> dict[str, Any]:
    """What ``--format json`` prints: the result itself, with its schema and kind."""
    return {"schema": SCHEMA, "kind": report.kind, **report.data}


def show(report: Report, *, output: str, out: Path | None) -> None:
    """Print the report, and where its page is."""
    from dpaudit.render.terminal import render_terminal

    if output == "json":
        write_json_line(json_document(report))
        return
    emit(render_terminal(report, width=out_console().width))
    if out is not None:
        note(f"report: {out / 'report.html'}")


def finish(
    report: Report, to: Output, *, also: Sequence[str] = (), notes: Sequence[str] = ()
) -> NoReturn:
    """Write the report into ``to.out``, if that is given, and exit with its verdict."""
    if to.out is not None:
        write_result(report, to.out, also=also)
    exit_with_verdict(report, to, notes=notes)


def exit_with_verdict(report: Report, to: Output, *, notes: Sequence[str] = ()) -> NoReturn:
    """Print the report, whose last part is the verdict; then exit with its code."""
    from rich.console import Group

    from dpaudit.render.terminal import render_terminal

    if to.output == "json":
        write_json_line(json_document(report))
    else:
        *details, verdict = render_terminal(
            report, verbose=to.verbose, width=out_console().width
        ).renderables
        emit(Group(*details))
        for line in notes:
            note(line)
        if to.out is not None:
            note(f"report: {to.out / 'report.html'}")
        emit(verdict)
    raise typer.Exit(_EXIT[report.verdict])
