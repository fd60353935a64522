"""The detectability map of one audit: flaws found nine times in ten, by number of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpaudit.report.figures.frame import DASHED
from dpaudit.report.figures.readout import Mark, read_out
from dpaudit.report.figures.svg import CALM, PAPER, QUIET, Picture, inline_svg, superscript
from dpaudit.report.format import count, quantity
from dpaudit.results.text import printable
from dpaudit.types import PowerPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["power_map"]

_COLUMNS = 3
_WIDTH = 9.2
_HARDER_ABOVE = ("truncated tails", "tail weight", "coarse noise", "Gaussian pancake, small γ")
"""Flaws whose larger sizes are harder to find."""

Points = Sequence[PowerPoint]


def power_map(points: Points, *, prefix: str) -> Picture | None:
    """One small multiple per flaw; what may be missed is shaded, and this audit is marked.

    Points with ``found_low`` were measured; the others are this audit's. None without points.
    """
    flaws = list(dict.fromkeys(p.flaw for p in points))
    if not flaws:
        return None
    lines = math.ceil(len(flaws) / _COLUMNS)
    marks: list[Mark] = []
    here = sorted({p.samples for p in points if p.found_low is None})

    def draw() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH, 1.9 * lines + 0.3), layout="constrained")
        grid = figure.subplots(lines, _COLUMNS, squeeze=False, sharex=True)
        for axes, flaw in zip(grid.flat, flaws, strict=False):
            _panel(axes, flaw, [p for p in points if p.flaw == flaw], here)
            for p in (p for p in points if p.flaw == flaw):
                by = "this audit" if p.found_low is None else "measured"
                words = f"{quantity(p.size, digits=3)} {p.unit} ({by})"
                name = f"{flaw}, {count(p.samples)} values"
                marks.append(Mark(axes, p.samples, p.size, name, words))
        for axes in grid.flat[len(flaws) :]:
            axes.set_visible(False)
        for axes in grid.flat[max(0, len(flaws) - _COLUMNS) : len(flaws)]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("values")
        return figure

    said = "; ".join(
        f"{printable(p.flaw, limit=80)} {quantity(p.size, digits=3)} {printable(p.unit, limit=80)}"
        for p in points
        if p.found_low is None
    )
    values = f" with {count(here[0])} values" if here else ""
    svg = inline_svg(draw, prefix=prefix)
    return Picture(
        svg,
        f"Smallest flaws found nine times in ten{values}, by kind: {said}.",
        "The smallest flaws found with probability 0.9 or more at α = 0.01, by number of values, "
        "measured by simulation; shaded flaws may pass. The hollow mark is this audit, "
        "interpolated on logarithmic scales.",
        title="Smallest flaws found",
        wide=True,
        name=prefix,
        points=read_out(marks),
    )


def _panel(axes: Axes, flaw: str, points: Points, here: Sequence[int]) -> None:
    curve = sorted((p.samples, p.size) for p in points if p.found_low is not None)
    own = [(p.samples, p.size) for p in points if p.found_low is None]
    sizes = [s for _, s in (*curve, *own)]
    low, high = min(sizes) / 1.6, max(sizes) * 1.6
    axes.set_xscale("log")
    axes.set_yscale("log")
    xs, ys = [n for n, _ in curve], [s for _, s in curve]
    axes.fill_between(
        xs, ys, high if flaw in _HARDER_ABOVE else low, color=QUIET, alpha=0.18, linewidth=0
    )
    axes.plot(xs, ys, "o-", color=CALM, linewidth=1.2, markersize=3.5)
    for n, size in own:
        axes.plot([n], [size], "o", color=CALM, markerfacecolor=PAPER, markersize=7, clip_on=False)
    for n in here:
        axes.axvline(n, color=QUIET, linewidth=0.8, linestyle=DASHED, zorder=0)
    exponents = range(
        math.floor(math.log10(min(xs + [n for n, _ in own]))), math.ceil(math.log10(max(xs))) + 1
    )
    axes.set_xticks([10.0**e for e in exponents], [superscript(e) for e in exponents])
    axes.set_xticks([], minor=True)
    ticks = sorted({min(ys), max(ys)} if max(ys) > 1.05 * min(ys) else {max(ys)})
    axes.set_yticks(ticks, [quantity(t, digits=3) for t in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low, high)
    axes.set_title(f"{flaw}\n{printable(points[0].unit, limit=60)}", fontsize=8, loc="left")
