"""Small multiples of heat maps over two settings, darker for higher values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dpaudit.report.figures.frame import WIDTH
from dpaudit.report.figures.grid_points import Grid, Panel, laid_out
from dpaudit.report.figures.readout import Mark, read_out
from dpaudit.report.figures.svg import CALM, Picture, inline_svg, short
from dpaudit.report.format import count, number, quantity
from dpaudit.report.measurements import Measure, Plot, Row
from dpaudit.report.tables import measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["measured_map"]

WIDE = 9.2
_SHADES = 10
_DARKEST = 0.95
_TICKS = 5


def measured_map(plot: Plot, rows: Sequence[Row], *, prefix: str) -> Picture | None:
    """Draw one map per panel; None if it can show no value.

    Shades are ten steps from the least to the largest value, of a proportion from 0 to 100 %.
    Places are evenly spaced in the order of their numbers.
    """
    value = plot.value
    if value is None:
        return None
    drawn = plot._replace(y=value, series=plot.y, log_x=False, log_y=False, points=None, where={})
    grid = laid_out(drawn, plot.spread(rows))
    values = [p.y for p in grid.points if math.isfinite(p.y)]
    if not values:
        return None
    low, high = (0.0, 1.0) if value.format == "proportion" else (min(values), max(values))
    xs: Sequence[object] = grid.categories or sorted({p.x for p in grid.points})
    lines = math.ceil(len(grid.panels) / grid.columns)
    wide = grid.columns > 2
    width = WIDE if wide else WIDTH
    panel = (width - 0.9) / grid.columns - 0.15
    marks: list[Mark] = []
    at = {x: i for i, x in enumerate(xs)}

    def draw() -> Figure:
        from matplotlib.figure import Figure

        height = min(2.7, max(1.2, 0.9 * panel)) + 0.3
        figure = Figure(figsize=(width, 0.8 + height * lines), layout="constrained")
        every = figure.subplots(lines, grid.columns, sharex=True, sharey=True, squeeze=False)
        for i, axes in enumerate(every.flat):
            found = grid.panels[i] if i < len(grid.panels) else None
            if found is None:
                axes.set_visible(False)
                continue
            _draw(axes, found, xs, low, high)
            for row, line in found.lines.items():
                for p in line:
                    across = f"{plot.x.label} = {_place(p.x, grid)}"
                    up = f"{plot.y.label} = {grid.series[row]}"
                    name = ", ".join(filter(None, (found.title, across, up)))
                    words = f"{value.label} {measured(p.y, value.format)}"
                    marks.append(Mark(axes, float(at.get(p.x, p.x)), float(row), name, words))
            axes.set_title(
                short(found.title, limit=max(8, int(panel / 0.05))), loc="left", fontsize=7.5
            )
            _ticks(axes, grid, xs)
            below = grid.panels[i + grid.columns :: grid.columns]
            axes.tick_params(
                labelbottom=not any(below), labelleft=not any(grid.panels[i - i % grid.columns : i])
            )
        figure.supxlabel(short(plot.x.label, limit=90 if wide else 60), fontsize=9.5)
        figure.supylabel(short(plot.y.label, limit=60), fontsize=9.5)
        _legend(figure, value, low, high)
        return figure

    svg = inline_svg(draw, prefix=prefix)
    return Picture(
        svg,
        _alt(plot, grid, value),
        _caption(plot, grid, value),
        plot.title,
        wide,
        name=prefix,
        points=read_out(marks),
    )


def _place(x: float, grid: Grid) -> str:
    return grid.categories[int(x)] if grid.categories else quantity(x)


def _shade(value: float, low: float, high: float) -> int:
    """0 to 9."""
    if high <= low:
        return _SHADES - 1
    return min(_SHADES - 1, max(0, int((value - low) / (high - low) * _SHADES)))


def _opacity(shade: int) -> float:
    return 0.04 + (_DARKEST - 0.04) * shade / (_SHADES - 1)


def _draw(axes: Axes, panel: Panel, xs: Sequence[object], low: float, high: float) -> None:
    """Draw one path for all cells of a shade, so that a map of a hundred cells stays small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    at = {x: i for i, x in enumerate(xs)}
    shades: dict[int, list[tuple[float, float]]] = {}
    for row, line in panel.lines.items():
        for point in line:
            if math.isfinite(point.y):
                column = float(at.get(point.x, point.x))
                shades.setdefault(_shade(point.y, low, high), []).append((column, float(row)))
    for shade, cells in sorted(shades.items()):
        corners = [
            (x + a, y + b)
            for x, y in cells
            for a, b in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0, 0))
        ]
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(cells)
        axes.add_patch(
            PathPatch(Path(corners, codes), facecolor=CALM, alpha=_opacity(shade), linewidth=0)
        )


