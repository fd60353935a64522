"""How series are drawn: points with intervals, lines, bars, bands, the cells of a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dpaudit import wording
from dpaudit.render.charts.axis import Scale
from dpaudit.render.charts.svg import ALARM, CALM, INK, PAPER, QUIET, SERIES, short
from dpaudit.report import Chart, Mark, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "MARKERS",
    "colours",
    "draw_band",
    "draw_bars",
    "draw_cells",
    "draw_line",
    "draw_points",
    "legend_entry",
    "map_legend",
]

MARKERS = "osD^vPX*"
_MOST_MARKS = 13  # a line of more points has a mark at every second, third, … point only
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.3)))
# straight lines only: dots take 100 kB of SVG
_HATCHES = ("", "///", "\\\\\\", "---", "|||", "xxx", "+++", "//---")
_SHADES, _DARKEST = 10, 0.9


def colours(series: Series, mark: Mark | None = None) -> tuple[str, str]:
    """The colour of a mark's line, and of its face."""
    if mark is not None and mark.alarm:
        colour = ALARM
    elif series.quiet:
        colour = INK
    elif series.group is None:
        colour = CALM
    else:
        colour = SERIES[series.group % len(SERIES)]
    return colour, colour if mark is None or mark.filled else PAPER


def _marker(series: Series) -> str:
    return series.marker or MARKERS[(series.group or 0) % len(MARKERS)]


def draw_points(axes: Axes, series: Series, scale: Scale, *, across: bool, k: int) -> None:
    """Marks with their intervals, along x if ``across``; stems reach to the end of the axis."""
    del k
    for mark in series.marks:
        colour, face = colours(series, mark)
        ends = _ends(mark, scale, stem=series.look == "stems", across=across)
        at = mark.y if across else mark.x
        if ends is not None:
            (axes.hlines if across else axes.vlines)(at, *ends, color=colour, linewidth=1.4)
        if mark.high == math.inf:
            tip = (scale.high, at) if across else (at, scale.high)
            arrow = {"arrowstyle": "->", "color": colour}
            axes.annotate("", tip, xytext=(mark.x, mark.y), arrowprops=arrow)
        axes.plot(
            [mark.x], [mark.y], _marker(series), color=colour, markerfacecolor=face, markersize=6,
            clip_on=False, zorder=4,
        )  # fmt: skip


def _ends(mark: Mark, scale: Scale, *, stem: bool, across: bool) -> tuple[float, float] | None:
    if stem:
        value = mark.x if across else mark.y
        return scale.clamped(value), min(scale.high, 1.0) if scale.log else scale.clamped(0.0)
    if mark.low is None or mark.high is None or math.isnan(mark.low) or math.isnan(mark.high):
        return None
    return scale.clamped(mark.low), scale.clamped(mark.high)


