"""Axes of measured values: limits that hold every mark, and ticks that fit a small panel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from dpaudit.render.charts.svg import superscript
from dpaudit.wording import quantity

if TYPE_CHECKING:
    from matplotlib.axis import Axis

__all__ = ["Scale", "has_place", "scale_of", "set_ticks"]

MOST = 1e150
"""From here on values count as infinite: subtracting the ends of a larger axis overflows."""

_LETTER = 0.075
"""The width of a letter of a tick label, in inches."""


class Scale(NamedTuple):
    """An axis: its ends, whether it is logarithmic, the values on it, and how they are written."""

    low: float
    high: float
    log: bool
    values: tuple[float, ...]
    format: str

    def clamped(self, x: float) -> float:
        """The nearest place on the axis; NaN stays."""
        return x if math.isnan(x) else min(max(x, self.low), self.high)


def has_place(x: float, *, log: bool) -> bool:
    """Whether an axis can show this value."""
    return abs(x) < MOST and (x > 0 or not log)


def scale_of(values: Sequence[float], *, log: bool, form: str, from_zero: bool = False) -> Scale:
    """The axis for the values: the finite ones, and on a logarithmic axis the positive ones.

    ``from_zero``: a linear axis starts (or, without positive values, ends) exactly at 0.
    """
    places = tuple(sorted({v for v in values if has_place(v, log=log)}))
    if not places:
        return Scale(0.1, 10.0, log, (), form) if log else Scale(0.0, 1.0, log, (), form)
    low, high = places[0], places[-1]
    if from_zero and not log:
        low, high = min(low, 0.0), max(high, 0.0)
    if log:
        bottom, top = math.log10(low), math.log10(high)
        room = max(0.05 * (top - bottom), 0.1)
        return Scale(10 ** max(bottom - room, -307.0), 10 ** (top + room), log, places, form)
    room = 0.05 * (high - low) if high > low else max(0.1 * abs(high), 0.05)
    if form == "proportion" and low >= 0 and high <= 1:
        room = min(room, 0.05)
    ends = low - room, high + room
    if from_zero:
        ends = (0.0 if low >= 0 else ends[0]), (0.0 if high <= 0 < -low else ends[1])
    return Scale(*ends, log, places, form)


def set_ticks(axis: Axis, scale: Scale, *, inches: float, upright: bool = False) -> None:
    """Set ticks for an axis of this length; ``upright``: labels are stacked, not side by side."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    if not scale.log:
        axis.set_major_locator(
            MaxNLocator(nbins=max(2, min(5, int(inches / (0.35 if upright else 0.6)))))
        )
        axis.set_major_formatter(FuncFormatter(lambda x, _: _label(x, scale)))
        return
    places = _log_ticks(scale, exact=not upright)
    powers = all(_is_power(at) for at in places) and not all(0.01 <= at <= 1000 for at in places)
    ticks = [
        (at, superscript(round(math.log10(at))) if powers else _label(at, scale)) for at in places
    ]
    while len(ticks) > 2 and not _fits(ticks, scale, inches, upright=upright):
        ticks = ticks[::2]
    axis.set_ticks([at for at, _ in ticks], [label for _, label in ticks])
    axis.set_minor_locator(NullLocator())


def _log_ticks(scale: Scale, *, exact: bool) -> list[float]:
    """If ``exact``, the values themselves if few; else powers of ten, or 1, 2, 5 of few decades."""
    if exact and len(scale.values) <= 6:
        return list(scale.values)
    low, high = math.log10(scale.low), math.log10(scale.high)
    decades = [10.0**e for e in range(math.ceil(low), math.floor(high) + 1)]
    if len(decades) >= 3:
        return decades
    finer = [m * 10.0**e for e in range(math.floor(low), math.floor(high) + 1) for m in (1, 2, 5)]
    return [t for t in finer if scale.low <= t <= scale.high] or [scale.values[0], scale.values[-1]]


def _fits(
    ticks: Sequence[tuple[float, str]], scale: Scale, inches: float, *, upright: bool
) -> bool:
    """Whether no label touches the next one."""
    unit = inches / (math.log10(scale.high) - math.log10(scale.low))
    for (a, left), (b, right) in pairwise(ticks):
        needed = 0.18 if upright else _LETTER * (_wide(left) + _wide(right)) / 2 + 0.06
        if unit * (math.log10(b) - math.log10(a)) < needed:
            return False
    return True


def _wide(label: str) -> float:
    """The width in letters; the digits of an exponent are narrower."""
    return sum(0.6 if c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹" else 1 for c in label)


def _label(x: float, scale: Scale) -> str:
    if scale.format == "proportion" and (not scale.log or x >= 1e-3):
        return f"{100 * x:g} %"
    if scale.log and _is_power(x) and not 0.01 <= x <= 1000:
        return superscript(round(math.log10(x)))
    return quantity(0.0 if abs(x) < 1e-12 * (scale.high - scale.low) else x) + (
        "×" if scale.format == "ratio" else ""
    )


def _is_power(x: float) -> bool:
    """Whether it is a power of ten, up to rounding."""
    exponent = math.log10(x) if x > 0 else 0.5
    return math.isclose(exponent, round(exponent), abs_tol=1e-9)
