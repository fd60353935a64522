"""Figures of measurements: rows sorted into panels, series and points, as charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from dpaudit import wording
from dpaudit.experiments.measurements import Measure, Plot, Row, measured, reading
from dpaudit.report import Axis, Chart, Line, Mark, Panel, Series

__all__ = ["chart_of"]

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


class GridPanel(NamedTuple):
    """A frame: its title, and the points of each series by its number, in the order of x."""

    title: str
    lines: dict[int, list[Point]]


class Grid(NamedTuple):
    """All frames, row by row (None: empty), and what they share."""

    panels: list[GridPanel | None]
    columns: int
    series: list[str]
    categories: list[str]
    """The names along x; empty if x is a number."""
    points: list[Point]
    unplaced: int
    """Values left out because the axes cannot show them."""
    panels_left_out: int
    series_left_out: int


def lay_out(plot: Plot, rows: Sequence[Row]) -> Grid:
    """Sort rows into panels, series and points."""
    rows = plot.spread(rows)
    xs = [wording.number(reading(row.get(plot.x.key)).value) for row in rows]
    named = plot.bars or any(
        x is None and reading(row.get(plot.x.key)).value is not None
        for x, row in zip(xs, rows, strict=True)
    )
    categories = _values(rows, plot.x) if named else []
    series = _values(rows, plot.series) if plot.series else [""]
    places, columns, panels = _places(plot, rows)
    at_category, at_series = (
        {text: i for i, text in enumerate(texts)} for texts in (categories, series[:MOST_SERIES])
    )
    panels_by_place: list[GridPanel | None] = [None] * (max(places.values(), default=-1) + 1)
    unplaced = 0
    for row, x in zip(rows, xs, strict=True):
        place = places.get(tuple(_text(row, m) for m in plot.panels))
        k = at_series.get(_text(row, plot.series) if plot.series else "")
        at = at_category.get(_text(row, plot.x)) if named else x
        if place is None or k is None or at is None:
            continue
        unseen = not _has_place(at, log=plot.figure.log_x and not named)
        point, odd = _point(plot, row, float(at))
        unplaced += odd + unseen
        if not unseen:
            panel = panels_by_place[place] or GridPanel(
                ", ".join(_title_of(row, m) for m in plot.panels), {}
            )
            panel.lines.setdefault(k, []).append(point)
            panels_by_place[place] = panel
    for panel in filter(None, panels_by_place):
        for line in panel.lines.values():
            line.sort(key=lambda p: p.x)
    return Grid(
        panels=panels_by_place,
        columns=columns,
        series=series[:MOST_SERIES],
        categories=categories,
        points=[
            p for panel in panels_by_place if panel for line in panel.lines.values() for p in line
        ],
        unplaced=unplaced,
        panels_left_out=panels - len(places),
        series_left_out=max(0, len(series) - MOST_SERIES),
    )


def _title_of(row: Row, m: Measure) -> str:
    """``ε = 0.5``; a text under an unlabelled key stands alone."""
    bare = m.label == m.key and isinstance(row.get(m.key), str)
    return _text(row, m) if bare else f"{m.label} = {_text(row, m)}"


def _places(plot: Plot, rows: Sequence[Row]) -> tuple[dict[tuple[str, ...], int], int, int]:
    """Each panel's place, the number of columns, and the number of panels without a limit."""
    if not plot.panels:
        return {(): 0}, 1, 1
    if len(plot.panels) == 1:
        values = _values(rows, plot.panels[0])
        shown = values[:MOST_PANELS]
        return {(v,): i for i, v in enumerate(shown)}, _SHAPES.get(len(shown), 4), len(values)
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
    theirs = reading(row.get(plot.published.key)).value if plot.published else None
    ys = [wording.number(value), None if theirs is None else wording.number(theirs)]
    placed = [math.nan if y is None or not _has_place(y, log=plot.figure.log_y) else y for y in ys]
    odd = sum(y is not None and math.isnan(p) for y, p in zip(ys, placed, strict=True))
    band = [wording.number(reading(row.get(m.key)).value) for m in plot.band] or [None, None]
    low, high, lower, upper = (math.nan if end is None else end for end in (low, high, *band))
    return Point(at, placed[0], low, high, placed[1], lower, upper), odd


