"""The points of a figure on a grid: the panel, series and drawable values of each row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpaudit.report.figures.axis import has_place
from dpaudit.report.format import number, setting
from dpaudit.report.measurements import Measure, Plot, Row, reading
from dpaudit.report.tables import measured

__all__ = ["MOST_PANELS", "MOST_SERIES", "Grid", "Panel", "Point", "laid_out"]

MOST_PANELS = 24
MOST_COLUMNS = 6
MOST_SERIES = 16
_SHAPES = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}


class Point(NamedTuple):
    """One row in a figure; NaN stands for what is missing or cannot be shown."""

    x: float
    y: float
    low: float
    high: float
    published: float
    lower: float
    upper: float


class Panel(NamedTuple):
    """A frame: its title, and the points of each series by its number, in the order of x."""

    title: str
    lines: dict[int, list[Point]]


class Grid(NamedTuple):
    """All frames, row by row (None: empty), and what they share."""

    panels: list[Panel | None]
    columns: int
    series: list[str]
    categories: list[str]
    """The names along x; empty if x is a number."""
    points: list[Point]
    unplaced: int
    """Values left out because the axes cannot show them."""
    panels_left_out: int
    series_left_out: int


def laid_out(plot: Plot, rows: Sequence[Row]) -> Grid:
    """Sort rows into panels, series and points."""
    rows = plot.spread(rows)
    xs = [number(reading(row.get(plot.x.key)).value) for row in rows]
    named = plot.bars or any(
        x is None and reading(row.get(plot.x.key)).value is not None
        for x, row in zip(xs, rows, strict=True)
    )
    categories = _values(rows, plot.x) if named else []
    series = _values(rows, plot.series) if plot.series else [""]
    places, columns, panels = _places(plot, rows)
    at_category, at_series = _index(categories), _index(series[:MOST_SERIES])
    found: list[Panel | None] = [None] * (max(places.values(), default=-1) + 1)
    unplaced = 0
    for row, x in zip(rows, xs, strict=True):
        place = places.get(tuple(_text(row, m) for m in plot.panels))
        k = at_series.get(_text(row, plot.series) if plot.series else "")
        at = at_category.get(_text(row, plot.x)) if named else x
        if place is None or k is None or at is None:
            continue
        unseen = not has_place(at, log=plot.log_x and not named)
        point, odd = _point(plot, row, float(at))
        unplaced += odd + unseen
        if not unseen:
            panel = found[place] or Panel(", ".join(_titled(row, m) for m in plot.panels), {})
            panel.lines.setdefault(k, []).append(point)
            found[place] = panel
    for panel in filter(None, found):
        for line in panel.lines.values():
            line.sort(key=lambda p: p.x)
    return Grid(
        panels=found,
        columns=columns,
        series=series[:MOST_SERIES],
        categories=categories,
        points=[p for panel in found if panel for line in panel.lines.values() for p in line],
        unplaced=unplaced,
        panels_left_out=panels - len(places),
        series_left_out=max(0, len(series) - MOST_SERIES),
    )


def _titled(row: Row, m: Measure) -> str:
    """``ε = 0.5``; a text under an unlabelled key stands alone."""
    bare = m.label == m.key and isinstance(row.get(m.key), str)
    return _text(row, m) if bare else f"{m.label} = {_text(row, m)}"


def _places(plot: Plot, rows: Sequence[Row]) -> tuple[dict[tuple[str, ...], int], int, int]:
    """Each panel's place, the number of columns, and the number of panels without a limit."""
    if not plot.panels:
        return {(): 0}, 1, 1
    if len(plot.panels) == 1:
        values = _values(rows, plot.panels[0])
        kept = values[:MOST_PANELS]
        return {(v,): i for i, v in enumerate(kept)}, _SHAPES.get(len(kept), 4), len(values)
    down, across = (_values(rows, m) for m in plot.panels)
    turned = len(across) > 4 and len(down) < len(across)
    if turned:
        down, across = across, down
    columns = max(1, min(len(across), MOST_COLUMNS))
    lines = max(1, min(len(down), MOST_PANELS // columns))
    places: dict[tuple[str, ...], int] = {
        (a, d) if turned else (d, a): i * columns + j
        for i, d in enumerate(down[:lines])
        for j, a in enumerate(across[:columns])
    }
    return places, columns, len(down) * len(across)


def _point(plot: Plot, row: Row, at: float) -> tuple[Point, int]:
    """A row's point, and how many of its values the axis cannot show."""
    value, low, high = reading(row.get(plot.y.key))
    drawn = [number(value)]
    drawn += [number(reading(row.get(plot.published.key)).value)] if plot.published else [None]
    placed = [math.nan if y is None or not has_place(y, log=plot.log_y) else y for y in drawn]
    odd = sum(y is not None and math.isnan(p) for y, p in zip(drawn, placed, strict=True))
    band = [number(reading(row.get(m.key)).value) for m in plot.band] or [None, None]
    low, high, lower, upper = (math.nan if end is None else end for end in (low, high, *band))
    return Point(at, placed[0], low, high, placed[1], lower, upper), odd


def _text(row: Row, measure: Measure) -> str:
    value = reading(row.get(measure.key)).value
    return setting(value) if measure.format == "number" else measured(value, measure.format)


def _values(rows: Iterable[Row], measure: Measure) -> list[str]:
    """The distinct values of a key as text: numbers by size, words in the order given."""
    found: dict[str, float | None] = {}
    for row in rows:
        value = reading(row.get(measure.key)).value
        if value is not None:
            found.setdefault(_text(row, measure), number(value))
    if any(v is None for v in found.values()):
        return list(found)
    return sorted(found, key=lambda text: found[text] or 0.0)


def _index(texts: Sequence[str]) -> dict[str, int]:
    return {text: i for i, text in enumerate(texts)}
