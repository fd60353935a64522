"""Writing a report for other programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpaudit.errors import UnknownNameError
from dpaudit.report.formats.junit import junit_xml
from dpaudit.report.formats.markdown import markdown_summary
from dpaudit.report.formats.sarif import sarif_json

__all__ = ["FORMATS", "write_format"]

FORMATS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "junit": ("report.junit.xml", junit_xml),
    "sarif": ("report.sarif", sarif_json),
    "markdown": ("report.md", markdown_summary),
}
"""By the name that ``--also`` takes: the file it goes to, and what makes it of a document."""


def write_format(document: Mapping[str, Any], name: str, folder: Path) -> Path:
    """Write the document as ``name`` into ``folder``, atomically, under the name that FORMATS gives; returns the path.

    Raises:
        UnknownNameError: no such format.
        UsageError: the document is of none of the kinds known here.
        OSError: the file cannot be written.
    """
    if name not in FORMATS:
        raise UnknownNameError(f"format={name!r}: it must be one of {', '.join(FORMATS)}")
    file, make = FORMATS[name]
    path, part = folder / file, folder / f".{file}.{os.getpid()}.part"
    try:
        part.write_bytes(make(document).encode("utf-8"))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
