"""The figure of an ε audit: what was shown at every δ, and what is claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpaudit.report.drawing import DASHED, one
from dpaudit.report.format import epsilon, number, quantity
from dpaudit.report.svg import ALARM, CALM, PAPER, QUIET, Picture, inline_svg, superscript

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["shown_and_claimed"]


def shown_and_claimed(result: Mapping[str, Any], *, prefix: str) -> Picture | None:
    """The lower bound for ε over δ (a curve, and the learned event's at the claimed δ) and the claimed point."""
    pairs = [p for p in result.get("curve") or () if isinstance(p, (list, tuple)) and len(p) == 2]
    points = [(d, e) for d, e in ((number(a), number(b)) for a, b in pairs) if d is not None and e is not None]
    curve = sorted((d, e) for d, e in points if 0 < d < 1 and 0 <= e < math.inf)
    claimed, at = number(result.get("claim_epsilon")), number(result.get("claim_delta"))
    shown = number((result.get("epsilon") or {}).get("low"))
    if len(curve) < 2 or claimed is None or at is None or shown is None or max(claimed, shown) == math.inf:
        return None
    finding = result.get("verdict") == "finding"
    left = min(curve[0][0], at) if at > 0 else curve[0][0]
    place = max(at, left)
    top = 1.15 * max(claimed, shown, *(e for _, e in curve), 0.1)

    def draw() -> Figure:
        figure, axes = one(2.9)
        deltas, bounds = [d for d, _ in curve], [e for _, e in curve]
        colour, fill = (ALARM, ALARM) if finding else (CALM, PAPER)
        axes.fill_between(deltas, bounds, color=QUIET, alpha=0.25, linewidth=0)
        axes.plot(deltas, bounds, color=QUIET, linewidth=1.2)
        axes.plot([place, 1], [claimed, claimed], color=colour, linewidth=1, linestyle=DASHED)
        axes.plot([place], [shown], "^", color=QUIET, markersize=7, clip_on=False)
        axes.plot([place], [claimed], "o", color=colour, markerfacecolor=fill, markersize=7, clip_on=False)
        axes.annotate("claimed", (place, claimed), xytext=(8, 4), textcoords="offset points", color=colour)
        axes.set_xscale("log")
        axes.set_xlim(left, 1)
        axes.set_ylim(0, top)
        lowest = math.ceil(math.log10(left))
        ticks = list(range(lowest, 1, max(1, -lowest // 5)))
        axes.set_xticks([10.0**t for t in ticks], [superscript(t) for t in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("δ" + ("; the claim is for δ = 0, drawn at the left end" if at == 0 else ""))
        axes.set_ylabel("ε")
        return figure

    said = f"claimed ε {quantity(claimed)} at δ {quantity(at)}; shown there {epsilon({'low': shown, 'high': 'inf'})}"
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"Lower bound for ε against δ: {said}.",
        "The shaded region is contradicted: every (ε, δ) in it, all at once, by the trade-off curve. The triangle is the "
        "highest bound at the claimed δ, the circle the claim; it is filled where something contradicts it.",
    )
