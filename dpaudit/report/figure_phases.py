"""The figure of phases: where releases fall along the key, arm by arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.report.drawing import DASHED, WIDTH
from dpaudit.report.format import count, number
from dpaudit.report.rows import Row, above_chance, arm_labels, attacks_of, ends, group_of
from dpaudit.report.svg import ALARM, CALM, QUIET, Picture, inline_svg, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["phases"]

MOST_PHASES = 12
MOST_BINS = 1024


class _Phases(NamedTuple):
    """Edges of the bins, density in each as a multiple of the uniform one, and what is on the axis."""

    edges: list[float]
    heights: list[float]
    what: str


def phases(rows: Sequence[Row], *, prefix: str) -> Picture | None:
    """Where releases fall along the key: flat for honest noise, one spike a peak spacing for pancakes."""
    found = [(label, p, row) for label, row in zip(arm_labels(rows), rows, strict=True) if (p := _phases(row))]
    if not found:
        return None
    kept = found
    if len(found) > MOST_PHASES:  # one a group, the most successful
        best: dict[str, tuple[str, _Phases, Row]] = {}
        for item in found:
            group = group_of(item[2])
            if group not in best or _strength(item[2]) > _strength(best[group][2]):
                best[group] = item
        kept = list(best.values())[:MOST_PHASES]
    tops = [max(p.heights) for _, p, _ in kept]

    def draw() -> Figure:
        from matplotlib.figure import Figure

        columns = min(len(kept), 2 if len(kept) <= 4 else 3)
        lines = math.ceil(len(kept) / columns)
        figure = Figure(figsize=(WIDTH, 0.55 + 1.25 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (label, (edges, heights, _), row) in zip(grid.flat, kept, strict=False):
            colour = ALARM if any(above_chance(a) for a in attacks_of(row)) else CALM
            axes.stairs(heights, edges, color=colour, fill=True, alpha=0.3)
            axes.stairs(heights, edges, color=colour, linewidth=1.2)
            axes.axhline(1, color=QUIET, linewidth=0.8, linestyle=DASHED)
            axes.set_title(short(label, limit=28 if columns == 2 else 20), loc="left")
            axes.set_ylim(0, 1.08 * max(2, *tops))
        for axes in grid.flat[len(kept) :]:
            axes.set_visible(False)
        figure.supxlabel(short(kept[0][1].what, limit=60), fontsize=9.5)
        figure.supylabel("times uniform", fontsize=9.5)
        return figure

    listed = "; ".join(f"{label} at most {top:.2g} times uniform" for (label, *_), top in zip(kept, tops, strict=True))
    caption = "Density of releases along the key, as a multiple of the uniform density (dashed). Honest noise is flat."
    if len(kept) < len(found):
        caption += f" {len(kept)} of {count(len(found))} arms: the most successful of each source and mitigation."
    return Picture(inline_svg(draw, prefix=prefix), f"Phase of the releases along the key, by arm: {listed}.", caption)


def _phases(row: Row) -> _Phases | None:
    """The first attack's phases; None where missing or malformed."""
    for attack in attacks_of(row):
        found = (attack.get("details") or {}).get("phases")
        if not isinstance(found, Mapping):
            continue
        edges, counts = _numbers(found.get("edges")), _numbers(found.get("counts"))
        if not 0 < len(counts) == len(edges) - 1 <= MOST_BINS or min(counts) < 0 or sum(counts) <= 0:
            continue
        widths = [b - a for a, b in pairwise(edges)]
        if min(widths) > 0:
            uniform = sum(counts) / (edges[-1] - edges[0])
            heights = [n / w / uniform for n, w in zip(counts, widths, strict=True)]
            return _Phases(edges, heights, str(found.get("what") or "phase along the key"))
    return None


def _numbers(values: object) -> list[float]:
    """Finite numbers; an empty list if any is not."""
    found = [number(v) for v in values] if isinstance(values, (list, tuple)) else []
    finite = [x for x in found if x is not None and math.isfinite(x)]
    return finite if len(finite) == len(found) else []


def _strength(row: Row) -> float:
    return max((ends(a)[0] for a in attacks_of(row)), default=0.0)
