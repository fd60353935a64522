"""Small multiples of lines or bars: our measurements filled, published values hollow."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from dpaudit.report.figures.axis import Scale, scale_of, set_ticks
from dpaudit.report.figures.frame import DASHED, WIDTH
from dpaudit.report.figures.grid_points import Grid, Panel, Point, laid_out
from dpaudit.report.figures.grid_words import alt_text, caption
from dpaudit.report.figures.readout import Mark, belongs, read_out, series_of
from dpaudit.report.figures.svg import INK, QUIET, SERIES, Picture, inline_svg, short
from dpaudit.report.measurements import Plot, Row
from dpaudit.report.tables import measured

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["measured_grid"]

WIDE = 9.2
"""Inches, for three or more panels side by side; a phone scrolls."""

_MARKERS = "osD^vPX*"
# a line of many points has a mark at every second, third, … point only
_MARKS = 13
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.3)))
# straight lines only: dots take 100 kB of SVG
_HATCHES = ("", "///", "\\\\\\", "---", "|||", "xxx", "+++", "//---")


class _Frame(NamedTuple):
    """What every panel of a figure shares."""

    plot: Plot
    grid: Grid
    x: Scale
    y: Scale
    size: tuple[float, float]


def measured_grid(plot: Plot, rows: Sequence[Row], *, prefix: str) -> Picture | None:
    """Draw one figure of a document of measurements; None if it can show no value."""
    grid = laid_out(plot, rows)
    if not any(math.isfinite(v) for p in grid.points for v in (p.y, p.published)):
        return None
    lines = math.ceil(len(grid.panels) / grid.columns)
    wide = grid.columns > 2
    width = WIDE if wide else WIDTH
    height = 2.7 if len(grid.panels) == 1 else 1.9 if grid.columns <= 3 else 1.75
    # the axis holds the ends of intervals and bands, the published values and the reference
    ys = [v for p in grid.points for v in (p.y, p.low, p.high, p.published, p.lower, p.upper)]
    ys += [] if plot.reference is None else [plot.reference]
    frame = _Frame(
        plot,
        grid,
        scale_of(
            [p.x for p in grid.points], log=plot.log_x and not grid.categories, form=plot.x.format
        ),
        scale_of(ys, log=plot.log_y, form=plot.y.format, from_zero=plot.bars),
        ((width - 0.9) / grid.columns - 0.15, height - 0.45),
    )

    marks: list[Mark] = []

    def draw() -> Figure:
        from matplotlib.figure import Figure

        legend = _legend(frame)
        columns = _columns([label for _, label in legend], inches=width - 0.2)
        extra = 0.2 * math.ceil(len(legend) / columns) if len(legend) > 1 else 0
        figure = Figure(figsize=(width, 0.55 + height * lines + extra), layout="constrained")
        every = figure.subplots(lines, grid.columns, sharex=True, sharey=True, squeeze=False)
        for i, axes in enumerate(every.flat):
            panel = grid.panels[i] if i < len(grid.panels) else None
            if panel is None:
                axes.set_visible(False)
                continue
            _set_axes(axes, frame, panel)
            for k, line in sorted(panel.lines.items()):
                before = set(axes.get_children())
                (_draw_bars if plot.bars else _draw_line)(axes, frame, k, line)
                if len(grid.series) > 1:
                    belongs([a for a in axes.get_children() if a not in before], k)
                marks.extend(_marks(axes, frame, panel, k, line))
            below = grid.panels[i + grid.columns :: grid.columns]
            axes.tick_params(
                labelbottom=not any(below), labelleft=not any(grid.panels[i - i % grid.columns : i])
            )
        figure.supxlabel(short(plot.x.label, limit=90 if wide else 60), fontsize=9.5)
        figure.supylabel(short(plot.y.label, limit=60), fontsize=9.5)
        if len(legend) > 1:
            # matplotlib fills a legend by column; people read rows
            by_column = [entry for j in range(columns) for entry in legend[j::columns]]
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

    svg = inline_svg(draw, prefix=prefix)
    names = [f"{plot.series.label} = {name}" if plot.series else name for name in grid.series]
    return Picture(
        svg,
        alt_text(plot, grid),
        caption(plot, grid),
        plot.title,
        wide,
        name=prefix,
        points=read_out(marks),
        series=series_of(names) if 1 < len(names) <= 8 else "",
    )


def _marks(axes: Axes, frame: _Frame, panel: Panel, k: int, line: Sequence[Point]) -> list[Mark]:
    """The marks of one line or row of bars."""
    plot, grid = frame.plot, frame.grid
    several = len(grid.series) > 1
    who = f"{plot.series.label} = {grid.series[k]}" if plot.series else ""
    found = []
    for p in line:
        at = grid.categories[int(p.x)] if grid.categories else measured(p.x, plot.x.format)
        name = ", ".join(filter(None, (panel.title, who, f"{plot.x.label} = {at}")))
        ends = (
            {"low": p.low, "high": p.high} if math.isfinite(p.low) and math.isfinite(p.high) else {}
        )
        value = f"{plot.y.label} {measured({'value': p.y, **ends}, plot.y.format)}"
        if plot.published and math.isfinite(p.published):
            value += f" ({plot.published.label} {measured(p.published, plot.y.format)})"
        x = p.x + (k - (len(grid.series) - 1) / 2) * 0.8 / len(grid.series) if plot.bars else p.x
        found.append(Mark(axes, x, p.y, name, value, k if several else None))
    return found


def _set_axes(axes: Axes, frame: _Frame, panel: Panel) -> None:
    plot, grid = frame.plot, frame.grid
    for axis, scale, inches in (("x", frame.x, frame.size[0]), ("y", frame.y, frame.size[1])):
        if axis == "x" and grid.categories:
            labels = [_two_lines(c) for c in grid.categories]
            longest = max(len(line) for c in labels for line in c.split("\n"))
            step = math.ceil(len(grid.categories) / max(1, int(inches / (0.075 * longest + 0.1))))
            shown = range(0, len(grid.categories), step)
            axes.set_xticks(list(shown), [labels[i] for i in shown])
            axes.set_xlim(-0.5, len(grid.categories) - 0.5)
            continue
        if scale.log:
            axes.set(**{f"{axis}scale": "log"})
        set_ticks(
            axes.xaxis if axis == "x" else axes.yaxis, scale, inches=inches, upright=axis == "y"
        )
        axes.set(**{f"{axis}lim": (scale.low, scale.high)})
    axes.grid(axis="y", color=QUIET, linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    axes.set_title(
        short(panel.title, limit=max(8, int(frame.size[0] / 0.05))), loc="left", fontsize=7.5
    )
    if plot.reference is not None and frame.y.low <= plot.reference <= frame.y.high:
        axes.axhline(plot.reference, color=QUIET, linewidth=1, linestyle=DASHED, zorder=1)
    if plot.diagonal and not (frame.x.log or frame.y.log or grid.categories):
        low, high = max(frame.x.low, frame.y.low), min(frame.x.high, frame.y.high)
        axes.plot([low, high], [low, high], color=QUIET, linewidth=1, linestyle=DASHED, zorder=1)


def _two_lines(text: str, *, limit: int = 14) -> str:
    lines = textwrap.wrap(short(text, limit=2 * limit), limit) or [""]
    return "\n".join(lines[:2]) if len(lines) <= 2 else short(text, limit=limit)


def _draw_line(axes: Axes, frame: _Frame, k: int, line: Sequence[Point]) -> None:
    colour, mark = SERIES[k % len(SERIES)], _MARKERS[k % len(_MARKERS)]
    xs = [p.x for p in line]
    # several rows at one x: marks only, no line zigzags through them
    once = all(a < b for a, b in pairwise(xs))
    if frame.plot.band:
        axes.fill_between(
            xs,
            [frame.y.clamped(p.lower) for p in line],
            [frame.y.clamped(p.upper) for p in line],
            color=colour, alpha=0.16, linewidth=0, zorder=1.5,
        )  # fmt: skip
    _draw_ends(axes, frame, [(p.x, p) for p in line], colour)
    axes.plot(
        xs, [p.y for p in line], mark, color=colour, markersize=4, markeredgewidth=0, linewidth=1.2,
        markevery=max(1, len(line) // _MARKS), zorder=3,
        linestyle=_DASHES[k % len(_DASHES)] if once else "none",
    )  # fmt: skip
    _draw_published(axes, [(p.x, p) for p in line], colour, mark)


def _draw_bars(axes: Axes, frame: _Frame, k: int, line: Sequence[Point]) -> None:
    colour, n = SERIES[k % len(SERIES)], len(frame.grid.series)
    width = 0.8 / n
    spots = [(p.x + (k - (n - 1) / 2) * width, p) for p in line]
    floor = frame.y.low if frame.y.log else frame.y.clamped(0.0)
    ours = [(x, p) for x, p in spots if math.isfinite(p.y)]
    xs, heights = [x for x, _ in ours], [p.y - floor for _, p in ours]
    axes.bar(
        xs, heights, width=0.9 * width, bottom=floor, facecolor="none", edgecolor=colour,
        hatch=_HATCHES[k % len(_HATCHES)], linewidth=0.9, zorder=2,
    )  # fmt: skip
    tint: dict[str, Any] = {"color": colour, "alpha": 0.3, "linewidth": 0, "zorder": 1.9}
    axes.bar(xs, heights, width=0.9 * width, bottom=floor, **tint)
    for x, p in spots:
        ends = frame.y.clamped(p.lower), frame.y.clamped(p.upper)
        if frame.plot.band and not any(math.isnan(e) for e in ends):
            sides = [x - width / 2, x + width / 2]
            axes.fill_between(sides, *ends, color=QUIET, alpha=0.3, linewidth=0, zorder=2.5)
    _draw_ends(axes, frame, spots, INK)
    _draw_published(axes, spots, INK, "D")


def _draw_ends(
    axes: Axes, frame: _Frame, spots: Sequence[tuple[float, Point]], colour: str
) -> None:
    """Draw intervals as bars; an end that the axis cannot show stops at the frame."""
    kept = [(x, p) for x, p in spots if not math.isnan(p.low) and not math.isnan(p.high)]
    xs = [x for x, _ in kept]
    lows = [frame.y.clamped(p.low) for _, p in kept]
    highs = [frame.y.clamped(p.high) for _, p in kept]
    axes.vlines(xs, lows, highs, color=colour, linewidth=1, zorder=3)
    for ends in (lows, highs):
        axes.plot(xs, ends, "_", color=colour, markersize=4, markeredgewidth=0.9, zorder=3)


def _draw_published(
    axes: Axes, spots: Sequence[tuple[float, Point]], colour: str, mark: str
) -> None:
    kept = [(x, p) for x, p in spots if math.isfinite(p.published)]
    axes.plot(
        [x for x, _ in kept], [p.published for _, p in kept], mark, color=colour, linestyle="none",
        markerfacecolor="none", markersize=7.5, markeredgewidth=0.9, zorder=4,
    )  # fmt: skip


def _columns(labels: Sequence[str], *, inches: float) -> int:
    """The number of legend columns that fit side by side."""
    for n in range(len(labels), 1, -1):
        if sum(0.075 * max(map(len, labels[j::n])) + 0.58 for j in range(n)) <= inches:
            return n
    return 1


def _legend(frame: _Frame) -> list[tuple[Artist, str]]:
    """One entry per series, then one each for hollow marks and the band."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    plot, found = frame.plot, list[tuple["Artist", str]]()
    for k, name in enumerate(frame.grid.series):
        colour = SERIES[k % len(SERIES)]
        label = short(f"{plot.series.label} = {name}", limit=40) if plot.series else "ours"
        if plot.bars:
            hatch = _HATCHES[k % len(_HATCHES)]
            found.append(
                (Patch(facecolor="none", edgecolor=colour, hatch=hatch, linewidth=0.9), label)
            )
        else:
            mark, dashes = _MARKERS[k % len(_MARKERS)], _DASHES[k % len(_DASHES)]
            line = Line2D([], [], color=colour, marker=mark, linestyle=dashes, linewidth=1.2)
            line.set(markersize=4, markeredgewidth=0)
            found.append((line, label))
    if plot.published:
        mark = "D" if plot.bars else "o" if plot.series else _MARKERS[0]
        hollow = Line2D(
            [], [], color=INK, marker=mark, markerfacecolor="none", linestyle="none", markersize=7
        )
        found.append((hollow, short(plot.published.label, limit=40)))
    if plot.band:
        label = short(f"{plot.band[0].label} to {plot.band[1].label}", limit=50)
        found.append((Patch(facecolor=QUIET, alpha=0.4, linewidth=0), label))
    return found
