"""The figures of adjusted p-values and of success by arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.documents import Arm
from dpaudit.report.figures.frame import (
    DASHED,
    MARKS_SAY,
    chance_line,
    colours,
    name_rows,
    one,
    share_range,
)
from dpaudit.report.figures.readout import Mark, belongs, read_out, series_of
from dpaudit.report.figures.svg import (
    ALARM,
    CALM,
    INK,
    PAPER,
    QUIET,
    Picture,
    inline_svg,
    short,
    superscript,
)
from dpaudit.report.format import count, p_value
from dpaudit.report.rows import (
    arm_labels,
    attacks_of,
    best_attack,
    ends,
    group_of,
    keys_in,
    rate_of,
)
from dpaudit.report.tables import sorted_tests
from dpaudit.results.text import printable
from dpaudit.types import AuditResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MOST_ARMS", "p_value_ladder", "successes"]

MOST_ARMS = 24
MOST_TESTS = 40
FEW_AT_ONE = 3
"""Up to so many tests with an adjusted p of 1 are drawn one by one; more share one row."""
LEAST_P = 1e-20
_MARKERS = "osD^v"


def p_value_ladder(result: AuditResult, *, prefix: str) -> Picture | None:
    """Tests by adjusted p on a log axis, with α marked; many with p = 1 share one row."""
    steps = _steps(result)
    shown, alpha = steps[:MOST_TESTS], result.alpha
    if not shown:
        return None
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(0.75 + 0.24 * len(shown))
        lowest = math.floor(math.log10(min([*(max(s.p, LEAST_P) for s in shown), alpha / 10])))
        for y, step in enumerate(shown):
            value = max(step.p, LEAST_P)
            colour, fill = (ALARM, ALARM) if step.finding else (CALM, PAPER)
            axes.plot([value, 1], [y, y], color=colour, linewidth=1)
            axes.plot(
                [value], [y], "o", color=colour, markerfacecolor=fill, markersize=6, clip_on=False
            )
            words = f"adjusted p {p_value(step.p)}" + ("; a finding" if step.finding else "")
            marks.append(Mark(axes, value, y, step.name, words, to=step.row))
        axes.axvline(alpha, color=QUIET, linewidth=1, linestyle=DASHED)
        axes.annotate(f"α = {alpha:g}", (alpha, 1), xycoords=("data", "axes fraction"),
                      xytext=(0, 3), textcoords="offset points", ha="center")  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(10.0 ** (lowest - 0.2), 1.6)
        ticks = list(range(0, lowest - 1, -max(1, -lowest // 6)))
        axes.set_xticks([10.0**e for e in ticks], [superscript(e) for e in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("adjusted p-value")
        name_rows(axes, [short(step.name) for step in shown])
        for tick, step in zip(axes.get_yticklabels(), shown, strict=False):
            tick.set_url(step.row)
        return figure

    rest = len(steps) - len(shown)
    listed = "; ".join(f"{step.name} {p_value(step.p)}" for step in shown[:12])
    caption = "Adjusted p-value per test; filled marks left of the dashed line (α) are findings."
    if rest:
        caption += f" The {rest} largest are in the table only."
    if min(s.p for s in shown) < LEAST_P:
        least = p_value(LEAST_P)
        caption += f" Values below {least} are drawn at {least}."
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"Adjusted p-values of {sum(s.tests for s in shown)} tests on a logarithmic axis, "
        f"smallest first: {listed}.",
        caption,
        title="Adjusted p-values",
        name=prefix,
        points=read_out(marks),
    )


class _Step(NamedTuple):
    """A row of the figure: one test, or ``tests`` with adjusted p 1; ``row`` is its link."""

    name: str
    p: float
    finding: bool
    row: str
    tests: int = 1


def _steps(result: AuditResult) -> list[_Step]:
    """The rows of the figure, smallest p first; no advisory tests, none without a p-value."""
    steps = [
        _Step(printable(t.name, limit=100), t.p_adjusted, t.finding, f"#test-{i}")
        for i, t in enumerate(sorted_tests(result.tests), 1)
        if 0 <= t.p_adjusted <= 1 and not t.advisory
    ]
    below = [s for s in steps if s.p < 1 or s.finding]
    top = [s for s in steps if s.p == 1 and not s.finding]
    if len(top) <= FEW_AT_ONE:
        return steps
    name = f"{'the other ' if below else 'all '}{len(top)} tests"
    return [*below, _Step(name, 1.0, False, top[0].row, len(top))]


def successes(rows: Sequence[Arm], *, prefix: str) -> Picture | None:
    """Success with its interval per arm; many arms share a strip per source and mitigation."""
    attacked = [
        (label, row) for label, row in zip(arm_labels(rows), rows, strict=True) if attacks_of(row)
    ]
    if not attacked:
        return None
    who = "Key holder’s" if keys_in(rows) else "Attacker’s"
    strips = len(attacked) > MOST_ARMS
    lines: dict[str, list[Arm]] = {}
    for i, (label, row) in enumerate(attacked):
        lines.setdefault(group_of(row) if strips else f"{i}\n{label}", []).append(row)
    names = [name.partition("\n")[2] or name for name in lines][:MOST_ARMS]
    drawn = list(lines.values())[:MOST_ARMS]
    attacks = list(dict.fromkeys(a.attack for _, row in attacked for a in attacks_of(row)))
    labels = {id(row): label for label, row in attacked}
    every = [a for line in drawn for row in line for a in attacks_of(row)]
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(0.9 + 0.32 * len(drawn) + 0.2 * (len(attacks) > 1))
        for y, line in enumerate(drawn):
            for row, attack in [(r, a) for r in line for a in attacks_of(r)]:
                k = attacks.index(attack.attack)
                at = y + (k - (len(attacks) - 1) / 2) * 0.5 / max(1, len(attacks))
                colour, fill = colours(row, attack)
                bar = axes.plot(
                    ends(attack), [at, at], color=colour, linewidth=1.4, alpha=0.3 if strips else 1
                )
                mark = axes.plot(
                    [attack.success], [at], _MARKERS[k % len(_MARKERS)], color=colour,
                    markerfacecolor=fill, markersize=4 if strips else 6,
                    alpha=0.8 if strips else 1, clip_on=False,
                )  # fmt: skip
                name = labels[id(row)] + (f", {attack.attack}" if len(attacks) > 1 else "")
                value = rate_of(attack)
                marks.append(
                    Mark(axes, attack.success, at, name, value, k if len(attacks) > 1 else None)
                )
                if len(attacks) > 1:
                    belongs([*bar, *mark], k)
        chance_line(axes, every, vertical=True)
        axes.set_xlim(*share_range([e for a in every for e in ends(a)]))
        axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:g} %")
        axes.set_xlabel(f"{who.lower()} success: right candidate identified")
        name_rows(axes, [short(n) for n in names])
        if len(attacks) > 1:
            shapes = [_MARKERS[k % len(_MARKERS)] for k in range(len(attacks))]
            signs = [axes.plot([], [], m, color=INK, markerfacecolor="none")[0] for m in shapes]
            names_of = [short(a) for a in attacks]
            figure.legend(signs, names_of, loc="outside upper right", ncols=3, handletextpad=0.2)
        return figure

    listed = "; ".join(
        f"{label} {rate_of(a)}"
        for label, row in attacked[:12]
        if (a := best_attack(row)) is not None
    )
    more = f"; and {len(attacked) - 12} more arms, in the table" if len(attacked) > 12 else ""
    caption = f"Success with its interval. {MARKS_SAY}"
    if strips:
        caption += (
            f" Each mark is one of {count(len(attacked))} arms, grouped by source and mitigation."
        )
    if len(lines) > len(drawn):
        caption += (
            f" The first {MOST_ARMS} of {count(len(lines))} groups are drawn; all are in the table."
        )
    return Picture(
        inline_svg(draw, prefix=prefix),
        f"{who} success by arm: {listed}{more}.",
        caption,
        title=f"{who} success",
        name=prefix,
        points=read_out(marks),
        series=series_of(attacks) if 1 < len(attacks) <= 8 else "",
    )
