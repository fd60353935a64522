"""The figure of error against protection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpaudit.documents import Arm
from dpaudit.report.figures.frame import MARKS_SAY, chance_line, colours, one, share_range
from dpaudit.report.figures.readout import Mark, belongs, read_out, series_of
from dpaudit.report.figures.svg import QUIET, Picture, inline_svg, short
from dpaudit.report.format import number, percent, quantity
from dpaudit.report.rows import arm_labels, best_attack, keys_in, rate_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["protection_against_error"]


def protection_against_error(rows: Sequence[Arm], *, prefix: str) -> Picture | None:
    """What a defence costs (L2 error) against what it leaves to the attacker."""
    points = [
        (label, error, attack, colours(row, attack))
        for label, row in zip(arm_labels(rows), rows, strict=True)
        if (error := number(row.l2_error)) is not None
        and 0 < error < math.inf
        and (attack := best_attack(row))
    ]
    if len(points) < 3:
        return None
    who = "key holder’s" if keys_in(rows) else "attacker’s"
    errors = [error for _, error, *_ in points]
    named = len(points) <= 12
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(max(2.6, 0.6 + 0.24 * len(points)) if named else 3.2)
        low, high = share_range([a.success for _, _, a, _ in points])
        axes.set_ylim(low, high)
        wide = max(errors) / min(errors) > 20
        if wide:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(lambda *_: "")
            axes.set_xlim(min(errors) / 1.4, max(errors) * 1.4)
        else:
            axes.locator_params(axis="x", nbins=5)
            pad = max(0.08 * (max(errors) - min(errors)), 0.04 * max(errors))
            axes.set_xlim(min(errors) - pad, max(errors) + pad)
        chance_line(axes, [a for _, _, a, _ in points], vertical=False)
        for k, (label, error, attack, (colour, fill)) in enumerate(points):
            style: dict[str, Any] = {
                "color": colour, "markerfacecolor": fill, "markersize": 6, "clip_on": False
            }  # fmt: skip
            mark = axes.plot([error], [attack.success], "o", **style)
            words = f"error {quantity(error)}, success {rate_of(attack)}"
            marks.append(Mark(axes, error, attack.success, label, words, k if named else None))
            if named:
                belongs(mark, k)
        if named:
            names = [(short(n, limit=26), e, a.success) for n, e, a, _ in points]
            _label_at_right(axes, names, span=high - low, low=low)
        axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
        axes.set_xlabel("L2 error of the release (left is better)")
        axes.set_ylabel(f"{who} success")
        return figure

    listed = "; ".join(
        f"{n} error {e:,.4g}, success {percent(a.success)}" for n, e, a, _ in points[:12]
    )
    more = f"; and {len(points) - 12} more arms, in the table" if len(points) > 12 else ""
    svg = inline_svg(draw, prefix=prefix)
    return Picture(
        svg,
        f"L2 error against the {who} success: {listed}{more}.",
        "Error against protection: a defence at the lower left protects and costs little. "
        f"{MARKS_SAY}",
        title="Error against protection",
        name=prefix,
        points=read_out(marks),
        series=series_of(label for label, *_ in points) if named else "",
    )


def _label_at_right(
    axes: Axes, points: Sequence[tuple[str, float, float]], *, span: float, low: float
) -> None:
    """Write names in the right margin, without overlap, each joined to its point by a line."""
    gap = min(0.085, 1 / len(points))
    at = -math.inf
    heights = []
    ordered = sorted(enumerate(points), key=lambda p: (p[1][2], -p[1][1]))
    for _, (_, _, y) in ordered:
        at = max((y - low) / span, at + gap)
        heights.append(at)
    over = max(0.0, heights[-1] - 1)
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], 1 - gap * (len(heights) - 1 - i)) if over else heights[i]
    arrow = {"arrowstyle": "-", "relpos": (0, 0.5), "color": QUIET, "linewidth": 0.6, "shrinkB": 4}
    for (k, (name, x, y)), height in zip(ordered, heights, strict=True):
        written = axes.annotate(
            name,
            (x, y),
            xytext=(1.04, height),
            textcoords="axes fraction",
            va="center",
            annotation_clip=False,
            arrowprops=arrow,
        )
        belongs([written, *([written.arrow_patch] if written.arrow_patch else [])], k)
