"""The marks of a figure that the page's script can read out: place, name and exact value.

Places come from matplotlib's transforms when the figure is drawn, so that the script needs no
library and knows no axes. Without script the figure, its alternative text and the tables give the
same information.
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
"""A figure with more marks is not read out; its numbers are in the tables."""


class Mark(NamedTuple):
    """A mark at (x, y) of ``axes``: its name and value in words, its series, and its link."""

    axes: Axes
    x: float
    y: float
    name: str
    value: str
    series: int | None = None
    to: str = ""


def read_out(marks: Sequence[Mark]) -> str:
    """One line per mark for the script: ``left top name value series to``, separated by tabs.

    ``left`` and ``top`` are in percent of the figure. Call it when the figure has been drawn; marks
    outside their axes are left out.
    """
    if len(marks) > MOST_MARKS:
        return ""
    return "\n".join(line for mark in marks if (line := _placed(mark)))


def series_of(names: Iterable[str]) -> str:
    """One line per series for the script, which can show and hide them."""
    return "\n".join(_line(name, limit=60) or "–" for name in names)


def belongs(artists: Artist | Iterable[Artist], series: int) -> None:
    """Mark artists as parts of a series (a class in the SVG), so that the script can hide them."""
    for artist in [artists] if not isinstance(artists, Iterable) else artists:
        artist.set_gid(f"class-s{series}")


def _line(text: str, *, limit: int = 200) -> str:
    """Third-party text on one line, without tabs."""
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
