"""What figures share: a frame, named rows, the range of shares, and the line of chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpaudit.documents import Arm, ArmAttack
from dpaudit.report.figures.svg import ALARM, CALM, PAPER, QUIET
from dpaudit.report.rows import chance_of, exceeds_claim

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "DASHED",
    "MARKS_SAY",
    "WIDTH",
    "chance_line",
    "colours",
    "name_rows",
    "one",
    "share_range",
]

WIDTH = 5.2
"""Inches; narrow, so that text stays readable on a phone."""

DASHED: Any = (0, (4, 3))

MARKS_SAY = (
    "Filled: the attack shows more than the claimed ε. Hollow: it does not; it may beat chance "
    "(dashed) as far as the claim allows."
)
"""What the marks of :func:`colours` mean."""


def one(height: float) -> tuple[Figure, Axes]:
    """A figure of one frame."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows of named things, the first on top, with a faint rule along each."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=QUIET, linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)


def share_range(shares: Sequence[float]) -> tuple[float, float]:
    """An axis of shares: up to 100 %, down to just below chance or the least share."""
    return max(-0.02, min(0.45, min(shares) - 0.03)), 1.02


def colours(row: Arm, attack: ArmAttack) -> tuple[str, str]:
    """Line and fill: filled, in the warning colour, if more than the claimed ε is shown."""
    return (ALARM, ALARM) if exceeds_claim(row, attack) else (CALM, PAPER)


def chance_line(axes: Axes, attacks: Sequence[ArmAttack], *, vertical: bool) -> None:
    """Draw the success of guessing, dashed."""
    for chance in sorted({chance_of(a) for a in attacks})[:5]:
        (axes.axvline if vertical else axes.axhline)(
            chance, color=QUIET, linewidth=1, linestyle=DASHED, zorder=1
        )
