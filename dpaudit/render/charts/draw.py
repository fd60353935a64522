"""One chart, drawn: panels, axes, marks with their intervals, lines, a legend."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

from dpaudit.render.charts.marks import (
    Scale,
    colours,
    draw_band,
    draw_bars,
    draw_cells,
    draw_line,
    draw_points,
    has_place,
    legend_entry,
    map_legend,
    scale_of,
    set_ticks,
)
from dpaudit.render.charts.svg import (
    QUIET,
    Picture,
    Spot,
    belongs,
    inline_svg,
    read_out,
    series_of,
    short,
)
from dpaudit.report import Axis, Chart, Panel, Series, replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_chart"]

WIDTH, WIDE = 5.2, 9.2
"""Inches: narrow, so that text stays readable on a phone; three panels or more scroll there."""
DASHED: Any = (0, (4, 3))
_MOST_SERIES = 8  # that the page's script can show and hide


def draw_chart(chart: Chart, *, name: str) -> Picture | None:
    """The picture of a chart, whose id on the page is ``name``; None if it can show no mark."""
    chart = _shown(chart)
    if not any(one.marks for panel in chart.panels for one in panel.series):
        return None
    spots: list[Spot] = []
    svg = inline_svg(lambda: _drawn(chart, spots), prefix=name)
    groups = _groups(chart)
    names = list(groups.values())
    return Picture(
        svg,
        chart.alt,
        chart.caption,
        chart.title,
        chart.columns > 2,
        name=name,
        points=read_out(spots),
        series=series_of(names) if 1 < len(names) <= _MOST_SERIES else "",
        numbers=chart.numbers,
    )


def _shown(chart: Chart) -> Chart:
    """The chart without marks that its axes cannot show."""

    def kept(series: Series, y: Axis) -> Series:
        marks = series.marks
        placed = (has_place(m.x, log=chart.x.log) and has_place(m.y, log=y.log) for m in marks)
        return replace(series, marks=tuple(compress(marks, placed)))

    panels = (
        replace(p, series=tuple(kept(s, p.y or chart.y) for s in p.series)) for p in chart.panels
    )
    return replace(chart, panels=tuple(panels))


def _groups(chart: Chart) -> dict[int, str]:
    """The groups of series in order, with their names."""
    groups: dict[int, str] = {}
    for one in chain.from_iterable(panel.series for panel in chart.panels):
        if one.group is not None and (one.legend or one.group not in groups):
            groups[one.group] = groups.get(one.group) or one.legend
    return dict(sorted(groups.items()))


def _drawn(chart: Chart, spots: list[Spot]) -> Figure:
    from matplotlib.figure import Figure

    lines = math.ceil(len(chart.panels) / chart.columns)
    width = WIDE if chart.columns > 2 else WIDTH
    height = _height(chart)
    entries = _legend_entries(chart)
    columns = _legend_columns([label for _, label in entries], inches=width - 0.2)
    above = 0.2 * math.ceil(len(entries) / columns) if len(entries) > 1 else 0.0
    above += 0.25 * (chart.kind == "map")
    figure = Figure(figsize=(width, 0.55 + height * lines + above), layout="constrained")
    grid = figure.subplots(
        lines, chart.columns, sharex=chart.x.shared, sharey=chart.y.shared, squeeze=False
    )
    size = (width - 0.9) / chart.columns - 0.15, height - 0.45
    for i, axes in enumerate(grid.flat):
        if i >= len(chart.panels):
            axes.set_visible(False)
            continue
        _panel(axes, chart, chart.panels[i], size)
        _marks(axes, chart, chart.panels[i], spots)
        below = chart.panels[i + chart.columns :: chart.columns]
        axes.tick_params(labelbottom=not below or not chart.x.shared)
        if chart.y.shared:
            axes.tick_params(labelleft=i % chart.columns == 0)
    figure.supxlabel(short(chart.x.label, limit=90 if chart.columns > 2 else 70), fontsize=9.5)
    figure.supylabel(short(chart.y.label, limit=60), fontsize=9.5)
    if chart.kind == "map":
        map_legend(figure, chart)
    elif len(entries) > 1:
        by_column = [entry for j in range(columns) for entry in entries[j::columns]]
        figure.legend(
            [artist for artist, _ in by_column],
            [label for _, label in by_column],
            loc="outside upper left",
            ncols=columns,
            handlelength=2.6,
            columnspacing=1.4,
            borderaxespad=0.2,
        )
    return figure


def _height(chart: Chart) -> float:
    if chart.kind == "rows":
        return 0.3 + (0.24 if len(chart.panels[0].series) == 1 else 0.32) * len(chart.y.categories)
    if chart.kind == "map":
        panel = ((WIDE if chart.columns > 2 else WIDTH) - 0.9) / chart.columns - 0.15
        return min(2.7, max(1.2, 0.9 * panel)) + 0.3
    if chart.names:
        count = sum(len(one.marks) for one in chart.panels[0].series)
        return max(2.2, 0.1 + 0.24 * count)
    return 2.5 if len(chart.panels) == 1 else 1.9 if chart.columns <= 3 else 1.75


def _panel(axes: Axes, chart: Chart, panel: Panel, size: tuple[float, float]) -> None:
    """Axes, reference lines and all series of one panel."""
    x, y = (_scale(chart, panel, axis) for axis in ("x", "y"))
    groups = len(_groups(chart))
    up = panel.y or chart.y
    for which, axis, scale, inches in (("x", chart.x, x, size[0]), ("y", up, y, size[1])):
        _set_axis(axes, chart, which, axis, scale, inches)
    if panel.y is not None:
        axes.set_ylabel(short(panel.y.label, limit=30))
    for line in panel.lines:
        _reference(axes, line.at, line.label, vertical=line.vertical, sloped=line.sloped, x=x, y=y)
    if chart.kind == "map":
        draw_cells(axes, chart, panel.series)
    else:
        axes.grid(axis="y", color=QUIET, linewidth=0.4, alpha=0.5)
        axes.set_axisbelow(True)
    across = chart.kind == "rows"
    for k, one in enumerate(panel.series):
        before = set(axes.get_children())
        if one.look == "band":
            draw_band(axes, one, y)
        elif one.look in ("bars", "steps"):
            draw_bars(axes, one, y, groups=groups)
        elif one.look == "line":
            draw_line(axes, one, y)
        elif one.look in ("points", "stems"):
            draw_points(axes, one, x if across else y, across=across, k=k)
        if one.group is not None and groups > 1:
            belongs([a for a in axes.get_children() if a not in before], one.group)
    if chart.names:
        _names_at_right(axes, panel.series, y)
    if panel.title:
        limit = max(8, int(size[0] / 0.05))
        text = "\n".join(short(part, limit=limit) for part in panel.title.split("\n"))
        axes.set_title(text, loc="left", fontsize=7.5 if chart.columns > 1 else 9)


def _scale(chart: Chart, panel: Panel, which: str) -> Scale:
    """The range of an axis: of all panels if they share it."""
    own = which == "y" and panel.y is not None
    axis: Axis = panel.y if own and panel.y else getattr(chart, which)
    panels = chart.panels if axis.shared and not own else (panel,)
    marks = [m for p in panels for s in p.series for m in s.marks]
    values = [getattr(m, which) for m in marks]
    vertical = chart.kind != "rows"
    if (which == "y") == vertical:
        values += [end for m in marks for end in (m.low, m.high) if end is not None]
    if which == "y":
        values += [m.base + m.y for m in marks if m.base]
    if which == "x":
        values += [m.x + side * m.width / 2 for m in marks if m.width for side in (-1, 1)]
    flat = which == "y"
    values += [
        line.at for p in panels for line in p.lines if not line.sloped and line.vertical != flat
    ]
    bars = any(s.look in ("bars", "steps") for p in panels for s in p.series)
    from_zero = axis.zero or (bars and which == "y")
    scale = scale_of(values, log=axis.log, form=axis.form, from_zero=from_zero)
    low = scale.low if axis.low is None else axis.low
    high = scale.high if axis.high is None else axis.high
    return scale._replace(low=low, high=high)


def _set_axis(
    axes: Axes, chart: Chart, which: str, axis: Axis, scale: Scale, inches: float
) -> None:
    target = axes.xaxis if which == "x" else axes.yaxis
    if axis.categories:
        _set_categories(axes, chart, which, axis.categories, inches)
        return
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
    if axis.ticks:
        target.set_ticks([at for at, _ in axis.ticks], [label for _, label in axis.ticks])
    else:
        set_ticks(target, scale, inches=inches, upright=which == "y")
    axes.set(**{f"{which}lim": (scale.low, scale.high)})


def _set_categories(
    axes: Axes, chart: Chart, which: str, names: Sequence[str], inches: float
) -> None:
    if which == "y" and chart.kind == "rows":
        axes.set_yticks(range(len(names)), [short(n) for n in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        links = {m.y: m.link for p in chart.panels for s in p.series for m in s.marks if m.link}
        for i, tick in enumerate(axes.get_yticklabels()):
            if link := links.get(float(i)):
                tick.set_url(_link(link))
        return
    labels = [_two_lines(n) for n in names]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    room = 0.075 * longest + 0.1 if which == "x" else 0.18
    step = math.ceil(len(names) / max(1, int(inches / room)))
    places = range(0, len(names), step)
    target = axes.xaxis if which == "x" else axes.yaxis
    target.set_ticks(list(places), [labels[i] for i in places])
    axes.set(**{f"{which}lim": (-0.5, len(names) - 0.5)})
    if chart.kind == "map":
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)


def _two_lines(text: str, *, limit: int = 14) -> str:
    lines = textwrap.wrap(short(text, limit=2 * limit), limit) or [""]
    return "\n".join(lines[:2]) if len(lines) <= 2 else short(text, limit=limit)


def _reference(
    axes: Axes, at: float, label: str, *, vertical: bool, sloped: bool, x: Scale, y: Scale
) -> None:
    style: dict[str, Any] = {"color": QUIET, "linewidth": 1, "linestyle": DASHED, "zorder": 1}
    if sloped:
        low, high = max(x.low, y.low), min(x.high, y.high)
        axes.plot([low, high], [low, high], **style)
        return
    (axes.axvline if vertical else axes.axhline)(at, **style)
    label = short(label, limit=40)
    if label and vertical:
        axes.annotate(
            label, (at, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
            textcoords="offset points", ha="center",
        )  # fmt: skip
    elif label:
        axes.annotate(
            label, (1, at), xycoords=("axes fraction", "data"), xytext=(-3, 3),
            textcoords="offset points", ha="right",
        )  # fmt: skip


def _marks(axes: Axes, chart: Chart, panel: Panel, spots: list[Spot]) -> None:
    """What the page's script reads out of a panel; labels are written."""
    several = len(_groups(chart)) > 1
    for one in panel.series:
        for mark in one.marks:
            if mark.label:
                colour, _ = colours(one, mark)
                written = axes.annotate(
                    short(mark.label, limit=60), (mark.x, mark.y), xytext=(9, 4),
                    textcoords="offset points", color=colour, va="bottom",
                )  # fmt: skip
                if several and one.group is not None:
                    belongs(written, one.group)
            if mark.name or mark.says:
                group = one.group if several else None
                link = _link(mark.link) if mark.link else ""
                y = mark.base + mark.y if mark.base else mark.y
                spots.append(Spot(axes, mark.x, y, mark.name, mark.says, group, link))


