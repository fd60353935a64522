"""An audit of noisy measurement files for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.deployments.census.document import CensusDocument
from dpaudit.report.census import census_facts, census_sentence, groups_table
from dpaudit.report.tables import Column, tests_table
from dpaudit.report.terminal.table import FLAGGED, make_table
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

__all__ = ["census_text"]

_MOST = 40
_SAID = {"Files", "Noisy measurements", "Noise values seen", "ρ of the stated variances"}
_STYLES = {"finding": FLAGGED, "no-finding": "bold", "inconclusive": "bold dim"}


def census_text(document: CensusDocument) -> Group:
    """Tables of the noise and of the findings; the last part is the verdict."""
    from rich.console import Group
    from rich.text import Text

    facts = "; ".join(f"{k}: {v}" for k, v in census_facts(document) if k in _SAID)
    parts: list[RenderableType] = [Text(f"{facts}.")]
    parts += [Text(printable(note, limit=600)) for note in document.notes]
    if document.groups:
        parts += [Text(), make_table(_first(groups_table(document)), title="Noise seen")]
        parts += _more(len(document.groups) - _MOST)
    found = [test for test in document.tests if test.finding]
    if found:
        columns = [c for c in tests_table(found) if c.header in ("Test", "Adjusted p", "Effect")]
        marked = [True] * _MOST
        parts += [Text(), make_table(_first(columns), title="Findings", marked=marked)]
        parts += _more(len(found) - _MOST)
    verdict = Text(f"\n{census_sentence(document)}", style=_STYLES[document.verdict])
    return Group(*parts, verdict)


def _first(columns: list[Column]) -> list[Column]:
    return [column._replace(cells=column.cells[:_MOST]) for column in columns]


def _more(left: int) -> list[RenderableType]:
    from rich.text import Text

    return [Text(f"{left:,} more with --format json.", style="dim")] if left > 0 else []
