"""What both audits share: progress, inconclusive documents, files, the table, the exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from dpaudit.cli.formats import write_formats
from dpaudit.cli.output import emit, note, write_json_line
from dpaudit.cli.progress import AuditProgress
from dpaudit.cli.readiness import be_ready
from dpaudit.documents import (
    AuditDocument,
    DeterminismDocument,
    MechanismDocument,
    ProofDocument,
    of_result,
)
from dpaudit.errors import SamplerError, UsageError
from dpaudit.report.reading import Document
from dpaudit.samplers.sandbox.policy import Policy
from dpaudit.types import AuditResult, MechanismResult, to_dict

if TYPE_CHECKING:
    from rich.console import Group

    from dpaudit.deployments.apple.document import AppleDocument
    from dpaudit.deployments.attribution.document import AttributionDocument
    from dpaudit.deployments.census.document import CensusDocument

__all__ = ["audited", "leave", "printed", "write_page"]

R = TypeVar("R", bound=AuditResult | MechanismResult)
_UNWRAPPED = (AuditDocument, MechanismDocument, ProofDocument, DeterminismDocument)
_EXIT = {"no-finding": 0, "finding": 1, "inconclusive": 3}


def audited(
    work: Callable[[Callable[[int, int], None]], R],
    *,
    command: str,
    shown: AuditProgress,
    nothing: Callable[[str, float], AuditResult | MechanismResult],
    out: Path | None,
    also: Sequence[str],
    output: str,
    held: Policy,
    releases: bool = False,
    tests: tuple[str, ...] | None = None,
) -> R:
    """The result of ``work(progress)``, with its ``command``; the progress is ``shown``.

    ``releases`` and ``tests`` as for :func:`~dpaudit.cli.readiness.be_ready`.

    A sampler that fails is an error and also an inconclusive result: ``nothing(reason, seconds)``
    goes to ``out`` like any other, so that no earlier report stays there, and with ``--format
    json`` to stdout instead of the error. Ctrl-C says what was lost, and exits with 130.
    """
    started = time.monotonic()
    be_ready(writes=out is not None, releases=releases, tests=tests)
    try:
        with shown:
            result = _made_by(command, work(shown))
    except SamplerError as error:
        failed = nothing(str(error), time.monotonic() - started)
        document = of_result(_made_by(command, failed))
        if out is not None:
            write_page(document, out, also=also)
        if output != "json":
            raise
        write_json_line(printed(document))
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        where = "" if out is None else f", and {out} holds no result"
        note(
            f"interrupted: {shown.done:,} of {shown.total:,} {shown.what} are lost{where}; "
            "an audit keeps nothing before its end, so repeat the command"
        )
        raise typer.Exit(130) from interrupt
    if held.shortfall:
        note(
            f"sandbox: {held.shortfall} "
            "(--sandbox require would have refused; docs/threat-models.md says what still holds)"
        )
    return result


def _made_by(command: str, result: R) -> R:
    return replace(result, provenance=replace(result.provenance, command=command))


def write_page(document: Document, out: Path, *, also: Sequence[str] = ()) -> None:
    """Write ``result.json``, ``report.html`` and the formats of ``--also`` into ``out``.

    Raises:
        UsageError: it cannot be written.
    """
    from dpaudit.report import write_json, write_report

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(document, out / "result.json")
        write_report(document, out / "report.html")
    except OSError as error:
        raise UsageError(
            f"out={out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    write_formats(document, also, out)


def printed(document: Document) -> dict[str, Any]:
    """What ``--format json`` prints of a document; of an audit or proof the result, unwrapped."""
    if isinstance(document, _UNWRAPPED):
        return {"schema": document.schema, **to_dict(document.result)}
    return dict(to_dict(document))


def leave(
    document: (
        AuditDocument | MechanismDocument | AppleDocument | AttributionDocument | CensusDocument
    ),
    text: Callable[[], Group],
    *,
    out: Path | None,
    output: str,
) -> NoReturn:
    """Print the document, or its ``text``, the last part of which is the verdict; then exit.

    The verdict is the last line on a terminal, and the exit code is its own.
    """
    from rich.console import Group

    if output == "json":
        write_json_line(printed(document))
    else:
        *details, verdict = text().renderables
        emit(Group(*details))
        if out is not None:
            note(f"report: {out / 'report.html'}")
        emit(verdict)
    raise typer.Exit(_EXIT[document.verdict])
