"""How series are drawn: points with intervals, lines, bars, bands, the cells of a map; and axes.

An axis has limits that hold every mark, and ticks that fit a small panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from dpaudit import wording
from dpaudit.render.charts.svg import ALARM, CALM, INK, PAPER, QUIET, SERIES, short, superscript
from dpaudit.report import Chart, Mark, Series
from dpaudit.wording import quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "Scale",
    "colours",
    "draw_band",
    "draw_bars",
    "draw_cells",
    "draw_line",
    "draw_points",
    "has_place",
    "legend_entry",
    "map_legend",
    "scale_of",
    "set_ticks",
]

MOST = 1e150
"""From here on values count as infinite: subtracting the ends of a larger axis overflows."""

_LETTER = 0.075
"""The width of a letter of a tick label, in inches."""


class Scale(NamedTuple):
    """An axis: its ends, whether it is logarithmic, the values on it, and how they are written."""

    low: float
    high: float
    log: bool
    values: tuple[float, ...]
    format: str

    def clamped(self, x: float) -> float:
        """The nearest place on the axis; NaN stays."""
        return x if math.isnan(x) else min(max(x, self.low), self.high)


def has_place(x: float, *, log: bool) -> bool:
    """Whether an axis can show this value."""
    return abs(x) < MOST and (x > 0 or not log)


def scale_of(values: Sequence[float], *, log: bool, form: str, from_zero: bool = False) -> Scale:
    """The axis for the values: the finite ones, and on a logarithmic axis the positive ones.

    ``from_zero``: a linear axis starts (or, without positive values, ends) exactly at 0.
    """
    places = tuple(sorted({v for v in values if has_place(v, log=log)}))
    if not places:
        return Scale(0.1, 10.0, log, (), form) if log else Scale(0.0, 1.0, log, (), form)
    low, high = places[0], places[-1]
    if from_zero and not log:
        low, high = min(low, 0.0), max(high, 0.0)
    if log:
        bottom, top = math.log10(low), math.log10(high)
        room = max(0.05 * (top - bottom), 0.1)
        return Scale(10 ** max(bottom - room, -307.0), 10 ** (top + room), log, places, form)
    room = 0.05 * (high - low) if high > low else max(0.1 * abs(high), 0.05)
    if form == "proportion" and low >= 0 and high <= 1:
        room = min(room, 0.05)
    ends = low - room, high + room
    if from_zero:
        ends = (0.0 if low >= 0 else ends[0]), (0.0 if high <= 0 < -low else ends[1])
    return Scale(*ends, log, places, form)


def set_ticks(axis: Axis, scale: Scale, *, inches: float, upright: bool = False) -> None:
    """Set ticks for an axis of this length; ``upright``: labels are stacked, not side by side."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    if not scale.log:
        axis.set_major_locator(
            MaxNLocator(nbins=max(2, min(5, int(inches / (0.35 if upright else 0.6)))))
        )
        axis.set_major_formatter(FuncFormatter(lambda x, _: _label(x, scale)))
        return
    places = _log_ticks(scale, exact=not upright)
    powers = all(_is_power(at) for at in places) and not all(0.01 <= at <= 1000 for at in places)
    ticks = [
        (at, superscript(round(math.log10(at))) if powers else _label(at, scale)) for at in places
    ]
    while len(ticks) > 2 and not _fits(ticks, scale, inches, upright=upright):
        ticks = ticks[::2]
    axis.set_ticks([at for at, _ in ticks], [label for _, label in ticks])
    axis.set_minor_locator(NullLocator())


def _log_ticks(scale: Scale, *, exact: bool) -> list[float]:
    """If ``exact``, the values themselves if few; else powers of ten, or 1, 2, 5 of few decades."""
    if exact and len(scale.values) <= 6:
        return list(scale.values)
    low, high = math.log10(scale.low), math.log10(scale.high)
    decades = [10.0**e for e in range(math.ceil(low), math.floor(high) + 1)]
    if len(decades) >= 3:
        return decades
    finer = [m * 10.0**e for e in range(math.floor(low), math.floor(high) + 1) for m in (1, 2, 5)]
    return [t for t in finer if scale.low <= t <= scale.high] or [scale.values[0], scale.values[-1]]


def _fits(
    ticks: Sequence[tuple[float, str]], scale: Scale, inches: float, *, upright: bool
) -> bool:
    """Whether no label touches the next one."""
    unit = inches / (math.log10(scale.high) - math.log10(scale.low))
    for (a, left), (b, right) in pairwise(ticks):
        needed = 0.18 if upright else _LETTER * (_wide(left) + _wide(right)) / 2 + 0.06
        if unit * (math.log10(b) - math.log10(a)) < needed:
            return False
    return True


def _wide(label: str) -> float:
    """The width in letters; the digits of an exponent are narrower."""
    return sum(0.6 if c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹" else 1 for c in label)


def _label(x: float, scale: Scale) -> str:
    if scale.format == "proportion" and (not scale.log or x >= 1e-3):
        return f"{100 * x:g} %"
    if scale.log and _is_power(x) and not 0.01 <= x <= 1000:
        return superscript(round(math.log10(x)))
    return quantity(0.0 if abs(x) < 1e-12 * (scale.high - scale.low) else x) + (
        "×" if scale.format == "ratio" else ""
    )


def _is_power(x: float) -> bool:
    """Whether it is a power of ten, up to rounding."""
    exponent = math.log10(x) if x > 0 else 0.5
    return math.isclose(exponent, round(exponent), abs_tol=1e-9)


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
