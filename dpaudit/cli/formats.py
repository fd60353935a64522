"""``--also``: the same report for other programs, beside report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError

__all__ = ["formats_of", "read_report", "write_formats"]

_ALL = ("junit", "sarif", "markdown")


def formats_of(also: str | None, *, out: Path | None) -> tuple[str, ...]:
    """The formats that ``--also`` names, each once, in their order; checked before anything runs.

    Raises:
        UnknownNameError: a format that is not known.
        UsageError: no folder to write to.
    """
    if also is None:
        return ()
    names = tuple(dict.fromkeys(name.strip().lower() for name in also.split(",")))
    for name in names:
        if name not in _ALL:
            near = registry.nearest(name, _ALL)
            near = near if "did you mean" in near else ""
            raise UnknownNameError(
                f"also={also}: {name!r} is not a format{near}; formats, with commas: {', '.join(_ALL)}"
            )
    if out is None:
        raise UsageError(f"also={also}: there is no folder to write to; add --out DIR")
    return names


def write_formats(document: Mapping[str, Any], formats: Sequence[str], folder: Path) -> None:
    """Write ``report.junit.xml``, ``report.sarif``, ``report.md`` into ``folder``: those asked for, and those already there.

    What an earlier ``--also`` left would otherwise stay beside a new result, and a CI system would read its old verdict.

    Raises:
        UsageError: a file cannot be written.
    """
    from dpaudit.report.formats import write_format, written

    try:
        for name in dict.fromkeys([*formats, *written(folder)]):
            write_format(document, name, folder)
    except OSError as error:
        raise UsageError(f"out={folder}: cannot be written ({error.strerror}); choose another --out") from error


def read_report(path: Path, formats: Sequence[str]) -> Path:
    """Make the page, and ``formats``, of the document at ``path`` anew, beside it; returns the page.

    Raises:
        UsageError: it is no report, or one that somebody has changed so that it says nothing.
    """
    from dpaudit.report import printable, write_report
    from dpaudit.report.formats import read_document

    document = read_document(path)
    try:
        page = write_report(document, path.with_name("report.html"))
        write_formats(document, formats, path.parent)
    except UsageError as error:
        raise UsageError(f"file={path}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"file={path}: not as dpaudit wrote it ({type(error).__name__}: {printable(error, limit=200)}); repeat the audit "
            "or run, or see where it differs from the schema: dpaudit report --schema"
        ) from error
    return page