def draw_line(axes: Axes, series: Series, scale: Scale) -> None:
    """A line through the marks, with their intervals; shaded on one side if asked."""
    colour, _ = colours(series)
    xs, ys = [m.x for m in series.marks], [m.y for m in series.marks]
    if series.shade:
        edge = scale.high if series.shade == "above" else scale.low
        axes.fill_between(xs, ys, edge, color=QUIET, alpha=0.2, linewidth=0)
    lines = [(m, e) for m in series.marks if (e := _ends(m, scale, stem=False, across=False))]
    axes.vlines(
        [m.x for m, _ in lines], [e[0] for _, e in lines], [e[1] for _, e in lines],
        color=colour, linewidth=1, zorder=3,
    )  # fmt: skip
    for side in (0, 1):
        ends = [e[side] for _, e in lines]
        axes.plot([m.x for m, _ in lines], ends, "_", color=colour, markersize=4, zorder=3)
    # several marks at one x: no line zigzags through them
    once = all(a < b for a, b in pairwise(xs))
    axes.plot(
        xs, ys, _marker(series), color=colour, markersize=4, markeredgewidth=0, linewidth=1.2,
        markevery=max(1, len(xs) // _MOST_MARKS), zorder=3,
        linestyle=_DASHES[(series.group or 0) % len(_DASHES)] if once else "none",
    )  # fmt: skip


def draw_band(axes: Axes, series: Series, scale: Scale) -> None:
    """A band from the marks' lower to their upper ends; of one mark, over its width."""
    marks = [m for m in series.marks if m.low is not None and m.high is not None]
    colour = QUIET if series.quiet else colours(series)[0]
    if any(m.width for m in marks):
        for m in marks:
            sides = [m.x - m.width / 2, m.x + m.width / 2]
            ends = scale.clamped(m.low or 0.0), scale.clamped(m.high or 0.0)
            axes.fill_between(sides, *ends, color=colour, alpha=0.3, linewidth=0, zorder=2.5)
        return
    lows, highs = ([scale.clamped(e or 0.0) for e in ends] for ends in zip(
        *((m.low, m.high) for m in marks), strict=True)) if marks else ([], [])  # fmt: skip
    axes.fill_between(
        [m.x for m in marks], lows, highs, color=colour, alpha=0.16, linewidth=0, zorder=1.5
    )


def draw_bars(axes: Axes, series: Series, scale: Scale, *, groups: int) -> None:
    """Bars with hatching by group, or their outline alone; intervals where marks have them."""
    colour, _ = colours(series)
    floor = scale.low if scale.log else scale.clamped(0.0)
    marks = [m for m in series.marks if math.isfinite(m.y)]
    if series.look == "steps":
        ends = marks[-1].x + marks[-1].width / 2 if marks else 0.0
        edges = [m.x - m.width / 2 for m in marks] + [ends]
        axes.stairs([m.y for m in marks], edges, color=colour, linewidth=1.2, baseline=None)
        return
    xs, widths = [m.x for m in marks], [m.width or 0.8 for m in marks]
    bases = [m.base or floor for m in marks]
    heights = [m.y if m.base else m.y - floor for m in marks]
    faces = [colours(series, m)[0] for m in marks]
    axes.bar(xs, heights, widths, bases, color=faces, alpha=0.35, linewidth=0, zorder=1.9)
    if groups > 1:
        hatch = _HATCHES[(series.group or 0) % len(_HATCHES)]
        axes.bar(
            xs, heights, widths, bases, facecolor="none", edgecolor=colour, hatch=hatch,
            linewidth=0.9, zorder=2,
        )  # fmt: skip
    for mark in marks:
        if ends_ := _ends(mark, scale, stem=False, across=False):
            axes.vlines(mark.x, *ends_, color=INK, linewidth=1, zorder=3)


def draw_cells(axes: Axes, chart: Chart, series: Sequence[Series]) -> None:
    """One path for all cells of a shade, so that a map of a hundred cells stays small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    low, high = _range_of(chart)
    shades: dict[int, list[tuple[float, float]]] = {}
    for one in series:
        for mark in one.marks:
            if mark.value is not None and math.isfinite(mark.value):
                shades.setdefault(_shade(mark.value, low, high), []).append((mark.x, mark.y))
    square = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0, 0))
    for shade, cells in sorted(shades.items()):
        corners = [(x + a, y + b) for x, y in cells for a, b in square]
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(cells)
        face = {"facecolor": CALM, "alpha": _opacity(shade), "linewidth": 0}
        axes.add_patch(PathPatch(Path(corners, codes), **face))


def _range_of(chart: Chart) -> tuple[float, float]:
    values = [
        m.value
        for panel in chart.panels
        for one in panel.series
        for m in one.marks
        if m.value is not None and math.isfinite(m.value)
    ]
    if chart.value.form == "proportion":
        return 0.0, 1.0
    return (min(values), max(values)) if values else (0.0, 1.0)


def _shade(value: float, low: float, high: float) -> int:
    """0 to 9."""
    if high <= low:
        return _SHADES - 1
    return min(_SHADES - 1, max(0, int((value - low) / (high - low) * _SHADES)))


def _opacity(shade: int) -> float:
    return 0.04 + (_DARKEST - 0.04) * shade / (_SHADES - 1)


def map_legend(figure: Figure, chart: Chart) -> None:
    """The ranges of five of the ten shades."""
    from matplotlib.patches import Patch

    low, high = _range_of(chart)
    shades = sorted({0, _SHADES // 4, _SHADES // 2, 3 * _SHADES // 4, _SHADES - 1})
    edges = [low + (high - low) * s / _SHADES for s in range(_SHADES + 1)]
    form = wording.percent if chart.value.form == "proportion" else wording.quantity
    ends = [form(edge).replace(".0 %", " %") for edge in edges]
    figure.legend(
        [Patch(facecolor=CALM, alpha=_opacity(s), linewidth=0) for s in shades],
        [f"{ends[s]} – {ends[s + 1]}" for s in shades],
        loc="outside upper left", ncols=len(shades), handlelength=1.2, columnspacing=1.0,
        handletextpad=0.4, borderaxespad=0.2, fontsize=8,
        title=short(chart.value.label, limit=50), title_fontsize=8, alignment="left",
    )  # fmt: skip


def legend_entry(series: Series) -> Any:
    """The sign of a series in the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour, _ = colours(series)
    if series.look == "bars":
        hatch = _HATCHES[(series.group or 0) % len(_HATCHES)]
        return Patch(facecolor="none", edgecolor=colour, hatch=hatch, linewidth=0.9)
    if series.look == "band":
        return Patch(facecolor=QUIET, alpha=0.4, linewidth=0)
    if series.look == "steps":
        return Patch(facecolor="none", edgecolor=colour)
    filled = any(mark.filled for mark in series.marks)
    line = Line2D([], [], color=colour, marker=_marker(series), linewidth=1.2)
    dashes = _DASHES[(series.group or 0) % len(_DASHES)]
    line.set(
        linestyle=dashes if series.look == "line" else "none",
        markerfacecolor=colour if filled else "none",
        markersize=4 if series.look == "line" else 7,
    )
    return line
