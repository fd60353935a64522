"""A folder that holds an earlier audit: the same one is replaced, another one is not."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from pathlib import Path

from dpaudit.audit.commands import apart_from_the_seed
from dpaudit.documents import (
    AuditDocument,
    DeterminismDocument,
    MechanismDocument,
    ProofDocument,
)
from dpaudit.errors import StoreError, UsageError
from dpaudit.report import Document, read_document
from dpaudit.results.text import one_line

__all__ = ["refuse_another"]

_WITH_COMMAND = (AuditDocument, MechanismDocument, ProofDocument, DeterminismDocument)


def refuse_another(out: Path | None, command: str) -> None:
    """Check that ``out`` can be written and holds no result but one of ``command``, of any seed.

    What dpaudit did not write, and results of versions that did not keep their command, count as
    nothing.

    Raises:
        StoreError: it holds another audit, or a run.
        UsageError: it cannot be written.
    """
    if out is None:
        return
    _refuse_unwritable(out)
    if (out / "results.sqlite").exists():
        raise StoreError(
            f"out={out}: holds a run, not an audit; choose another --out, or remove the folder"
        )
    try:
        before = read_document(out / "result.json")
    except UsageError:
        return
    earlier = _command(before)
    if earlier is None:
        return
    was, now = apart_from_the_seed(earlier), apart_from_the_seed(command)
    if was != now:
        raise StoreError(
            f"out={out}: holds the result of another audit ({one_line(shlex.join(was))}); "
            "choose another --out, or remove the folder"
        )


def _refuse_unwritable(out: Path) -> None:
    """Write into the folder and remove what was made: an audit has nothing to lose yet."""
    missing: list[Path] = []
    try:
        missing += (place for place in (out, *out.parents) if not place.exists())
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            f"out={out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    finally:
        for made in missing:
            with contextlib.suppress(OSError):
                made.rmdir()


def _command(document: Document) -> str | None:
    """The command that made it, '' for a deployment's audit; None if it is not known."""
    if not isinstance(document, _WITH_COMMAND):
        return f"dpaudit {document.kind}"
    try:
        apart_from_the_seed(document.result.provenance.command)
    except ValueError:  # changed by hand
        return None
    return document.result.provenance.command or None
