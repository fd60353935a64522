"""Renders reports: pages, terminals, JSON, JUnit, SARIF, notebooks.

Each format knows :class:`dpaudit.report.Report` and no kind of result. Nothing here runs a sampler,
a test or an attack. Text from outside is made safe on the way in.
"""

from __future__ import annotations

from dpaudit.render.documents import FORMATS, read_report, report_json, write_report, written
from dpaudit.render.page import notebook_card, plain_text
from dpaudit.render.parts import headline

__all__ = [
    "FORMATS",
    "headline",
    "notebook_card",
    "plain_text",
    "read_report",
    "report_json",
    "write_report",
    "written",
]
