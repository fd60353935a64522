"""The marks of a figure that the page's script can read out: where each is drawn, what it is, and its exact value.

Places are worked out when the figure is drawn, from matplotlib's own transforms, so that the script
needs no library and knows nothing of axes. Without script the figure, its alternative text and the
tables say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.results.text import one_line

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

__all__ = ["MOST_MARKS", "Mark", "belongs", "read_out", "series_of"]

MOST_MARKS = 1000
"""A figure of more marks is not read out: its numbers are in the tables."""


class Mark(NamedTuple):
    """A mark at (x, y) of ``axes``: its name and value in words, the series it belongs to, and what it leads to."""

    axes: Axes
    x: float
    y: float
    name: str
    value: str
    series: int | None = None
    to: str = ""


def read_out(marks: Sequence[Mark]) -> str:
    """For the script: a line a mark, ``left top name value series to`` set apart by tabs, places in percent of the figure.

    Call it when the figure has been drawn; marks without a place on their axes are left out.
    """
    if len(marks) > MOST_MARKS:
        return ""
    return "\n".join(line for mark in marks if (line := _placed(mark)))


def series_of(names: Iterable[str]) -> str:
    """For the script: the series of a figure that can be shown and hidden, a line each in the order of their numbers."""
    return "\n".join(_line(name, limit=60) or "–" for name in names)


def belongs(artists: Artist | Iterable[Artist], series: int) -> None:
    """Mark drawn things as parts of a series, so that the script can hide them; the SVG has a class for it."""
    for artist in [artists] if not isinstance(artists, Iterable) else artists:
        artist.set_gid(f"class-s{series}")


def _line(text: str, *, limit: int = 200) -> str:
    """Strangers' text in one line, without tabs."""
    return one_line(text, limit=limit)


def _placed(mark: Mark) -> str:
    figure = mark.axes.get_figure(root=True)
    if figure is None or not (math.isfinite(mark.x) and math.isfinite(mark.y)):
        return ""
    left, bottom = figure.transFigure.inverted().transform(
        mark.axes.transData.transform((mark.x, mark.y))
    )
    if not (0 <= left <= 1 and 0 <= bottom <= 1):
        return ""
    places = f"{100 * float(left):.2f}\t{100 * (1 - float(bottom)):.2f}"
    series = "" if mark.series is None else str(mark.series)
    return f"{places}\t{_line(mark.name)}\t{_line(mark.value)}\t{series}\t{mark.to}"
