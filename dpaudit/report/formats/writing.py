"""Writes a report for other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from dpaudit.errors import UnknownNameError
from dpaudit.report.files import write_text
from dpaudit.report.formats.junit import junit_xml
from dpaudit.report.formats.markdown import markdown_summary
from dpaudit.report.formats.sarif import sarif_json
from dpaudit.report.reading import Document

__all__ = ["FORMATS", "write_format", "written"]

FORMATS: Mapping[str, tuple[str, Callable[[Document], str]]] = {
    "junit": ("report.junit.xml", junit_xml),
    "sarif": ("report.sarif", sarif_json),
    "markdown": ("report.md", markdown_summary),
}
"""The file and the writer of each format, by the name that ``--also`` takes."""

_OURS = re.compile(rb'\A### dpaudit: |<testsuites name="dpaudit"|"driver": \{\s*"name": "dpaudit"')


def write_format(document: Document, name: str, folder: Path) -> Path:
    """Write the document as ``name`` into ``folder``, atomically; returns the path.

    Raises:
        UnknownNameError: no such format.
        UsageError: measurements with a figure of an unknown key.
        OSError: the file cannot be written.
    """
    if name not in FORMATS:
        raise UnknownNameError(f"format={name!r}: must be one of {', '.join(FORMATS)}")
    file, make = FORMATS[name]
    return write_text(make(document), folder / file)


def written(folder: Path) -> list[str]:
    """The formats that dpaudit has written into ``folder``; other programs' files do not count."""
    return [name for name, (file, _) in FORMATS.items() if _ours(folder / file)]


def _ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _OURS.search(file.read(2000)) is not None
    except OSError:
        return False
