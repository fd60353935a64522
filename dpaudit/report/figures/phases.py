"""The figure of phases: where releases fall along the key, one frame per arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.documents import Arm
from dpaudit.report.figures.frame import DASHED, WIDTH
from dpaudit.report.figures.readout import Mark, belongs, read_out, series_of
from dpaudit.report.figures.svg import ALARM, CALM, INK, QUIET, Picture, inline_svg, short
from dpaudit.report.format import count, number, quantity
from dpaudit.report.rows import arm_labels, attacks_of, ends, exceeds_claim, group_of
from dpaudit.report.tables import Column
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["phases"]

MOST_PHASES = 12
MOST_BINS = 1024
MOST_NUMBERS = 64
"""Bins that the table behind the figure shows."""


class _Phases(NamedTuple):
    """Edges of the bins, density in each as a multiple of the uniform one, and what is on the axis.

    ``without`` is the density along a direction that someone without the key guessed; empty where
    it was not measured.
    """

    edges: list[float]
    heights: list[float]
    what: str
    without: list[float]


def phases(rows: Sequence[Arm], *, prefix: str) -> Picture | None:
    """Where releases fall along the key: flat for honest noise, one spike per period if not."""
    found = [
        (label, p, row)
        for label, row in zip(arm_labels(rows), rows, strict=True)
        if (p := _phases(row))
    ]
    if not found:
        return None
    kept = found
    if len(found) > MOST_PHASES:  # the most successful of each group
        best: dict[str, tuple[str, _Phases, Arm]] = {}
        for item in found:
            group = group_of(item[2])
            if group not in best or _strength(item[2]) > _strength(best[group][2]):
                best[group] = item
        kept = list(best.values())[:MOST_PHASES]
    tops = [max(p.heights) for _, p, _ in kept]
    blind = any(p.without for _, p, _ in kept)
    marks: list[Mark] = []

    def draw() -> Figure:
        from matplotlib.figure import Figure

        columns = min(len(kept), 2 if len(kept) <= 4 else 3)
        lines = math.ceil(len(kept) / columns)
        figure = Figure(figsize=(WIDTH, 0.55 + 1.25 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (label, (edges, heights, _, without), row) in zip(grid.flat, kept, strict=False):
            colour = ALARM if exceeds_claim(row) else CALM
            belongs(axes.stairs(heights, edges, color=colour, fill=True, alpha=0.3), 0)
            belongs(axes.stairs(heights, edges, color=colour, linewidth=1.2), 0)
            if without:
                belongs(axes.stairs(without, edges, color=INK, linewidth=0.9), 1)
            for k, (kind, shown) in enumerate(
                (("with the key", heights), ("without the key", without))
            ):
                name = f"{label}, {kind} " if blind else f"{label}, "
                for (a, b), y in zip(pairwise(edges), shown, strict=False):
                    words, series = f"{quantity(y, digits=3)} times uniform", k if blind else None
                    marks.append(Mark(axes, (a + b) / 2, y, name + _bin(a, b), words, series))
            axes.axhline(1, color=QUIET, linewidth=0.8, linestyle=DASHED)
            axes.set_title(short(label, limit=28 if columns == 2 else 20), loc="left")
            axes.set_ylim(0, 1.08 * max(2, *tops))
        for axes in grid.flat[len(kept) :]:
            axes.set_visible(False)
        figure.supxlabel(short(kept[0][1].what, limit=60), fontsize=9.5)
        figure.supylabel("times uniform", fontsize=9.5)
        if blind:
            from matplotlib.patches import Patch

            boxes = [Patch(facecolor=ALARM, alpha=0.4), Patch(facecolor="none", edgecolor=INK)]
            figure.legend(
                boxes, ["with the key", "without the key"], loc="outside upper left", ncols=2
            )
        return figure

    listed = "; ".join(
        f"{label} at most {top:.2g} times uniform"
        for (label, *_), top in zip(kept, tops, strict=True)
    )
    caption = (
        "Density of releases along the key, as a multiple of the uniform density (dashed). "
        "Honest noise is flat."
    )
    if len(kept) < len(found):
        caption += (
            f" {len(kept)} of {count(len(found))} arms: the most successful of each source and "
            "mitigation."
        )
    if blind:
        caption += " Dark outline: along a direction guessed without the key."
        listed += "; without the key " + ", ".join(
            f"{label} at most {max(p.without):.2g}" for label, p, _ in kept if p.without
        )
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"Phase of the releases along the key, by arm: {listed}.",
        caption,
        title="Releases along the key",
        name=prefix,
        points=read_out(marks),
        series=series_of(("with the key", "without the key")) if blind else "",
        numbers=_numbers_of([(label, p) for label, p, _ in kept]),
    )


def _bin(a: float, b: float) -> str:
    return f"{quantity(a, digits=3)} … {quantity(b, digits=3)}"


def _numbers_of(arms: Sequence[tuple[str, _Phases]]) -> list[Column]:
    """The densities as a table, if all arms have the same few bins."""
    edges = arms[0][1].edges
    if len(edges) - 1 > MOST_NUMBERS or len(arms) > 4 or any(p.edges != edges for _, p in arms):
        return []
    columns = [Column(short(arms[0][1].what, limit=60), [_bin(a, b) for a, b in pairwise(edges)])]
    for label, p in arms:
        columns.append(
            Column(printable(label, limit=60), [quantity(y, digits=3) for y in p.heights], True)
        )
        if p.without:
            without = [quantity(y, digits=3) for y in p.without]
            columns.append(Column(f"{printable(label, limit=60)}\nwithout the key", without, True))
    return columns


def _phases(row: Arm) -> _Phases | None:
    """The first attack's phases; None if missing or malformed."""
    for attack in attacks_of(row):
        found = attack.details.get("phases")
        if not isinstance(found, Mapping):
            continue
        edges, counts = _numbers(found.get("edges")), _numbers(found.get("counts"))
        if (
            not 0 < len(counts) == len(edges) - 1 <= MOST_BINS
            or min(counts) < 0
            or sum(counts) <= 0
        ):
            continue
        widths = [b - a for a, b in pairwise(edges)]
        if min(widths) > 0:
            blind = _numbers(found.get("without_key"))
            usable = len(blind) == len(counts) and min(blind) >= 0 and sum(blind) > 0
            return _Phases(
                edges,
                _densities(counts, edges),
                str(found.get("what") or "phase along the key"),
                _densities(blind, edges) if usable else [],
            )
    return None


def _densities(counts: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Counts as multiples of the uniform density."""
    uniform = sum(counts) / (edges[-1] - edges[0])
    return [n / (b - a) / uniform for n, (a, b) in zip(counts, pairwise(edges), strict=True)]


def _numbers(values: object) -> list[float]:
    """Finite numbers; an empty list if any is not."""
    found = [number(v) for v in values] if isinstance(values, (list, tuple)) else []
    finite = [x for x in found if x is not None and math.isfinite(x)]
    return finite if len(finite) == len(found) else []


def _strength(row: Arm) -> float:
    return max((ends(a)[0] for a in attacks_of(row)), default=0.0)
