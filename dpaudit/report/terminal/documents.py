"""The sentences and tables of experiments for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from dpaudit.documents import ExperimentDocument, MeasurementsDocument
from dpaudit.report.format import count
from dpaudit.report.measurements import read_measurements
from dpaudit.report.sentences import experiment_sentence, measurements_sentence
from dpaudit.report.tables import Column, measured_table, summary_table
from dpaudit.report.terminal.table import FLAGGED, make_table
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["MOST_LINES", "experiment_table", "measurements_table"]

MOST_LINES = 40
"""Rows of measurements that a terminal shows; the rest is in the JSON document."""
_LEAST = 12
"""The least width of a column of words, in letters."""

_STYLES = {"finding": FLAGGED, "no-finding": "bold", "inconclusive": "bold dim"}


def experiment_table(document: ExperimentDocument, *, width: int = 100) -> Table:
    """The arms of an experiment, with its title above and one sentence on all of them below.

    On a terminal narrower than 100 columns the ends of intervals are stacked; the table then fits
    80.
    """
    title = printable(document.title or document.name or "Experiment", limit=200)
    columns = [
        _narrow(c, split=width < 100)
        for c in summary_table(document.rows)
        if c.header != "ε shown by attack"
    ]
    caption = experiment_sentence(document.rows, failures=document.failures)
    return make_table(columns, title=title, caption=caption)


def measurements_table(document: MeasurementsDocument, *, width: int = 100) -> RenderableType:
    """The summary of measurements, those that differ from published values, and the first rows.

    If the columns do not fit ``width``, the ends of intervals go under their numbers; then the last
    columns are left out.

    Raises:
        UsageError: a figure of an unknown key.
    """
    from rich.console import Group
    from rich.text import Text

    read = read_measurements(document)
    title = printable(document.title or document.name or "Measurements", limit=200)
    verdict = "finding" if read.misses else "no-finding"
    parts: list[RenderableType] = [Text(measurements_sentence(document), style=_STYLES[verdict])]
    for rows, name in (
        (read.misses, "Where ours differs from the published value"),
        (read.rows, title),
    ):
        if rows:
            columns, left_out = _fitting(
                measured_table(read.columns, rows[:MOST_LINES], of=read.rows), width=width
            )
            marked = [rows is not read.misses and row in read.misses for row in rows[:MOST_LINES]]
            parts += [Text(), make_table(columns, title=name, marked=marked)]
            more = [(len(rows) - MOST_LINES, "row"), (len(left_out), "column")]
            notes = [f"{count(n)} more {what}{'s' if n > 1 else ''}" for n, what in more if n > 0]
            if notes:
                names = f" ({', '.join(left_out)})" if left_out else ""
                parts.append(
                    Text(f"Only in results.json: {' and '.join(notes)}{names}.", style="dim")
                )
    return Group(*parts)


def _fitting(columns: Sequence[Column], *, width: int) -> tuple[list[Column], list[str]]:
    """The columns that fit, with intervals stacked and words wrapped, and the names of the rest."""
    if _room(columns) <= width:
        return list(columns), []
    narrow = [_narrow(c, split=True)._replace(header=c.header.replace(" ", "\n")) for c in columns]
    least = [c if c.numeric else _wrapped(c, _LEAST) for c in narrow]
    kept = len(least)
    while kept > 1 and _room(least[:kept]) > width:
        kept -= 1
    words = sum(not c.numeric for c in least[:kept])
    spare = max(0, width - _room(least[:kept])) // max(1, words)
    fitted = [c if c.numeric else _wrapped(c, _LEAST + spare) for c in narrow[:kept]]
    return fitted, [c.header for c in columns[kept:]]


def _room(columns: Sequence[Column]) -> int:
    """The width of a table of these columns without folding."""
    return 2 + sum(
        2 + max(len(line) for text in (c.header, *c.cells) for line in text.split("\n"))
        for c in columns
    )


def _wrapped(column: Column, width: int) -> Column:
    return column._replace(cells=["\n".join(wrap(cell, width)) for cell in column.cells])


def _narrow(column: Column, *, split: bool) -> Column:
    """Verdict and error without their second lines; with ``split``, intervals are stacked."""
    if column.header in {"Black-box audit", "L2 error"}:
        return column._replace(cells=[cell.split("\n")[0] for cell in column.cells])
    if split and column.numeric:
        return column._replace(
            cells=[cell.replace(" [", "\n[").replace(" … ", " …\n") for cell in column.cells]
        )
    return column