def _text(row: Row, measure: Measure) -> str:
    value = reading(row.get(measure.key)).value
    return wording.setting(value) if measure.format == "number" else measured(value, measure.format)


def _values(rows: Iterable[Row], measure: Measure) -> list[str]:
    """The distinct values of a key as text: numbers by size, words in the order given."""
    numbers: dict[str, float | None] = {}
    for row in rows:
        value = reading(row.get(measure.key)).value
        if value is not None:
            numbers.setdefault(_text(row, measure), wording.number(value))
    if any(v is None for v in numbers.values()):
        return list(numbers)
    return sorted(numbers, key=lambda text: numbers[text] or 0.0)


_MOST = 1e150  # from here on values count as infinite


def _has_place(x: float, *, log: bool) -> bool:
    """Whether an axis can show this value."""
    return abs(x) < _MOST and (x > 0 or not log)


def chart_of(plot: Plot, rows: Sequence[Row]) -> Chart | None:
    """One figure of measurements; None if it can show no value."""
    return _grid(plot, rows) if plot.value is None else _map(plot, plot.value, rows)


def _grid(plot: Plot, rows: Sequence[Row]) -> Chart | None:
    """Small multiples of lines or bars: ours filled, published values hollow."""
    grid = lay_out(plot, rows)
    if not any(math.isfinite(v) for p in grid.points for v in (p.y, p.published)):
        return None
    figure = plot.figure
    lines: tuple[Line, ...] = ()
    if figure.reference is not None:
        lines = (Line(at=figure.reference),)
    if figure.diagonal and not (figure.log_x or figure.log_y or grid.categories):
        lines = (*lines, Line(sloped=True))
    panels = tuple(
        Panel(title=panel.title, series=tuple(_series(plot, grid, panel)), lines=lines)
        for panel in grid.panels
        if panel is not None
    )
    return Chart(
        kind="plot",
        title=figure.title,
        caption=_caption(plot, grid),
        alt=_alt_text(plot, grid),
        panels=panels,
        x=Axis(
            label=plot.x.label,
            log=figure.log_x and not grid.categories,
            form=plot.x.format,
            categories=tuple(grid.categories),
        ),
        y=Axis(label=plot.y.label, log=figure.log_y, form=plot.y.format, zero=plot.bars),
        columns=grid.columns,
    )


def _series(plot: Plot, grid: Grid, panel: GridPanel) -> Iterable[Series]:
    """Each line or row of bars, its band, and the published values next to it."""
    several = len(grid.series) > 1
    width = 0.8 / len(grid.series) if plot.bars else 0.0
    for k, line in sorted(panel.lines.items()):
        shift = (k - (len(grid.series) - 1) / 2) * width
        name = f"{plot.series.label} = {grid.series[k]}" if plot.series else "ours"
        marks = [_mark(plot, grid, panel, k, p, shift, 0.9 * width) for p in line]
        if plot.band:
            ends = tuple(
                Mark(x=p.x + shift, y=p.lower, low=p.lower, high=p.upper, width=width)
                for p in line
                if math.isfinite(p.lower) and math.isfinite(p.upper)
            )
            legend = f"{plot.band[0].label} to {plot.band[1].label}"
            yield Series(marks=ends, look="band", group=k, legend=legend, quiet=plot.bars)
        yield Series(
            marks=tuple(m for m in marks if math.isfinite(m.y)),
            look="bars" if plot.bars else "line",
            group=k,
            legend=name if several or plot.published or plot.band else "",
        )
        if plot.published:
            hollow = tuple(
                Mark(x=p.x + shift, y=p.published, filled=False)
                for p in line
                if math.isfinite(p.published)
            )
            yield Series(
                marks=hollow,
                group=k,
                legend=plot.published.label,
                marker="D" if plot.bars else "",
                quiet=plot.bars,
            )


