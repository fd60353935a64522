"""The alternative text and the caption of a figure on a grid."""

from __future__ import annotations

import math

from dpaudit.report.figures.grid_points import Grid
from dpaudit.report.format import count, quantity
from dpaudit.report.measurements import Plot
from dpaudit.report.tables import measured

__all__ = ["alt_text", "caption"]


def alt_text(plot: Plot, grid: Grid) -> str:
    """The axes, the range of each series, and how far the published values are from ours."""
    panels = [p for p in grid.panels if p]
    kind = "Bars" if plot.bars else "Lines"
    over = (
        f", in {len(panels)} panels by {' and '.join(m.label for m in plot.panels)}"
        if plot.panels
        else ""
    )
    logs = [
        m.label
        for m, log in ((plot.x, plot.log_x and not grid.categories), (plot.y, plot.log_y))
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
    title = f"{plot.title.rstrip('.')}. " if plot.title else ""
    axes = f"{kind} of {plot.y.label} against {plot.x.label}{over}.{on_log}"
    return f"{title}{axes} {'; '.join(ranges)}.{_apart(grid)}"


def caption(plot: Plot, grid: Grid) -> str:
    """What each kind of mark means, and what is not drawn."""
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
    if plot.reference is not None:
        parts.append(f"Dashed: {measured(plot.reference, plot.y.format)}.".replace(".0 %", " %"))
    if plot.diagonal:
        parts.append(f"Dashed: where {plot.y.label} and {plot.x.label} are equal.")
    if grid.unplaced:
        why = ", or not positive on a logarithmic axis," if plot.log_x or plot.log_y else ""
        verb = (
            "value that is infinite{} is"
            if grid.unplaced == 1
            else "values that are infinite{} are"
        )
        parts.append(f"{count(grid.unplaced)} {verb.format(why)} in the table only.")
    for left, what in ((grid.panels_left_out, "panels"), (grid.series_left_out, "series")):
        if left:
            parts.append(f"{count(left)} more {what} are in the table only.")
    return " ".join(parts)


def _apart(grid: Grid) -> str:
    """The largest difference from the published values, in numbers."""
    apart = [
        abs(p.y - p.published)
        for p in grid.points
        if math.isfinite(p.y) and math.isfinite(p.published)
    ]
    if not apart:
        return ""
    largest, points = quantity(max(apart)), count(len(apart))
    return f" Published for {points} of these points; the largest difference is {largest}."