def _link(row: str) -> str:
    return f"#check-{row}"


def _names_at_right(axes: Axes, series: Sequence[Series], y: Scale) -> None:
    """The names of all marks in the right margin, without overlap, joined to their marks."""
    points = [(m, s.group) for s in series for m in s.marks]
    gap = min(0.085, 1 / len(points))
    ordered = sorted(points, key=lambda p: (p[0].y, -p[0].x))
    heights: list[float] = []
    at = -math.inf
    for mark, _ in ordered:
        at = max((mark.y - y.low) / (y.high - y.low), at + gap)
        heights.append(at)
    if heights[-1] > 1:
        last = len(heights) - 1
        heights = [min(h, 1 - gap * (last - i)) for i, h in enumerate(heights)]
    arrow = {"arrowstyle": "-", "relpos": (0, 0.5), "color": QUIET, "linewidth": 0.6, "shrinkB": 4}
    for (mark, group), height in zip(ordered, heights, strict=True):
        written = axes.annotate(
            short(mark.name, limit=26), (mark.x, mark.y), xytext=(1.04, height),
            textcoords="axes fraction", va="center", annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip
        if group is not None:
            belongs([written, *([written.arrow_patch] if written.arrow_patch else [])], group)


def _legend_entries(chart: Chart) -> list[tuple[Any, str]]:
    """One entry per named series, the first of each name."""
    names: dict[str, Any] = {}
    for one in chain.from_iterable(panel.series for panel in chart.panels):
        if one.legend and one.legend not in names:
            names[one.legend] = legend_entry(one)
    return [(artist, short(name, limit=40)) for name, artist in names.items()]


def _legend_columns(labels: Sequence[str], *, inches: float) -> int:
    """The number of legend columns that fit side by side."""
    for n in range(len(labels), 1, -1):
        if sum(0.075 * max(map(len, labels[j::n])) + 0.58 for j in range(n)) <= inches:
            return n
    return 1
