"""The figures of a proof: the exact law beside the claimed one, δ(ε), and how many coins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpaudit.report.figures.frame import DASHED, WIDTH, one
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
from dpaudit.report.format import at_least, at_most, between, quantity
from dpaudit.report.proofs import (
    Bar,
    claimed_delta,
    delta_claimed,
    law_is_of,
    log_ratio,
    outputs_of,
)
from dpaudit.results.text import one_line
from dpaudit.types import ProofResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["coin_bits", "exact_and_claimed", "proved_profile"]

MOST_BARS = 41
"""Outputs that the figure shows; the table has more."""
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?(e-?[0-9]{1,2})?")
_LEAST_RATIO = 0.1
"""The log-ratio's axis reaches at least this far, so that a proved law looks like the claimed."""
_LARGEST_EPSILON = 1000
_FLAT = 1e-3
"""A δ(ε) that falls further than this needs a logarithmic axis."""


def exact_and_claimed(result: ProofResult, *, prefix: str) -> Picture | None:
    """Each output's probability with its proved bounds, the claimed one, and ln of their ratio."""
    shown = _in_order(outputs_of(result)[:MOST_BARS])
    if not shown or not all(math.isfinite(p) for _, low, high, _ in shown for p in (low, high)):
        return None
    claimed = all(q is not None for *_, q in shown)
    marks: list[Mark] = []

    def draw() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, 4.2 if claimed else 2.9), layout="constrained")
        ratios = {"height_ratios": [3, 1.6]} if claimed else {}
        rows = figure.subplots(1 + claimed, 1, sharex=True, squeeze=False, gridspec_kw=ratios)
        _bars(rows[0, 0], shown, _where(result), marks)
        if claimed:
            _log_ratios(rows[1, 0], shown, marks)
        _names(rows[-1, 0], [name for name, *_ in shown])
        return figure

    svg = inline_svg(draw, prefix=prefix)
    told = "; ".join(
        f"{name}: {between(low, high)}" + (f", claimed {between(q.low, q.high)}" if q else "")
        for name, low, high, q in shown[:8]
    )
    caption = f"The probability of each output of the program{law_is_of(result)}, proved from both "
    caption += "sides."
    if claimed:
        caption += (
            " Circles: the claimed law. Below: the logarithm of their ratio, with proved bounds; "
            "0 is equality."
        )
    if result.outputs > len(shown):
        caption += f" The {len(shown)} likeliest of {result.outputs:,} outputs are drawn."
    return Picture(
        svg,
        f"Exact probabilities of {len(shown)} outputs: {told}.",
        caption,
        title="The exact law" + (" beside the claimed one" if claimed else ""),
        name=prefix,
        points=read_out(marks),
        series=series_of(("program", "claimed")) if claimed else "",
    )


def _where(result: ProofResult) -> str:
    found = result.counterexample
    return "" if found is None else one_line(found.output, limit=80)


def _in_order(bars: Sequence[Bar]) -> list[Bar]:
    """Numbers by size; other outputs stay in the order of their probabilities."""
    if all(_NUMBER.fullmatch(name) for name, *_ in bars):
        return sorted(bars, key=lambda bar: float(bar[0]))
    return list(bars)


def _bars(axes: Axes, shown: Sequence[Bar], refuted: str, marks: list[Mark]) -> None:
    places = range(len(shown))
    inks = [ALARM if name == refuted else CALM for name, *_ in shown]
    heights = [(low + high) / 2 for _, low, high, _ in shown]
    belongs(axes.bar(places, heights, width=0.7, color=inks, alpha=0.45, linewidth=0).patches, 0)
    for x, (name, low, high, q) in zip(places, shown, strict=True):
        belongs(axes.plot([x, x], [low, high], color=INK, linewidth=2), 0)
        marks.append(Mark(axes, x, (low + high) / 2, name, f"P {between(low, high)}", 0))
        if q is not None:
            style: dict[str, Any] = {"color": INK, "markerfacecolor": PAPER, "markersize": 4}
            belongs(axes.plot([x], [(q.low + q.high) / 2], "o", **style), 1)
            marks.append(Mark(axes, x, q.high, name, f"claimed {between(q.low, q.high)}", 1))
    axes.set_ylim(0, None)
    axes.set_ylabel("probability")
    axes.tick_params(labelbottom=False)


def _log_ratios(axes: Axes, shown: Sequence[Bar], marks: list[Mark]) -> None:
    pairs = [log_ratio(low, high, q) for _, low, high, q in shown if q is not None]
    ends = [abs(end) for pair in pairs for end in pair if math.isfinite(end)]
    top = 1.25 * max([_LEAST_RATIO, *ends])
    axes.axhline(0, color=QUIET, linewidth=1, linestyle=DASHED)
    for x, (low, high) in enumerate(pairs):
        a, b = (min(max(end, -top), top) for end in (low, high))
        ink = ALARM if low > 0 or high < 0 else CALM
        belongs(axes.plot([x, x], [a, b], color=ink, linewidth=2, solid_capstyle="butt"), 0)
        beyond = "^" if a == top else "v" if b == -top else "_"
        belongs(axes.plot([x], [(a + b) / 2], beyond, color=ink, markersize=5, clip_on=False), 0)
        said = f"ln(P/Q) {at_least(low, digits=3)} … {at_most(high, digits=3)}"
        marks.append(Mark(axes, x, (a + b) / 2, shown[x][0], said, 0))
    axes.set_ylim(-top, top)
    axes.set_ylabel("ln(P/Q)")


