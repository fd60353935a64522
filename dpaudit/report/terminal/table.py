"""Columns of text as a table on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dpaudit.report.tables import Column

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["FLAGGED", "make_table"]

FLAGGED = "bold dark_orange"
"""The style of a finding's row."""


def make_table(
    columns: Sequence[Column],
    *,
    title: str,
    caption: str = "",
    marked: Sequence[bool] = (),
    bold: Iterable[int] = (),
    lines_after: Iterable[int] = (),
) -> Table:
    """A table; rows are ``marked`` as findings, set in ``bold``, or followed by a line."""
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
        lines = [line for cell in column.cells for line in cell.splitlines()]
        widest = max(map(len, lines), default=1) if column.numeric else 1
        table.add_column(
            Text(column.header),
            justify="right" if column.numeric else "left",
            overflow="fold",
            min_width=min(24, widest),  # words are folded before numbers
        )
    heavy, ends = set(bold), set(lines_after)
    for i, cells in enumerate(zip(*(c.cells for c in columns), strict=True)):
        style = FLAGGED if i < len(marked) and marked[i] else "bold" if i in heavy else None
        table.add_row(*(Text(cell) for cell in cells), style=style, end_section=i in ends)
    return table
