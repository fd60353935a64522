"""An audit of ad measurement for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.report import attribution as words
from dpaudit.report.tables import Column, tests_table
from dpaudit.report.terminal.table import FLAGGED, make_table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

__all__ = ["attribution_text"]

_MOST = 20
_STYLES = {"finding": FLAGGED, "no-finding": "bold", "inconclusive": "bold dim"}


def attribution_text(document: AttributionDocument) -> Group:
    """The laws, what reports show, budgets and findings; the last part is the verdict."""
    from rich.console import Group
    from rich.text import Text

    found = [test for test in document.tests if test.finding]
    effects = [c for c in tests_table(found) if c.header in ("Test", "Adjusted p", "Effect")]
    facts = words.attribution_findings_table(document)
    tables = (
        (words.claims_table(document), "What registrations permit", False),
        (words.shown_table(document), "ε claimed, and shown by reports", False),
        (words.parties_table(document), "Event-level sources by party", False),
        (words.budget_table(document), "Contribution budgets, the largest losses first", False),
        (facts, "Findings", True),
        (effects, "Tests that are findings", True),
    )
    parts: list[RenderableType] = []
    for columns, title, marked in tables:
        rows = len(columns[0].cells)
        if rows:
            flagged = [marked] * min(rows, _MOST)
            parts += [make_table(_first(columns), title=title, marked=flagged), Text()]
        if rows > _MOST:
            parts.append(Text(f"{rows - _MOST:,} more with --format json.", style="dim"))
    sentence = words.attribution_sentence(document)
    return Group(*parts, Text(sentence, style=_STYLES[document.verdict]))


def _first(columns: list[Column]) -> list[Column]:
    return [column._replace(cells=column.cells[:_MOST]) for column in columns]