def _mark(
    plot: Plot, grid: Grid, panel: GridPanel, k: int, point: Point, shift: float, width: float
) -> Mark:
    at = grid.categories[int(point.x)] if grid.categories else measured(point.x, plot.x.format)
    who = f"{plot.series.label} = {grid.series[k]}" if plot.series else ""
    finite = math.isfinite(point.low) and math.isfinite(point.high)
    ends = {"low": point.low, "high": point.high} if finite else {}
    statement = f"{plot.y.label} {measured({'value': point.y, **ends}, plot.y.format)}"
    if plot.published and math.isfinite(point.published):
        statement += f" ({plot.published.label} {measured(point.published, plot.y.format)})"
    return Mark(
        x=point.x + shift,
        y=point.y,
        low=None if math.isnan(point.low) else point.low,
        high=None if math.isnan(point.high) else point.high,
        width=width,
        name=", ".join(filter(None, (panel.title, who, f"{plot.x.label} = {at}"))),
        says=statement,
    )


def _map(plot: Plot, value: Measure, rows: Sequence[Row]) -> Chart | None:
    """Maps of a value by x and y, one per panel; places are evenly spaced in their order."""
    bare = replace(plot.figure, log_x=False, log_y=False, points=None, where={})
    spread = plot._replace(figure=bare, y=value, series=plot.y)
    grid = lay_out(spread, plot.spread(rows))
    if not any(math.isfinite(p.y) for p in grid.points):
        return None
    places: Sequence[object] = grid.categories or sorted({p.x for p in grid.points})
    column = {x: i for i, x in enumerate(places)}

    def cell(panel: GridPanel, row: int, point: Point) -> Mark:
        x = float(point.x if grid.categories else column[point.x])
        at = grid.categories[int(point.x)] if grid.categories else wording.quantity(point.x)
        across, up = f"{plot.x.label} = {at}", f"{plot.y.label} = {grid.series[row]}"
        return Mark(
            x=x,
            y=float(row),
            value=point.y,
            name=", ".join(filter(None, (panel.title, across, up))),
            says=f"{value.label} {measured(point.y, value.format)}",
        )

    panels = tuple(
        Panel(
            title=panel.title,
            series=(
                Series(
                    marks=tuple(
                        cell(panel, row, p)
                        for row, line in panel.lines.items()
                        for p in line
                        if math.isfinite(p.y)
                    ),
                    look="cells",
                ),
            ),
        )
        for panel in grid.panels
        if panel is not None
    )
    return Chart(
        kind="map",
        title=plot.figure.title,
        caption=_map_caption(plot, grid, value),
        alt=_map_alt(plot, grid, value),
        panels=panels,
        x=Axis(label=plot.x.label, categories=tuple(_place_name(p) for p in places)),
        y=Axis(label=plot.y.label, categories=tuple(grid.series)),
        value=Axis(label=value.label, form=value.format),
        columns=grid.columns,
    )


def _place_name(place: object) -> str:
    x = wording.number(_number_of(place))
    return str(place) if x is None else wording.quantity(x, digits=2)


def _alt_text(plot: Plot, grid: Grid) -> str:
    """The axes, the range of each series, and how far the published values are from ours."""
    figure = plot.figure
    panels = [p for p in grid.panels if p]
    kind = "Bars" if plot.bars else "Lines"
    logs = [
        m.label
        for m, log in (
            (plot.x, figure.log_x and not grid.categories),
            (plot.y, figure.log_y),
        )
        if log
    ]
    on_log = f" {' and '.join(logs)} on a logarithmic axis." if logs else ""
    ranges = []
    for k, name in enumerate(grid.series):
        ys = [p.y for panel in panels for p in panel.lines.get(k, ()) if math.isfinite(p.y)]
        if ys:
            who = f"{plot.series.label} {name}" if plot.series else "ours"
            low, high = (measured(y, plot.y.format) for y in (min(ys), max(ys)))
            ranges.append(f"{who} {low}" if low == high else f"{who} from {low} to {high}")
    axes = f"{kind} of {plot.y.label} against {plot.x.label}"
    return f"{_framed(plot, grid, axes)}.{on_log} {'; '.join(ranges)}.{_largest_difference(grid)}"


def _framed(plot: Plot, grid: Grid, axes: str) -> str:
    """The figure's title, its axes, and by what it is divided into panels."""
    title = f"{plot.figure.title.rstrip('.')}. " if plot.figure.title else ""
    if not plot.panels:
        return title + axes
    by = " and ".join(m.label for m in plot.panels)
    return f"{title}{axes}, in {sum(map(bool, grid.panels))} panels by {by}"


