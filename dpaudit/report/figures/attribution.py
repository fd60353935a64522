"""The figure of ad measurement: ε claimed, and shown by recorded reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.deployments.attribution.document import AttributionDocument
from dpaudit.report.figures.frame import name_rows, one
from dpaudit.report.figures.readout import Mark, read_out
from dpaudit.report.figures.svg import ALARM, CALM, INK, Picture, inline_svg, short
from dpaudit.report.format import bounds, quantity
from dpaudit.results.text import printable
from dpaudit.types import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["claimed_and_shown"]

_MOST_ROWS = 24
_LARGEST = 1_000.0


def claimed_and_shown(document: AttributionDocument, *, prefix: str) -> Picture | None:
    """One row per mechanism with reports: the claim, the interval by the noise, the bound."""
    rows = [(c.name, c.epsilon, c.shown, c.by_flips) for c in document.claims if c.known]
    if document.noise is not None and document.noise.values:
        noise = document.noise
        rows.append(("summary reports", noise.epsilon, noise.shown, noise.by_scale))
    drawn = [row for row in rows if 0 <= row[1] < _LARGEST][:_MOST_ROWS]
    if not drawn:
        return None
    names = [short(printable(name, limit=60), limit=34) for name, *_ in drawn]
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(1.1 + 0.34 * len(drawn))
        most = max(row[1] for row in drawn)
        highs = [i.high for *_, i in drawn if i is not None]
        right = 1.1 * min(max([most, *highs]), 3 * most) + 1
        for y, (name, claimed, shown, interval) in enumerate(drawn):
            wrong = _misses(claimed, shown, interval)
            colour = ALARM if wrong else CALM
            if interval is not None and interval.low < right:
                high = min(interval.high, right)
                axes.plot([interval.low, high], [y, y], "-", color=colour, linewidth=3)
                said = f"by the noise {bounds(interval.low, interval.high)}"
                marks.append(Mark(axes, interval.low, y, name, said))
            if shown is not None and shown < right:
                axes.plot([shown], [y], ">", color=colour, markersize=5)
                marks.append(Mark(axes, shown, y, name, f"shown {bounds(shown)}"))
            axes.plot([claimed], [y], "o", color=INK, markerfacecolor="none", markersize=8)
            marks.append(Mark(axes, claimed, y, name, f"claimed {quantity(claimed)}"))
        axes.set_xlim(0, right)
        axes.set_xlabel("ε")
        name_rows(axes, names)
        return figure

    listed = "; ".join(
        f"{printable(name, limit=60)}: claimed {quantity(claimed)}, by the noise "
        f"{bounds(i.low, i.high) if i else 'nothing'}"
        for name, claimed, _, i in drawn[:8]
    )
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"ε claimed and shown. {listed}.",
        "Circles: the claim. Lines: the ε of as much noise as was seen, with 95 % confidence. "
        "Triangles: lower bounds without assumptions, which few reports keep low. Warning colour: "
        "the claim is outside the line or below the bound.",
        title="ε claimed and shown",
        name=prefix,
        points=read_out(marks),
    )


def _misses(claimed: float, shown: float | None, interval: Interval | None) -> bool:
    outside = interval is not None and not interval.low <= claimed <= interval.high
    return outside or (shown is not None and shown > claimed)
