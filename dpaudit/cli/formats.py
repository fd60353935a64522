"""``--also``: the same report for other programs, next to report.html."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit import registry
from dpaudit.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from dpaudit.report import Report

__all__ = ["formats_of", "rewrite_report", "without_earlier", "write_formats", "writing"]

_ALL = ("junit", "sarif", "markdown")
# near the beginning of documents that dpaudit wrote
_MARKS = (b'"dpaudit-report/', b'"dpaudit-recovered-')


def formats_of(also: str | None, *, out: Path | None) -> tuple[str, ...]:
    """The formats that ``--also`` names, each once and in order; checked before anything runs.

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
                f"also={also}: {name!r} is not a format{near}; "
                f"choose from, comma-separated: {', '.join(_ALL)}"
            )
    if out is None:
        raise UsageError(f"also={also}: there is no folder to write to; add --out DIR")
    return names


def without_earlier(
    formats: Sequence[str],
    folder: Path | None,
    *,
    document: str = "result.json",
    others: Iterable[str] = (),
) -> tuple[str, ...]:
    """Remove an earlier run's report from ``folder``; returns ``formats`` and the earlier ones.

    A run that stops from here on leaves no earlier verdict. ``document`` and ``report.html`` are
    always removed, as they would be replaced; the other formats, documents and ``others`` (names)
    only if dpaudit wrote them.

    Raises:
        UsageError: a file cannot be removed.
    """
    from dpaudit.render import FORMATS, written

    if folder is None:
        return tuple(formats)
    earlier = written(folder)
    names = [document, "report.html", *(FORMATS[name][0] for name in earlier)]
    names += [name for name in ("result.json", "results.json", *others) if _ours(folder / name)]
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # there is no such folder; writing reports it
    except OSError as error:
        raise UsageError(
            f"out={folder}: {name} of an earlier run cannot be removed ({error.strerror}); "
            "choose another --out"
        ) from error
    return tuple(dict.fromkeys([*formats, *earlier]))


def _ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            beginning = file.read(200)
    except OSError:
        return False
    return any(mark in beginning for mark in _MARKS)


def write_formats(report: Report, formats: Sequence[str], folder: Path) -> None:
    """Write the report in ``formats``, and in those already in ``folder``.

    Otherwise a CI system could read the old verdict that an earlier ``--also`` left.

    Raises:
        UsageError: a file cannot be written.
    """
    from dpaudit.render import FORMATS, write_report, written

    with writing(folder):
        for name in dict.fromkeys([*formats, *written(folder)]):
            write_report(report, folder / FORMATS[name][0], format=name)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A block that writes into ``folder``.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"out={folder}: cannot be written ({error.strerror}); choose another --out"
        ) from error


def rewrite_report(path: Path, formats: Sequence[str]) -> Path:
    """Rewrite the page and ``formats`` next to the report at ``path``; returns the page's path.

    Raises:
        UsageError: it is not a report.
    """
    from dpaudit.render import read_report, write_report

    report = read_report(path)
    page = write_report(report, path.with_name("report.html"))
    write_formats(report, formats, path.parent)
    return page
