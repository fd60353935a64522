"""The folder of ``--out``: what an earlier run left, the report, and the formats of ``--also``.

The same audit is replaced, another one is not; a run that stops in the middle leaves no earlier
verdict, neither to a reader nor to a CI system.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit import registry
from dpaudit.errors import StoreError, UnknownNameError, UsageError
from dpaudit.results.text import one_line

if TYPE_CHECKING:
    from dpaudit.cli.options import Output
    from dpaudit.report import Report

__all__ = [
    "comparable_arguments",
    "formats_of",
    "prepare_folder",
    "refuse_another",
    "remove_earlier",
    "rewrite_report",
    "write_result",
    "write_run",
    "writing",
]

_ALL = ("junit", "sarif")
# near the beginning of documents that dpaudit wrote
_MARKS = (b'"dpaudit-report/', b'"dpaudit-recovered-')
_OF_NO_ACCOUNT = {"--seed", "--by"}


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


def prepare_folder(to: Output, command: str = "", *, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The formats to write to ``to.out``, which then holds no earlier verdict.

    With a ``command``, a folder that holds another audit is refused. ``others`` as for
    :func:`remove_earlier`. Call it once nothing but the work can fail.

    Raises:
        UsageError: as :func:`formats_of` and :func:`remove_earlier`.
        StoreError: as :func:`refuse_another`.
    """
    formats = formats_of(to.also, out=to.out)
    if command:
        refuse_another(to.out, command)
    return remove_earlier(formats, to.out, others=others)


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
    from dpaudit.render import read_report

    try:
        before = read_report(out / "result.json")
        was = comparable_arguments(before.command)
    except (UsageError, ValueError):  # ValueError: a command changed by hand
        return
    if was == comparable_arguments(command):
        return
    content = f"the result of another audit ({one_line(shlex.join(was))})"
    if not was:  # made in Python or by pytest
        subject, started = one_line(before.subject), one_line(before.provenance.get("started", ""))
        content = f"a result that no command made ({before.label} of {subject}, {started})"
    raise StoreError(f"out={out}: holds {content}; choose another --out, or remove the folder")


def comparable_arguments(command: str) -> list[str]:
    """A command's words, without its seed and who ran it: two audits are alike if these are.

    Raises:
        ValueError: an open quote.

    >>> comparable_arguments("dpaudit audit x --dim 4 --seed 1")
    ['dpaudit', 'audit', 'x', '--dim', '4']
    """
    arguments = shlex.split(command)
    left_out = {i for i, word in enumerate(arguments) if word in _OF_NO_ACCOUNT}
    return [w for i, w in enumerate(arguments) if i not in left_out and i - 1 not in left_out]


def _refuse_unwritable(out: Path) -> None:
    """Write into the folder and remove what was made: an audit has nothing to lose yet."""
    missing: list[Path] = []
    try:
        with writing(out):
            missing += (place for place in (out, *out.parents) if not place.exists())
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out):
                pass
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_earlier(
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


def write_result(
    report: Report,
    out: Path,
    *,
    also: Sequence[str] = (),
    name: str | None = "result.json",
) -> None:
    """Write the report as JSON under ``name``, ``report.html`` and the formats of ``--also``.

    Those formats that are already in ``out`` are written as well: otherwise a CI system could read
    the old verdict that an earlier ``--also`` left. Without a ``name`` there is no JSON.

    Raises:
        UsageError: it cannot be written.
    """
    from dpaudit.render import FORMATS, write_report, written

    with writing(out):
        if name is not None:
            write_report(report, out / name, format="json")
        for kind in dict.fromkeys(["html", *also, *written(out)]):
            write_report(report, out / FORMATS[kind][0], format=kind)


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


def rewrite_report(path: Path, formats: Sequence[str]) -> Path:
    """Rewrite the page and ``formats`` next to the report at ``path``; returns the page's path.

    Raises:
        UsageError: it is not a report, or the folder cannot be written.
    """
    from dpaudit.render import read_report

    write_result(read_report(path), path.parent, also=formats, name=None)
    return path.with_name("report.html")
