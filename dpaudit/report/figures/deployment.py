"""The figures of a deployment: ε claimed and shown by key, and ε submitted by day."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from dpaudit.deployments.apple.bits.shown import Shown
from dpaudit.deployments.apple.document import AppleDocument
from dpaudit.deployments.apple.observed import Day
from dpaudit.report.deployment import claim_of, ranked
from dpaudit.report.figures.frame import DASHED, name_rows, one
from dpaudit.report.figures.readout import Mark, read_out
from dpaudit.report.figures.svg import (
    ALARM,
    CALM,
    INK,
    PAPER,
    QUIET,
    SERIES,
    Picture,
    inline_svg,
    short,
)
from dpaudit.report.format import bounds, quantity
from dpaudit.results.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["claimed_and_shown", "spent_by_day"]

MOST_KEYS = 24
MOST_DAYS = 120
_LARGEST = 1e6
"""A larger ε is drawn as unbounded."""


def claimed_and_shown(document: AppleDocument, *, prefix: str) -> Picture | None:
    """One row per key: the interval of a record's ε that its bits show, and marks for claims."""
    rows = [(s, ends) for s in ranked(document.shown) if (ends := _ends(s)) is not None]
    drawn = rows[:MOST_KEYS]
    if not drawn:
        return None
    claims = [
        [c for by in ("configuration", "report") if (c := _claim(s, by)) is not None]
        for s, _ in drawn
    ]
    values = [*(x for _, ends in drawn for x in ends), *(c for some in claims for c in some)]
    top = 1.15 * max([*(v for v in values if v < math.inf), 1.0])
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(1.1 + 0.3 * len(drawn))
        for y, (s, (low, high)) in enumerate(drawn):
            colour, fill = (ALARM, ALARM) if s.verdict == "shows more" else (CALM, PAPER)
            if high == math.inf:
                axes.annotate(
                    "", (top, y), xytext=(low, y), arrowprops={"arrowstyle": "->", "color": colour}
                )
                axes.plot([low], [y], "|", color=colour, markersize=9)
            else:
                axes.plot([low, high], [y, y], "-", color=colour, linewidth=2)
                axes.plot([low, high], [y, y], "|", color=colour, markersize=9)
            marks.append(Mark(axes, low, y, s.key, f"shown {bounds(low, high)}"))
            style: dict[str, Any] = {
                "color": colour, "markerfacecolor": fill, "markersize": 6, "clip_on": False
            }  # fmt: skip
            for by, mark in (("configuration", "o"), ("report", "D")):
                claimed = _claim(s, by)
                if claimed is not None:
                    axes.plot([claimed], [y], mark, **style)
                    words = f"claimed {quantity(claimed)} by the {by}"
                    marks.append(Mark(axes, claimed, y, s.key, words))
        axes.set_xlim(0, top)
        axes.set_xlabel("ε of one record")
        name_rows(axes, [_tail(s.key) for s, _ in drawn])
        _legend(figure, axes)
        return figure

    listed = "; ".join(
        f"{printable(s.key, limit=100)}: "
        f"claimed {' and '.join(quantity(c) for c in some) or 'nothing'}, "
        f"shown {bounds(low, high)}"
        for (s, (low, high)), some in list(zip(drawn, claims, strict=True))[:12]
    )
    caption = (
        "ε of one record. Lines: what the bits themselves show, with an exact interval; an arrow "
        "if only a lower bound is known. Circles: the configuration’s claim; diamonds: the "
        "report’s own. Filled, in the warning colour: the bits show more than is claimed."
    )
    if len(rows) > len(drawn):
        caption += f" {len(rows) - len(drawn)} more are in the table only."
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"ε of one record, claimed and shown. {listed}.",
        caption,
        title="Claimed and shown, by key",
        name=prefix,
        points=read_out(marks),
    )


