"""The figures of noisy measurement files: each level's noise beside the stated law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpaudit.deployments.census.document import Bin, CensusDocument, NoiseGroup
from dpaudit.report.census import KIND_WORDS
from dpaudit.report.figures.frame import DASHED, name_rows, one
from dpaudit.report.figures.readout import Mark, read_out
from dpaudit.report.figures.svg import ALARM, CALM, INK, QUIET, Picture, inline_svg, short
from dpaudit.report.format import count, number, quantity
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["noise_by_level", "scales"]

MOST_LEVELS = 12
MOST_ROWS = 40
_LARGEST = 1e9


def noise_by_level(document: CensusDocument, *, prefix: str) -> list[Picture]:
    """One picture per level: the histogram of the query with the most noise, and its law."""
    pictures: list[Picture] = []
    for level in list(document.levels)[:MOST_LEVELS]:
        own = [
            g
            for g in document.groups
            if (g.product, g.level) == (level.product, level.level) and _drawable(g.bins)
        ]
        if own:
            most = max(own, key=lambda g: g.values)
            pictures.append(_histogram(most, prefix=f"{prefix}-{len(pictures) + 1}"))
    return pictures


def _drawable(bins: Sequence[Bin]) -> bool:
    numbers = [x for b in bins for x in (b.low, b.high, b.observed, b.expected)]
    fine = all((n := number(x)) is not None and abs(n) < _LARGEST for x in numbers)
    return 2 < len(bins) <= 200 and fine and all(b.low < b.high for b in bins)


def _histogram(group: NoiseGroup, *, prefix: str) -> Picture:
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(2.6)
        for b in group.bins:
            width, middle = b.high - b.low, (b.low + b.high) / 2
            axes.bar(middle, b.observed, 0.9 * width, color=CALM, linewidth=0)
            words = f"{count(b.observed)} seen, {quantity(b.expected)} expected"
            marks.append(Mark(axes, middle, b.observed, f"{b.low:+.2f} to {b.high:+.2f} σ", words))
        edges = [b.low for b in group.bins] + [group.bins[-1].high]
        axes.stairs([b.expected for b in group.bins], edges, color=INK, linewidth=1.2)
        axes.set_xlabel("noise, in units of the stated σ")
        axes.set_ylabel("values")
        return figure

    what = f"{printable(group.level, limit=60)}, {printable(group.query, limit=60)}"
    kind = KIND_WORDS[group.kind]
    ratio = quantity(group.ratio)
    places = f" in {count(group.geographies)} geographies" if group.geographies > 1 else ""
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"Histogram of {count(group.values)} noise values of {what}; standard deviation {ratio} "
        "of what is stated.",
        f"Noise of {what}, from {kind}: {count(group.values)} values{places}. Bars: seen. Line: "
        "expected under the stated discrete Gaussian. The observed standard deviation is "
        f"{ratio} of what is stated.",
        title=f"{printable(group.level, limit=60)}: the noise itself",
        name=prefix,
        points=read_out(marks),
    )


def scales(document: CensusDocument, *, prefix: str) -> Picture | None:
    """The observed scale over the stated one, with its interval: one row per tested query."""
    rows = [g for g in document.groups if g.tested and _interval(g) is not None]
    drawn = rows[:MOST_ROWS]
    if not drawn:
        return None
    marks: list[Mark] = []
    names = [
        short(
            " ".join(f"{printable(g.level, limit=20)}, {printable(g.query, limit=40)}".split()),
            limit=34,
        )
        for g in drawn
    ]

    def draw() -> Figure:
        figure, axes = one(1.0 + 0.26 * len(drawn))
        axes.axvline(1.0, color=QUIET, linewidth=1, linestyle=DASHED)
        for y, g in enumerate(drawn):
            low, ratio, high = _interval(g) or (1.0, 1.0, 1.0)
            colour = CALM if low <= 1 <= high else ALARM
            axes.plot([low, high], [y, y], "-", color=colour, linewidth=2)
            axes.plot([ratio], [y], "o", color=colour, markersize=4)
            words = f"{quantity(ratio)} [{quantity(low)}, {quantity(high)}], {KIND_WORDS[g.kind]}"
            marks.append(Mark(axes, ratio, y, names[y], words))
        axes.set_xlabel("observed / stated standard deviation")
        name_rows(axes, names)
        return figure

    left = f" {len(rows) - len(drawn)} more are in the table only." if len(rows) > MOST_ROWS else ""
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"Observed over stated standard deviation of {len(drawn)} queries, with 95 % intervals.",
        "Observed over stated standard deviation per query and level, with 95 % intervals of each "
        f"alone: of many honest ones, one in twenty does not reach the dashed line.{left}",
        title="Scale, level by level",
        name=prefix,
        points=read_out(marks),
    )


def _interval(group: NoiseGroup) -> tuple[float, float, float] | None:
    ends = [number(x) for x in (group.interval.low, group.ratio, group.interval.high)]
    if any(x is None or not 0 <= x < _LARGEST or not math.isfinite(x) for x in ends):
        return None
    low, ratio, high = (float(x or 0.0) for x in ends)
    return (low, ratio, high) if low <= high else None