def _caption(plot: Plot, grid: Grid) -> str:
    """What each kind of mark means, and what is not drawn."""
    figure = plot.figure
    parts = []
    if plot.published:
        hollow = "hollow diamonds" if plot.bars else "hollow marks"
        parts.append(
            f"{'Bars' if plot.bars else 'Filled marks'}: ours; {hollow}: {plot.published.label}."
        )
    if any(math.isfinite(p.low) or math.isfinite(p.high) for p in grid.points):
        parts.append("Thin vertical lines: intervals.")
    if plot.band:
        parts.append(f"Shaded: {plot.band[0].label} to {plot.band[1].label}.")
    if figure.reference is not None:
        parts.append(f"Dashed: {measured(figure.reference, plot.y.format)}.".replace(".0 %", " %"))
    if figure.diagonal:
        parts.append(f"Dashed: where {plot.y.label} and {plot.x.label} are equal.")
    if grid.unplaced:
        why = ", or not positive on a logarithmic axis," if figure.log_x or figure.log_y else ""
        verb = (
            "value that is infinite{} is"
            if grid.unplaced == 1
            else "values that are infinite{} are"
        )
        parts.append(f"{wording.count(grid.unplaced)} {verb.format(why)} in the table only.")
    return " ".join([*parts, *_omissions(grid, "series")])


def _omissions(grid: Grid, series: str) -> Iterable[str]:
    for number, noun in ((grid.panels_left_out, "panels"), (grid.series_left_out, series)):
        if number:
            yield f"{wording.count(number)} more {noun} are in the table only."


def _largest_difference(grid: Grid) -> str:
    """The largest difference from the published values, in numbers."""
    apart = [
        abs(p.y - p.published)
        for p in grid.points
        if math.isfinite(p.y) and math.isfinite(p.published)
    ]
    if not apart:
        return ""
    largest, points = wording.quantity(max(apart)), wording.count(len(apart))
    return f" Published for {points} of these points; the largest difference is {largest}."


def _map_alt(plot: Plot, grid: Grid, value: Measure) -> str:
    """The axes and, for each panel, the value at two opposite corners and its range."""
    ranges = "; ".join(filter(None, (_range(p, value) for p in grid.panels if p)))
    axes = f"Maps of {value.label} by {plot.x.label} (across) and {plot.y.label} (up)"
    return f"{_framed(plot, grid, axes)}. {ranges}."


def _range(panel: GridPanel, value: Measure) -> str:
    cells = [
        (p.x, row, p.y) for row, line in panel.lines.items() for p in line if math.isfinite(p.y)
    ]
    if not cells:
        return ""
    ys = [y for _, _, y in cells]
    corners = (corner(cells, key=lambda cell: cell[:2])[2] for corner in (min, max))
    left, right, low, high = (measured(y, value.format) for y in (*corners, min(ys), max(ys)))
    name = f"{panel.title}: " if panel.title else ""
    return f"{name}{left} lower left, {right} upper right, {low} to {high} overall"


def _map_caption(plot: Plot, grid: Grid, value: Measure) -> str:
    scale = "0 to 100 %" if value.format == "proportion" else "the least to the largest value"
    parts = [f"Darker: higher {value.label}, in ten steps from {scale}. Empty: no such rows."]
    if not _evenly_spaced(grid):
        parts.append("Places are evenly spaced, though their values are not.")
    return " ".join([*parts, *_omissions(grid, f"values of {plot.y.label}")])


def _evenly_spaced(grid: Grid) -> bool:
    """Whether the numbers along both axes are evenly spaced."""
    across: Sequence[object] = grid.categories or sorted({p.x for p in grid.points})
    for names in (across, grid.series):
        places = [x for x in (wording.number(_number_of(name)) for name in names) if x is not None]
        steps = [b - a for a, b in pairwise(places)]
        if steps and max(steps) - min(steps) > 0.05 * max(steps):
            return False
    return True


def _number_of(place: object) -> object:
    """A place's number, if its name is one."""
    try:
        return float(str(place))
    except ValueError:
        return None
