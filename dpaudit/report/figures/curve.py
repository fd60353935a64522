"""The figure of an ε audit: the bound shown at every δ, and the claim."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpaudit.report.figures.frame import DASHED, one
from dpaudit.report.figures.readout import Mark, belongs, read_out, series_of
from dpaudit.report.figures.svg import (
    ALARM,
    CALM,
    INK,
    PAPER,
    QUIET,
    Picture,
    inline_svg,
    superscript,
)
from dpaudit.report.format import bounds as bounds_text
from dpaudit.report.format import quantity
from dpaudit.report.mechanism import is_implied
from dpaudit.types import MechanismResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["shown_and_claimed"]

CUT = 2.5
"""A bound this many times higher than the claim and the curve is drawn at the upper edge with an
arrow; a scale that includes it would flatten the rest."""


def shown_and_claimed(result: MechanismResult, *, prefix: str) -> Picture | None:
    """The lower bound for ε over δ, the learned event's bound at the claimed δ, and the claim."""
    curve = sorted((d, e) for d, e in result.curve if 0 < d < 1 and 0 <= e < math.inf)
    claimed, at, shown = result.claim_epsilon, result.claim_delta, result.epsilon.low
    if len(curve) < 2 or not all(map(math.isfinite, (claimed, at, shown))):
        return None
    finding = result.verdict == "finding"
    word = "implied" if is_implied(result) else "claimed"
    left = min(curve[0][0], at) if at > 0 else curve[0][0]
    place = max(at, left)
    marks: list[Mark] = []
    highest = max(claimed, *(e for _, e in curve), 0.1)
    above = shown > CUT * highest
    top = 1.4 * highest if above else 1.15 * max(highest, shown)
    drawn = 0.94 * top if above else shown

    def draw() -> Figure:
        figure, axes = one(2.9)
        deltas, bounds = [d for d, _ in curve], [e for _, e in curve]
        colour, fill = (ALARM, ALARM) if finding else (CALM, PAPER)
        belongs(axes.fill_between(deltas, bounds, color=QUIET, alpha=0.25, linewidth=0), 1)
        belongs(axes.plot(deltas, bounds, color=INK, linewidth=1.2), 1)
        belongs(
            axes.plot([place, 1], [claimed, claimed], color=colour, linewidth=1, linestyle=DASHED),
            0,
        )
        belongs(axes.plot([place], [drawn], "^", color=INK, markersize=7, clip_on=False), 1)
        if above:
            arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1}
            ends = (place, 1.06 * top), (place, drawn)
            belongs(axes.annotate("", *ends, annotation_clip=False, arrowprops=arrow), 1)
        style: dict[str, Any] = {
            "color": colour, "markerfacecolor": fill, "markersize": 7, "clip_on": False
        }  # fmt: skip
        belongs(axes.plot([place], [claimed], "o", **style), 0)
        apart = abs(drawn - claimed) > 0.2 * top
        said = (
            quantity(claimed, digits=3),
            bounds_text(shown) + (", above the scale" if above else ""),
        )
        for k, (name, y, ink) in enumerate(((word, claimed, colour), ("shown", drawn, INK))):
            # away from each other; if there is room between them, above their lines
            up = not (above and k) if apart else (k == 0) == (claimed >= shown)
            belongs(
                axes.annotate(
                    f"{name} {said[k]}", (place, y), xytext=(9, 4 if up else -4),
                    textcoords="offset points", color=ink, va="bottom" if up else "top",
                ),
                k,
            )  # fmt: skip
        for d, e in curve:
            words = f"shown ε {bounds_text(e)} by the curve"
            marks.append(Mark(axes, d, e, f"δ = {quantity(d, digits=3)}", words, 1))
        here = f"δ = {quantity(at)}"
        marks.append(Mark(axes, place, drawn, here, f"shown ε {bounds_text(shown)}", 1))
        marks.append(Mark(axes, place, claimed, here, f"{word} ε {quantity(claimed)}", 0))
        axes.set_xscale("log")
        axes.set_xlim(left, 1)
        axes.set_ylim(0, top)
        lowest = math.ceil(math.log10(left))
        ticks = list(range(lowest, 1, max(1, -lowest // 5)))
        axes.set_xticks([10.0**t for t in ticks], [superscript(t) for t in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(
            "δ" + ("; the claim is for δ = 0, drawn at the left end" if at == 0 else "")
        )
        axes.set_ylabel("ε")
        return figure

    said = f"{word} ε {quantity(claimed)} at δ {quantity(at)}; shown there {bounds_text(shown)}"
    svg = inline_svg(draw, prefix=prefix)
    return Picture(
        svg,
        f"Lower bound for ε against δ: {said}.",
        "The trade-off curve contradicts every (ε, δ) in the shaded region, all at once. The "
        "triangle is the highest bound at the claimed δ. The circle is the claim; it is filled if "
        "something contradicts it."
        + (" The bound is far above the scale; its label gives its value." if above else ""),
        title="Privacy profile: claimed and shown",
        name=prefix,
        points=read_out(marks),
        series=series_of(("claimed", "shown")),
    )
