"""A document for other programs: JUnit XML, SARIF 2.1.0, Markdown, and the schema of its JSON.

All are made from the document alone (nothing is run again) and hold printable text only.
"""

from __future__ import annotations

from dpaudit.report.formats.junit import junit_xml
from dpaudit.report.formats.markdown import markdown_summary
from dpaudit.report.formats.sarif import sarif_json
from dpaudit.report.formats.writing import FORMATS, write_format, written

__all__ = [
    "FORMATS",
    "junit_xml",
    "markdown_summary",
    "sarif_json",
    "write_format",
    "written",
]
