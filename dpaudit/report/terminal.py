"""The same sentences and tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpaudit.report.format import printable
from dpaudit.report.sentences import audit_sentence, experiment_sentence
from dpaudit.report.tables import Column, blind_spots_table, summary_table, tests_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["audit_table", "experiment_table"]

_STYLES = {"finding": "bold dark_orange", "no-finding": "bold", "inconclusive": "bold dim"}


def experiment_table(document: Mapping[str, Any], *, width: int = 100) -> Table:
    """The arms of an experiment; its title above, what they show together in one sentence below.

    On a terminal narrower than 100 columns the ends of intervals go under each other; it then fits 80.
    """
    rows = document.get("rows") or ()
    title = printable(document.get("title") or document.get("name") or "Experiment", limit=200)
    columns = [_narrow(c, split=width < 100) for c in summary_table(rows) if c.header != "ε shown by attack"]
    return _drawn(columns, title=title, caption=experiment_sentence(rows))


def audit_table(result: Mapping[str, Any]) -> RenderableType:
    """An audit's verdict, its tests, and what a pass cannot exclude (after a finding, that part is left out)."""
    from rich.console import Group
    from rich.text import Text

    verdict = str(result.get("verdict"))
    parts: list[RenderableType] = [Text(audit_sentence(result), style=_STYLES.get(verdict, "bold"))]
    if result.get("tests"):
        keep = [c for c in tests_table(result) if c.header != "Looks at"]
        marked = [cell == "yes" for cell in keep[-1].cells]
        parts += [Text(), _drawn(keep, title="Tests", marked=marked)]
    if result.get("cannot_rule_out") and verdict != "finding":
        spots = [c for c in blind_spots_table(result) if c.header in {"Flaw", "Missed up to", "Test"}]
        parts += [Text(), _drawn(spots, title="What a pass cannot exclude")]
    return Group(*parts)


def _narrow(column: Column, *, split: bool) -> Column:
    """Verdict and error without their second lines; with ``split``, intervals under their numbers."""
    if column.header in {"Black-box audit", "L2 error"}:
        return column._replace(cells=[cell.split("\n")[0] for cell in column.cells])
    if split and column.numeric:
        return column._replace(cells=[cell.replace(" [", "\n[").replace(" … ", " …\n") for cell in column.cells])
    return column


def _drawn(columns: Sequence[Column], *, title: str, caption: str = "", marked: Sequence[bool] = ()) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title, style="bold"),
        caption=Text(caption) if caption else None,
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.title_justify = table.caption_justify = "left"
    for column in columns:
        lines = [len(line) for cell in column.cells for line in cell.splitlines()] if column.numeric else []
        table.add_column(
            Text(column.header),
            justify="right" if column.numeric else "left",
            overflow="fold",
            min_width=min(24, max(lines, default=1)),  # rather break words than numbers
        )
    for i, cells in enumerate(zip(*(c.cells for c in columns), strict=True)):
        style = _STYLES["finding"] if i < len(marked) and marked[i] else None
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table