def _ticks(axes: Axes, grid: Grid, xs: Sequence[object]) -> None:
    for axis, names in (("x", xs), ("y", grid.series)):
        shown = range(0, len(names), max(1, math.ceil(len(names) / _TICKS)))
        getattr(axes, f"set_{axis}ticks")(list(shown), [_tick(names[i]) for i in shown])
        axes.set(**{f"{axis}lim": (-0.5, len(names) - 0.5)})
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)


def _tick(place: object) -> str:
    x = number(_bare(place))
    return short(str(place), limit=10) if x is None else quantity(x, digits=2)


def _legend(figure: Figure, value: Measure, low: float, high: float) -> None:
    from matplotlib.patches import Patch

    shades = sorted({0, _SHADES // 4, _SHADES // 2, 3 * _SHADES // 4, _SHADES - 1})
    edges = [low + (high - low) * s / _SHADES for s in range(_SHADES + 1)]
    names = [f"{_short(edges[s], value)} – {_short(edges[s + 1], value)}" for s in shades]
    boxes = [Patch(facecolor=CALM, alpha=_opacity(s), linewidth=0) for s in shades]
    figure.legend(
        boxes, names, loc="outside upper left", ncols=len(shades), handlelength=1.2,
        columnspacing=1.0, handletextpad=0.4, borderaxespad=0.2, fontsize=8,
        title=short(value.label, limit=50), title_fontsize=8, alignment="left",
    )  # fmt: skip


def _short(x: float, value: Measure) -> str:
    return measured(x, value.format).replace(".0 %", " %")


def _alt(plot: Plot, grid: Grid, value: Measure) -> str:
    """The axes and, for each panel, the value at two opposite corners and its range."""
    panels = [p for p in grid.panels if p]
    over = (
        f", in {len(panels)} panels by {' and '.join(m.label for m in plot.panels)}"
        if plot.panels
        else ""
    )
    ranges = "; ".join(filter(None, (_range(p, value) for p in panels)))
    title = f"{plot.title.rstrip('.')}. " if plot.title else ""
    axes = f"Maps of {value.label} by {plot.x.label} (across) and {plot.y.label} (up){over}"
    return f"{title}{axes}. {ranges}."


def _range(panel: Panel, value: Measure) -> str:
    cells = [
        (p.x, row, p.y) for row, line in panel.lines.items() for p in line if math.isfinite(p.y)
    ]
    if not cells:
        return ""
    first, last = (pick(cells, key=lambda cell: (cell[0], cell[1])) for pick in (min, max))
    ys = [y for _, _, y in cells]
    left, right, low, high = (
        measured(y, value.format) for y in (first[2], last[2], min(ys), max(ys))
    )
    name = f"{panel.title}: " if panel.title else ""
    return f"{name}{left} lower left, {right} upper right, {low} to {high} overall"


def _caption(plot: Plot, grid: Grid, value: Measure) -> str:
    scale = "0 to 100 %" if value.format == "proportion" else "the least to the largest value"
    parts = [f"Darker: higher {value.label}, in ten steps from {scale}. Empty: no such rows."]
    if not _evenly(grid):
        parts.append("Places are evenly spaced, though their values are not.")
    for left, what in (
        (grid.panels_left_out, "panels"),
        (grid.series_left_out, f"values of {plot.y.label}"),
    ):
        if left:
            parts.append(f"{count(left)} more {what} are in the table only.")
    return " ".join(parts)


def _evenly(grid: Grid) -> bool:
    """Whether the numbers along both axes are evenly spaced."""
    across: Sequence[object] = grid.categories or sorted({p.x for p in grid.points})
    for names in (across, grid.series):
        places = [x for x in (number(_bare(name)) for name in names) if x is not None]
        steps = [b - a for a, b in pairwise(places)]
        if steps and max(steps) - min(steps) > 0.05 * max(steps):
            return False
    return True


def _bare(place: object) -> object:
    """A place's number, if its name is one."""
    try:
        return float(str(place))
    except ValueError:
        return None
