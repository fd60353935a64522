"""Turns results into JSON, HTML and figures; runs no sampler, test or attack.

The page is one file: no network, and one small script of its own that it can do without. Names and
messages in it come from closed samplers and are escaped wherever they are shown.
"""

from __future__ import annotations

from dpaudit.report.format import bounds, epsilon, number, p_value, percent, proportion, quantity
from dpaudit.report.mechanism import mechanism_sentence
from dpaudit.report.page import render_report, write_json, write_report
from dpaudit.report.reading import Document, document_of, read_document
from dpaudit.report.sentences import audit_sentence, experiment_sentence, measurements_sentence
from dpaudit.report.tables import Column, blind_spots_table, summary_table, tests_table
from dpaudit.report.terminal.audits import audit_table, mechanism_table
from dpaudit.report.terminal.documents import experiment_table, measurements_table

__all__ = [
    "Column",
    "Document",
    "audit_sentence",
    "audit_table",
    "blind_spots_table",
    "bounds",
    "document_of",
    "epsilon",
    "experiment_sentence",
    "experiment_table",
    "measurements_sentence",
    "measurements_table",
    "mechanism_sentence",
    "mechanism_table",
    "number",
    "p_value",
    "percent",
    "proportion",
    "quantity",
    "read_document",
    "render_report",
    "summary_table",
    "tests_table",
    "write_json",
    "write_report",
]