def _names(axes: Axes, names: Sequence[str]) -> None:
    """As many names below the bars as have room."""
    longest = max(len(short(name, limit=12)) for name in names)
    step = max(1, math.ceil(len(names) * (longest + 1) / 44))
    places = range(0, len(names), step)
    axes.tick_params(labelbottom=True)
    axes.set_xticks(list(places), [short(names[i], limit=12) for i in places])
    axes.set_xlabel("output")


def proved_profile(result: ProofResult, *, prefix: str) -> Picture | None:
    """Proved bounds of δ(ε), and the claim."""
    known = [p for p in result.profile if p.near is not None and p.near <= _LARGEST_EPSILON]
    claimed = delta_claimed(result)
    if len(known) < 2 or claimed is None or known[0] is not result.profile[0]:
        return None
    points = sorted(
        (p.near or 0.0, p.delta.low, p.delta.high, one_line(p.epsilon, limit=40)) for p in known
    )
    here = known[0].near or 0.0
    highs = [high for _, _, high, _ in points if 0 < high < math.inf]
    most = max([*highs, claimed, 1e-300])
    log = bool(highs) and min([*highs, *([claimed] if claimed else [])]) < _FLAT * most
    floor = min([*highs, *([claimed] if claimed else [])]) / 10 if log else 0.0
    marks: list[Mark] = []
    refuted = result.verdict == "refuted"

    def draw() -> Figure:
        figure, axes = one(2.9)
        xs = [x for x, *_ in points]
        lows, highs = [max(p[1], floor) for p in points], [max(p[2], floor) for p in points]
        belongs(axes.fill_between(xs, lows, highs, color=QUIET, alpha=0.3, linewidth=0), 0)
        for ys, marker in ((lows, "^"), (highs, "v")):
            belongs(axes.plot(xs, ys, f"{marker}-", color=INK, linewidth=0.8, markersize=4), 0)
        ink = ALARM if refuted else CALM
        style: dict[str, Any] = {
            "color": ink, "markerfacecolor": ink if refuted else PAPER, "markersize": 8,
            "markeredgewidth": 1.6, "clip_on": False, "zorder": 5,
        }  # fmt: skip
        belongs(axes.plot([here], [max(claimed, floor)], "o", **style), 1)
        for x, low, high, epsilon in points:
            said = f"δ {between(low, high)}"
            marks.append(Mark(axes, x, max(high, floor), f"ε = {epsilon}", said, 0))
        said = f"claimed δ {claimed_delta(result)}"
        marks.append(Mark(axes, here, max(claimed, floor), f"ε = {points_text}", said, 1))
        if log:
            axes.set_yscale("log")
            lowest, highest = math.ceil(math.log10(floor)), math.ceil(math.log10(most))
            ticks = range(lowest, highest + 1, max(1, (highest - lowest) // 5))
            axes.set_yticks([10.0**t for t in ticks], [superscript(t) for t in ticks])
            axes.set_yticks([], minor=True)
        axes.set_ylim(floor, 2 * most if log else 1.1 * most)
        axes.set_xlim(0, max(xs))
        axes.set_xlabel("ε")
        axes.set_ylabel("δ")
        return figure

    points_text = one_line(known[0].epsilon, limit=40)
    svg = inline_svg(draw, prefix=prefix)
    at = known[0].delta
    said = f"at ε = {points_text} δ is {between(at.low, at.high)}; claimed {claimed_delta(result)}"
    caption = (
        "For each marked ε the least δ lies between the two triangles, whichever of the two inputs "
        "comes first; the lines between marks only guide the eye. The circle is the claim; it is "
        "filled if it is refuted."
    )
    if log and any(low < floor for _, low, _, _ in points):
        caption += " A lower bound of 0 is drawn at the lower edge."
    return Picture(
        svg,
        f"Proved bounds of δ against ε: {said}.",
        caption,
        title="Privacy profile, proved from both sides",
        name=prefix,
        points=read_out(marks),
        series=series_of(("proved", "claimed")),
    )


def coin_bits(result: ProofResult, *, prefix: str) -> Picture | None:
    """How probable each number of coin bits is, where it varies and was computed."""
    count = result.coin_count
    if count is None or count.constant is not None or len(count.law) < 2:
        return None
    rows = count.law
    marks: list[Mark] = []

    def draw() -> Figure:
        figure, axes = one(2.4)
        axes.bar([n for n, _ in rows], [p for _, p in rows], color=CALM, alpha=0.6, linewidth=0)
        for n, p in rows:
            marks.append(Mark(axes, n, p, f"{n:,} bits", f"probability ≥ {at_least(p)}"))
        axes.set_ylim(0, None)
        axes.set_xlabel("coin bits read by a call")
        axes.set_ylabel("probability")
        return figure

    svg = inline_svg(draw, prefix=prefix)
    likeliest = max(rows, key=lambda row: row[1])
    return Picture(
        svg,
        f"Probabilities of {len(rows)} numbers of coin bits, from {rows[0][0]:,} to "
        f"{rows[-1][0]:,}; the likeliest is {likeliest[0]:,} with {quantity(likeliest[1])}.",
        "How many coin bits a call reads. Whoever can measure the time of a call may learn this "
        "number.",
        title="Coins read by a call",
        name=prefix,
        points=read_out(marks),
    )