def spent_by_day(document: AppleDocument, *, prefix: str) -> Picture | None:
    """Claimed ε submitted per day, stacked by budget, and what is permitted per day."""
    observed = document.observed
    days = [(d, at) for d in (observed.days if observed else ()) if (at := _date(d)) is not None]
    days = sorted(days, key=lambda pair: pair[1])[-MOST_DAYS:]
    if len(days) < 2 or (days[-1][1] - days[0][1]).days > 10 * MOST_DAYS:
        return None
    first = days[0][1]
    amounts: dict[str, dict[int, float]] = {}
    for day, at in days:
        for spent in day.budgets:
            if 0 < spent.claimed < _LARGEST:
                amounts.setdefault(spent.budget, {})[(at - first).days] = spent.claimed
    if not amounts:
        return None
    order = sorted(amounts, key=lambda name: -sum(amounts[name].values()))
    groups = [*order[: len(SERIES) - 1], *([""] if len(order) >= len(SERIES) else [])]
    stacks = [
        _merged([amounts[n] for n in (order[len(SERIES) - 1 :] if not g else [g])]) for g in groups
    ]
    marks: list[Mark] = []
    permitted = document.ledger.configured.per_day

    def draw() -> Figure:
        figure, axes = one(3.1)
        base: dict[int, float] = {}
        for k, (group, stack) in enumerate(zip(groups, stacks, strict=True)):
            at = sorted(stack)
            floor, label = [base.get(x, 0.0) for x in at], _tail(group) if group else "others"
            axes.bar(at, [stack[x] for x in at], 0.8, bottom=floor, color=SERIES[k], label=label)
            for x in at:
                base[x] = base.get(x, 0.0) + stack[x]
                name = f"{date.fromordinal(first.toordinal() + x)}, {group or 'others'}"
                marks.append(Mark(axes, x, base[x], name, f"claimed ε {quantity(stack[x])}"))
        if 0 < permitted < _LARGEST:
            axes.axhline(
                permitted, color=QUIET, linewidth=1, linestyle=DASHED, label="permitted per day"
            )
        last = (days[-1][1] - first).days
        step = max(1, math.ceil((last + 1) / 5))
        ticks = range(0, last + 1, step)
        axes.set_xticks(
            list(ticks), [date.fromordinal(first.toordinal() + t).isoformat() for t in ticks]
        )
        axes.set_xlim(-0.6, last + 0.6)
        axes.set_ylabel("claimed ε")
        figure.legend(loc="outside upper left", ncols=2, handlelength=1)
        return figure

    total = sum(sum(stack.values()) for stack in stacks)
    span = f"{len(days)} days from {first} to {days[-1][1]}, {quantity(total)} in total"
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"Claimed ε submitted per day, by budget: {span}.",
        f"Claimed ε submitted per day (UTC, by the names of reports), stacked by budget: {span}. "
        "The dashed line is what the whole configuration permits per day in the long run; unused "
        "budget rolls over, so a day can exceed it.",
        title="ε submitted by day",
        name=prefix,
        points=read_out(marks),
    )


def _ends(shown: Shown) -> tuple[float, float] | None:
    """A record's interval; None if it excludes nothing."""
    if shown.record is None:
        return None
    low, high = shown.record.low, shown.record.high
    if not 0 <= low < _LARGEST or not high >= low or (low == 0 and high == math.inf):
        return None
    return low, high if high < _LARGEST else math.inf


def _claim(shown: Shown, by: str) -> float | None:
    """A claim that the figure can show."""
    claimed = claim_of(shown, by)
    return claimed if claimed is not None and 0 < claimed < _LARGEST else None


def _date(day: Day) -> date | None:
    try:
        return date.fromisoformat(day.date)
    except ValueError:
        return None


def _merged(parts: Sequence[Mapping[int, float]]) -> dict[int, float]:
    merged: dict[int, float] = {}
    for some in parts:
        for day, value in some.items():
            merged[day] = merged.get(day, 0.0) + value
    return merged


def _tail(name: str) -> str:
    """The end of a long dotted name, which distinguishes it."""
    line = " ".join(name.split())
    return short(line if len(line) <= 30 else "…" + line[-29:], limit=30)


def _legend(figure: Figure, axes: Axes) -> None:
    marks = [
        axes.plot([], [], "-|", color=INK, linewidth=2)[0],
        axes.plot([], [], "o", color=INK, markerfacecolor="none")[0],
        axes.plot([], [], "D", color=INK, markerfacecolor="none")[0],
    ]
    figure.legend(
        marks,
        ["shown", "configuration", "report"],
        loc="outside upper right",
        ncols=3,
        handletextpad=0.4,
    )
